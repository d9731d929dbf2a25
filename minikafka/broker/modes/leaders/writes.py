"""The machine's writes to ZooKeeper: one multi for each effect, in the session of the era.

Nobody acts on the outcome of a write: the partition is read afterwards, and shows it. After a lost answer, a sync makes
sure that the read sees the write if it was applied.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeAlias

from minikafka.base.errors import Closed, CoordinationError, OutcomeUnknown
from minikafka.base.model import BrokerId
from minikafka.base.ports import MultiOp, ZooKeeper
from minikafka.broker.modes.leaders.era import Era
from minikafka.leaders.commands import CompleteReassignment, GiveUpLeadership, RaiseEpoch, TryToLead
from minikafka.zk.nodes.leaders import partitions, topics

logger = logging.getLogger(__name__)

PartitionWrite: TypeAlias = TryToLead | RaiseEpoch | CompleteReassignment | GiveUpLeadership


class PartitionWrites:
    """Carries out the effects that write the nodes of a partition."""

    def __init__(self, broker_id: BrokerId, zookeeper: ZooKeeper) -> None:
        self._broker_id = broker_id
        self._zookeeper = zookeeper

    async def write(self, era: Era, effect: PartitionWrite) -> None:
        """Send the multi of an effect. The caller reads the partition afterwards, whatever the outcome is."""
        try:
            await self._zookeeper.multi(self._multi(effect), generation=era.generation)
        except OutcomeUnknown as error:
            logger.info("%s of %s: %s", type(effect).__name__, effect.tp, error)
            await self._sync(era)
        except CoordinationError as error:
            logger.info(
                "%s of %s: %s %s", type(effect).__name__, effect.tp, type(error).__name__, error
            )

    def _multi(self, effect: PartitionWrite) -> Sequence[MultiOp]:
        tp, view = effect.tp, effect.view
        if isinstance(effect, TryToLead):
            return partitions.lead(tp, view, self._broker_id, effect.epoch, effect.isr)
        if isinstance(effect, RaiseEpoch):
            return partitions.raise_epoch(tp, view, effect.epoch, effect.isr, effect.closes)
        if isinstance(effect, CompleteReassignment):
            return partitions.complete_reassignment(tp, view, effect.epoch, effect.closes)
        return partitions.give_up(tp, view)

    async def _sync(self, era: Era) -> None:
        """Wait until reads see all writes so far, or the era is over."""
        while not era.is_over:
            try:
                await self._zookeeper.connected()
                await self._zookeeper.sync(topics.DIRECTORY)
            except Closed:
                return
            except CoordinationError as error:
                logger.info("sync after a lost answer: %s %s", type(error).__name__, error)
            else:
                return
