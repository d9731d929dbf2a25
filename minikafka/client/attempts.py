"""Repeating what may be repeated: an attempt is made again, with fresh metadata, while its failure may pass.

Invariant: what comes out is the attempt's result, or a `KafkaError`: one that repeating cannot mend, or
the last one when patience has ended; NETWORK_EXCEPTION where no broker said anything.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.ports import Clock
from minikafka.client.metadata import Metadata, NobodyAnswers

logger = logging.getLogger(__name__)

RETRY_BACKOFF_MS: Final = 100
"""Kafka's `retry.backoff.ms`."""
UNKNOWN_TOPIC_MS: Final = 5_000
"""How long a topic or leader that is not known may be on its way to the broker that was asked."""
GRACE_MS: Final = 1_000
"""A broker that answers with REQUEST_TIMED_OUT is given so much longer to say so."""
SILENCE_MS: Final = 3_000
"""How long nobody answers before that is said, while it is tried on."""

T = TypeVar("T")


class Attempts:
    """Makes attempts; each in turn has `patience_ms` for itself and its repetitions."""

    def __init__(self, clock: Clock, metadata: Metadata, patience_ms: int) -> None:
        self._clock = clock
        self._metadata = metadata
        self._patience_ms = patience_ms

    async def __call__(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The attempt's result. Raises KafkaError."""
        began = self._clock.now()
        is_said = False
        while True:
            try:
                return await attempt()
            except OSError as cause:
                error = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(cause))
                waited = self._clock.now() - began
                if isinstance(cause, NobodyAnswers) and waited >= SILENCE_MS and not is_said:
                    is_said = True
                    left = max(self._patience_ms - waited, 0) // 1000
                    logger.warning("%s (trying for %d s more)", cause, left)
            except KafkaError as cause:
                if not cause.code.retriable:
                    raise
                error = cause
            unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            patience = UNKNOWN_TOPIC_MS if unknown else self._patience_ms
            if self._clock.now() - began >= min(patience, self._patience_ms):
                raise error
            self._metadata.invalidate()
            await self._clock.sleep(RETRY_BACKOFF_MS)
