"""The controlled shutdown of a broker: the controller moves its leaderships to other brokers (R23)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import CoordinationError, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Ledger
from minikafka.broker.controller_client import ControllerClient
from minikafka.broker.ledger.record import BROKER, by_topic, in_parts
from minikafka.broker.rpc import messages

logger = logging.getLogger(__name__)

_CALL_TIMEOUT_MS: Final = 30_000
HANDOVER_MS: Final = 100
"""Time for which the broker still answers clients after its leaderships have moved.

Its answers name the new leaders. Without them, clients ask other brokers, which may not have their metadata yet; then
librdkafka asks again only after a second.
"""


def longest_ms(config: BrokerConfig) -> int:
    """Return the maximum time that `ControlledShutdown.run` takes."""
    attempts = config.controlled_shutdown_max_retries if config.controlled_shutdown_enable else 0
    pauses = max(0, attempts - 1) * config.controlled_shutdown_retry_backoff_ms
    return attempts * _CALL_TIMEOUT_MS + pauses + (HANDOVER_MS if attempts else 0)


def note(ledger: Ledger, fact: str, **details: object) -> None:
    """Record a fact about this broker in the ledger, as one line with these details."""
    ledger.record(BROKER, "", {"fact": fact, **details})


class ControlledShutdown:
    """Asks the controller to move all leaderships of this broker to other brokers."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, controller: ControllerClient, ledger: Ledger
    ) -> None:
        self._config = config
        self._clock = clock
        self._controller = controller
        self._ledger = ledger

    async def run(self, epoch: Callable[[], int]) -> None:
        """Ask until no leadership is left. `epoch()` returns that of the broker's latest registration.

        Give up after `controlled.shutdown.max.retries` attempts.
        """
        config = self._config
        for attempt in range(1, config.controlled_shutdown_max_retries + 1):
            if attempt > 1:
                await self._clock.sleep(config.controlled_shutdown_retry_backoff_ms)
            note(self._ledger, "controlled shutdown asked", attempt=attempt)
            try:
                remaining = await self._ask(epoch())
            except (OSError, KafkaError, CoordinationError) as error:
                reason = str(error) or "no answer in time"
                logger.warning("controlled shutdown, attempt %d: %s", attempt, reason)
                answer = {"attempt": attempt, "error": reason}
                note(self._ledger, "controlled shutdown answered", **answer)
                continue
            self._note_remaining(attempt, remaining)
            if not remaining:
                await self._clock.sleep(HANDOVER_MS)
                return
            count = len(remaining)
            logger.warning(
                "controlled shutdown, attempt %d: still leading %d partitions", attempt, count
            )

    async def _ask(self, epoch: int) -> list[TopicPartition]:
        body = messages.encode_registration(self._config.broker_id, epoch)
        async with asyncio.timeout(_CALL_TIMEOUT_MS / 1000):  # this broker may be the controller
            answer = await self._controller.call(
                messages.CONTROLLED_SHUTDOWN, body, _CALL_TIMEOUT_MS
            )
        return messages.decode_remaining(answer)

    def _note_remaining(self, attempt: int, remaining: list[TopicPartition]) -> None:
        for run, part in in_parts(remaining):
            rest = {"attempt": attempt, "still_leading": by_topic(run), **part}
            note(self._ledger, "controlled shutdown answered", **rest)
