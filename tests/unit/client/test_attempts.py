"""What is repeated, and for how long."""

from __future__ import annotations

import asyncio

import pytest
from support.manual_clock import ManualClock

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.client.attempts import RETRY_BACKOFF_MS, UNKNOWN_TOPIC_MS, Attempts
from minikafka.client.metadata import NobodyAnswers


class Forgetful:
    """Metadata that counts how often it was found wrong."""

    def __init__(self) -> None:
        self.invalidated = 0

    def invalidate(self) -> None:
        self.invalidated += 1


class Scripted:
    """An attempt that raises these in turn, then the last one again; None: it succeeds."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = outcomes
        self.made = 0

    async def __call__(self) -> str:
        outcome = self.outcomes[min(self.made, len(self.outcomes) - 1)]
        self.made += 1
        if outcome is not None:
            raise outcome
        return "done"


async def ended(clock: ManualClock, attempts: Attempts, attempt: Scripted) -> str:
    """The outcome, time passing whenever somebody waits for it."""
    task = asyncio.ensure_future(attempts(attempt))
    while not task.done():
        await asyncio.sleep(0)
        if clock.waiting():
            clock.advance(RETRY_BACKOFF_MS)
    return await task


async def test_what_may_pass_is_repeated_with_fresh_metadata() -> None:
    clock, metadata = ManualClock(), Forgetful()
    attempt = Scripted(ConnectionError("lost"), KafkaError(ErrorCode.NOT_CONTROLLER), None)
    assert await ended(clock, Attempts(clock, metadata, 10_000), attempt) == "done"
    assert (attempt.made, metadata.invalidated) == (3, 2)


async def test_what_repeating_cannot_mend_is_raised_at_once() -> None:
    clock = ManualClock()
    attempt = Scripted(KafkaError(ErrorCode.INVALID_CONFIG))
    with pytest.raises(KafkaError, match="INVALID_CONFIG"):
        await ended(clock, Attempts(clock, Forgetful(), 10_000), attempt)
    assert attempt.made == 1


async def test_when_patience_ends_the_last_failure_is_raised() -> None:
    clock = ManualClock()
    with pytest.raises(KafkaError, match="NETWORK_EXCEPTION: lost"):
        await ended(clock, Attempts(clock, Forgetful(), 10_000), Scripted(ConnectionError("lost")))
    assert clock.now() == 10_000


async def test_that_nobody_answers_is_said_once_while_it_is_tried_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    with pytest.raises(KafkaError, match="nobody at h:1"):
        await ended(
            clock, Attempts(clock, Forgetful(), 10_000), Scripted(NobodyAnswers("nobody at h:1"))
        )
    assert caplog.messages == ["nobody at h:1 (trying for 7 s more)"]


async def test_a_topic_that_nobody_knows_is_given_up_sooner() -> None:
    clock = ManualClock()
    attempt = Scripted(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC"):
        await ended(clock, Attempts(clock, Forgetful(), 60_000), attempt)
    assert clock.now() == UNKNOWN_TOPIC_MS
