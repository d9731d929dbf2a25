"""The Kafka error for an administration request that failed."""

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
    """Return the error code and message for a client whose request failed with `error`.

    `about` describes the request in the log.
    """
    if isinstance(error, KafkaError):
        return error.code, error.detail
    if isinstance(error, ControllerMoved | NotConnected | StaleSession):
        return ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER
    if isinstance(error, OutcomeUnknown):
        return (
            ErrorCode.REQUEST_TIMED_OUT,
            "ZooKeeper's answer was lost, and the change may have been made; retry",
        )
    assert isinstance(error, CoordinationError)
    logger.warning("%s: ZooKeeper refused the request: %s", about, error)
    return ErrorCode.UNKNOWN_SERVER_ERROR, "ZooKeeper refused the request"
