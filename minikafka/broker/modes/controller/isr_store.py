"""ISRs in Kafka's state znodes: one compare-and-set per change, announced to the controller (R26, S29)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from minikafka.base.errors import Closed, CoordinationError
from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.base.ports import Clock, Set, Tasks, ZooKeeper
from minikafka.broker.capabilities import IsrOutcome, IsrWrite
from minikafka.broker.modes.zookeeper.lost_answers import compare_and_set
from minikafka.zookeeper.nodes import notifications, partition_states

logger = logging.getLogger(__name__)

ANNOUNCE_AFTER_MS: Final = 100
"""Time during which ISR changes are collected for one notification."""


class ZooKeeperIsrs:
    """ZooKeeper implementation of IsrStore, with state znodes and `/isr_change_notification`."""

    def __init__(self, zookeeper: ZooKeeper, clock: Clock, tasks: Tasks) -> None:
        self._zookeeper = zookeeper
        self._clock = clock
        self._tasks = tasks
        self._to_announce: set[TopicPartition] = set()
        self._is_announcing = False

    async def write(
        self, tp: TopicPartition, state: LeaderAndIsr, is_wanted: Callable[[], bool]
    ) -> IsrWrite:
        """Write a state node by compare-and-set and announce the new ISR to the controller.

        Returns when the outcome is certain. Before each attempt, `is_wanted()` is called; if it returns False, the
        outcome is ABANDONED.
        """
        operation = partition_states.write(tp, state)
        assert isinstance(operation, Set)  # not Create: the controller has created the node
        written = await compare_and_set(self._zookeeper, operation, is_wanted)
        if written.outcome is IsrOutcome.WRITTEN:
            self._announce_later(tp)
        return written

    def _announce_later(self, tp: TopicPartition) -> None:
        self._to_announce.add(tp)
        if not self._is_announcing:
            self._is_announcing = True
            self._tasks.spawn(self._announce(), "isr-announcements")

    async def _announce(self) -> None:
        """Notify the controller of all ISRs that were written; retry failed notifications."""
        with suppress(Closed):
            while self._to_announce:
                await self._clock.sleep(ANNOUNCE_AFTER_MS)
                # Taken before the write: a partition that changes during the write is announced again.
                changed, self._to_announce = self._to_announce, set()
                try:
                    await notifications.announce_isrs(self._zookeeper, changed)
                except CoordinationError as error:
                    logger.warning("ISR change not announced: %s %s", type(error).__name__, error)
                    self._to_announce |= changed
                    await self._zookeeper.connected()
        self._is_announcing = False
