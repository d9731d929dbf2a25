"""What the transactional clients of the chaos test share: calls that are repeated, and outcomes of writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from minikafka.checks.histories import OK, UNKNOWN, Recorder

CALL_SECONDS = 15.0
"""Time limit of one call of the client, after which the call is repeated."""
RETRY_SECONDS = 45.0
"""Time limit of a call with its repetitions: librdkafka can lose a request to a broker that leaves the metadata."""
TRANSACTION_TIMEOUT_MS = 8_000
TRANSIENT = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)


def retry(call: Callable[..., Any], *arguments: object) -> Any:
    """Call a function of the client with a time limit, and repeat this after an error that may pass.

    Raises KafkaException after any other error, and after `RETRY_SECONDS`.
    """
    deadline = time.monotonic() + RETRY_SECONDS
    while True:
        try:
            return call(*arguments, CALL_SECONDS)
        except KafkaException as raised:
            error = raised.args[0]
            may_pass = error.retriable() or error.code() in TRANSIENT
            if error.fatal() or error.txn_requires_abort() or not may_pass:
                raise
            if time.monotonic() > deadline:
                raise


def delivered(recorder: Recorder, number: int, error: KafkaError | None, message: Message) -> None:
    """Record the outcome of a write, as its delivery report."""
    if error is None:
        recorder.ended(number, OK, offset=message.offset())
    else:
        recorder.ended(number, UNKNOWN)
