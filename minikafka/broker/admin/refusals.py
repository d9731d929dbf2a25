"""The Kafka error for a request that could not be carried out."""

from __future__ import annotations

import logging
from typing import Final

from minikafka.base.errors import (
    ControllerMoved,
    CoordinationError,
    ErrorCode,
    KafkaError,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
)

logger = logging.getLogger(__name__)

NOT_CONTROLLER: Final = "this broker is not the controller"


def refusal(error: Exception, about: str) -> tuple[ErrorCode, str]:
    """Return error code and message for a client whose request failed; `about` says in the log what was requested."""
    if isinstance(error, KafkaError):
        return error.code, error.detail
    if isinstance(error, ControllerMoved | NotConnected | StaleSession):
        return ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER
    if isinstance(error, OutcomeUnknown):
        return ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper's answer was lost; ask again"
    assert isinstance(error, CoordinationError)
    logger.warning("%s: ZooKeeper refused the request: %s", about, error)
    return ErrorCode.UNKNOWN_SERVER_ERROR, "ZooKeeper refused the request"
