"""Retries of requests: after a retriable error, the attempt is repeated with fresh metadata.

Invariant: the outcome is the result of an attempt, or a `KafkaError`. The `KafkaError` is either an error that is
not retriable, or the last error before the time limit. Its code is NETWORK_EXCEPTION if no broker answered.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock
from minikafka.base.retry_plan import RetryPlan
from minikafka.client.metadata import Metadata, NoBrokerAnswers
from minikafka.client.waits import PendingCall

logger = logging.getLogger(__name__)

RETRY_BACKOFF_MS: Final = 100
"""Kafka's `retry.backoff.ms`."""
UNKNOWN_TOPIC_MS: Final = 5_000
"""Time for which a broker's metadata may lack a topic or partition that was just created."""
GRACE_MS: Final = 1_000
"""Extra time, after a broker's own timeout, for its REQUEST_TIMED_OUT response to arrive."""
UNREACHABLE_MS: Final = 3_000
"""Time for which bootstrap servers may refuse connections while the first broker starts."""
WARN_AFTER_MS: Final = 3_000
"""Warn after this long without an answer; keep retrying."""

T = TypeVar("T")


class Retries:
    """A caller of attempts: it repeats an attempt after retriable errors, for at most `time_limit_ms`."""

    def __init__(self, clock: Clock, metadata: Metadata, time_limit_ms: int) -> None:
        self._clock = clock
        self._metadata = metadata
        self._time_limit_ms = time_limit_ms

    async def __call__(
        self,
        attempt: Callable[[], Awaitable[T]],
        about: str = "an answer from a broker",
        tp: TopicPartition | None = None,
    ) -> T:
        """Call `attempt`; repeat the call after a retriable error. Return its result. Raises KafkaError.

        `about` and `tp`: what the call waits for, see `PendingCall`.
        """
        with self._metadata.waits.during(about, self._clock.now(), tp) as wait:
            return await self._repeat(attempt, wait)

    async def _repeat(self, attempt: Callable[[], Awaitable[T]], wait: PendingCall) -> T:
        has_warned = False
        plan = RetryPlan(wait.since, self._time_limit_ms, RETRY_BACKOFF_MS, RETRY_BACKOFF_MS)
        while True:
            try:
                return await attempt()
            except OSError as cause:
                error = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(cause))
                waited = self._clock.now() - wait.since
                if isinstance(cause, NoBrokerAnswers):
                    if cause.was_never_reached and waited >= UNREACHABLE_MS:
                        raise error from cause
                    if waited >= WARN_AFTER_MS and not has_warned:
                        has_warned = True
                        left = max(self._time_limit_ms - waited, 0) // 1000
                        logger.warning("%s (retrying for %d s more)", cause, left)
            except KafkaError as cause:
                if not cause.code.retriable:
                    raise
                error = cause
            wait.error = error
            unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            pause_ms = plan.next_pause_ms(self._clock.now(), UNKNOWN_TOPIC_MS if unknown else None)
            if pause_ms is None:
                raise error
            self._metadata.invalidate()
            await self._clock.sleep(pause_ms)
