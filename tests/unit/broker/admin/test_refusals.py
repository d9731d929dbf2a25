"""The Kafka error code that is returned when an administrator's request fails."""

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
def test_refusal_maps_each_exception_to_a_kafka_error_code(
    error: Exception, code: ErrorCode
) -> None:
    got, message = refusal(error, "topic t")
    assert got == code
    assert message
