"""The Kafka error of a request that could not be carried out."""

from __future__ import annotations

import pytest

from minikafka.base.errors import (
    ControllerMoved,
    ErrorCode,
    KafkaError,
    MultiFailed,
    NoAuth,
    NoNode,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
)
from minikafka.broker.admin.refusals import refusal


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.INVALID_PARTITIONS, "few"), ErrorCode.INVALID_PARTITIONS),
        (MultiFailed(1, NoNode()), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ControllerMoved(), ErrorCode.NOT_CONTROLLER),
        (NotConnected(), ErrorCode.NOT_CONTROLLER),
        (StaleSession(), ErrorCode.NOT_CONTROLLER),
        (OutcomeUnknown(), ErrorCode.REQUEST_TIMED_OUT),
        (NoAuth(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_refusal_returns_the_code_that_a_client_can_act_on(
    error: Exception, code: ErrorCode
) -> None:
    got, message = refusal(error, "topic t")
    assert got == code
    assert message
