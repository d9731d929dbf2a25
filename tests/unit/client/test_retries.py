"""Which failures are retried, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.client.metadata import NoBrokerAnswers
from minikafka.client.retries import RETRY_BACKOFF_MS, UNKNOWN_TOPIC_MS, Retries
from minikafka.client.waits import PendingCall, Waits
from minikafka.simulation.clocks import ManualClock


class CountingMetadata:
    """Metadata that counts its invalidations."""

    def __init__(self) -> None:
        self.invalidated = 0
        self.waits = Waits()

    def invalidate(self) -> None:
        self.invalidated += 1


class Scripted:
    """An attempt whose calls raise the `outcomes` one by one (None: success). The last outcome is repeated."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = outcomes
        self.made = 0

    async def __call__(self) -> str:
        outcome = self.outcomes[min(self.made, len(self.outcomes) - 1)]
        self.made += 1
        if outcome is not None:
            raise outcome
        return "done"


async def ended(clock: ManualClock, retries: Retries, attempt: Scripted) -> str:
    """Run an attempt with retries; the manual clock advances whenever the retries sleep."""
    task = asyncio.ensure_future(retries(attempt))
    while not task.done():
        await asyncio.sleep(0)
        if clock.waiting():
            clock.advance(RETRY_BACKOFF_MS)
    return await task


async def test_retriable_failure_is_retried_with_fresh_metadata() -> None:
    clock, metadata = ManualClock(), CountingMetadata()
    attempt = Scripted(ConnectionError("lost"), KafkaError(ErrorCode.NOT_CONTROLLER), None)
    assert await ended(clock, Retries(clock, metadata, 10_000), attempt) == "done"
    assert (attempt.made, metadata.invalidated) == (3, 2)


async def test_failure_that_is_not_retriable_is_raised_at_once() -> None:
    clock = ManualClock()
    attempt = Scripted(KafkaError(ErrorCode.INVALID_CONFIG))
    with pytest.raises(KafkaError, match="INVALID_CONFIG"):
        await ended(clock, Retries(clock, CountingMetadata(), 10_000), attempt)
    assert attempt.made == 1


async def test_last_failure_is_raised_after_the_time_limit() -> None:
    clock = ManualClock()
    with pytest.raises(KafkaError, match="NETWORK_EXCEPTION: lost"):
        await ended(
            clock, Retries(clock, CountingMetadata(), 10_000), Scripted(ConnectionError("lost"))
        )
    assert clock.now() == 10_000


async def test_silence_of_all_brokers_is_logged_once_while_retrying(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    with pytest.raises(KafkaError, match="no broker at h:1"):
        await ended(
            clock,
            Retries(clock, CountingMetadata(), 10_000),
            Scripted(NoBrokerAnswers("no broker at h:1", was_never_reached=False)),
        )
    assert caplog.messages == ["no broker at h:1 (retrying for 7 s more)"]


async def test_retries_end_after_three_seconds_if_no_broker_was_ever_reached() -> None:
    clock = ManualClock()
    with pytest.raises(KafkaError, match="NETWORK_EXCEPTION: no broker at h:1"):
        await ended(
            clock,
            Retries(clock, CountingMetadata(), 60_000),
            Scripted(NoBrokerAnswers("no broker at h:1", was_never_reached=True)),
        )
    assert clock.now() == 3_000


async def test_unknown_topic_error_has_a_shorter_retry_time_limit() -> None:
    clock = ManualClock()
    attempt = Scripted(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC"):
        await ended(clock, Retries(clock, CountingMetadata(), 60_000), attempt)
    assert clock.now() == UNKNOWN_TOPIC_MS


async def test_call_is_a_wait_with_its_subject_and_last_error_until_it_returns() -> None:
    clock, metadata, seen = ManualClock(), CountingMetadata(), list[PendingCall | None]()
    clock.advance(500)
    failure = KafkaError(ErrorCode.NOT_CONTROLLER, "nobody")

    async def attempt() -> None:
        seen.append(metadata.waits.oldest())
        if len(seen) == 1:
            raise failure

    task = asyncio.ensure_future(Retries(clock, metadata, 10_000)(attempt, "the controller"))
    while not task.done():
        await asyncio.sleep(0)
        if clock.waiting():
            clock.advance(RETRY_BACKOFF_MS)
    assert seen[0] is seen[1] is not None
    assert (seen[1].about, seen[1].since, seen[1].error) == ("the controller", 500, failure)
    assert metadata.waits.oldest() is None
