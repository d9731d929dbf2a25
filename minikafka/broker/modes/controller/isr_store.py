"""ISRs in Kafka's state znodes: one compare-and-set per change, announced to the controller (R26, S29).

Invariant: after a lost answer, the node is read until it is certain whether the write succeeded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from minikafka.base.errors import (
    BadVersion,
    Closed,
    CoordinationError,
    NoNode,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
)
from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.base.ports import Clock, Node, Set, Tasks, ZooKeeper
from minikafka.broker.capabilities.stores import IsrOutcome, IsrWrite
from minikafka.zk.nodes import notifications, partition_states

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
        while is_wanted():
            try:
                stat = await self._zookeeper.set(*operation)
                return self._written(tp, stat.version, stat.mzxid)
            except NotConnected:
                return IsrWrite(IsrOutcome.NOT_SENT)
            except NoNode:
                return IsrWrite(IsrOutcome.ABANDONED)
            except (OutcomeUnknown, BadVersion):
                data, stat = await self._read_back(operation.path)
            if data == operation.data:
                return self._written(tp, stat.version)
            if stat.version != operation.version:
                return IsrWrite(IsrOutcome.CONFLICT)
        return IsrWrite(IsrOutcome.ABANDONED)

    async def _read_back(self, path: str) -> Node:
        """Return data and Stat of the node, read after a sync, with retries. Raises NoNode, Closed."""
        while True:
            await self._zookeeper.connected()
            try:
                await self._zookeeper.sync(path)
                return await self._zookeeper.get(path)
            except (NotConnected, OutcomeUnknown, StaleSession):
                continue

    def _written(self, tp: TopicPartition, version: int, zxid: int | None = None) -> IsrWrite:
        self._to_announce.add(tp)
        if not self._is_announcing:
            self._is_announcing = True
            self._tasks.spawn(self._announce(), "isr-announcements")
        return IsrWrite(IsrOutcome.WRITTEN, version, zxid)

    async def _announce(self) -> None:
        """Notify the controller of all ISRs that were written; retry failed notifications."""
        with suppress(Closed):
            while self._to_announce:
                await self._clock.sleep(ANNOUNCE_AFTER_MS)
                changed, self._to_announce = self._to_announce, set()
                try:
                    await notifications.announce_isrs(self._zookeeper, changed)
                except CoordinationError as error:
                    logger.warning("ISR change not announced: %s %s", type(error).__name__, error)
                    self._to_announce |= changed
                    await self._zookeeper.connected()
        self._is_announcing = False
