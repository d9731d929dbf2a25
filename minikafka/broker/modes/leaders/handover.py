"""The controlled shutdown of a broker: it leaves ISRs and leaderships before it stops (R23).

Each batch of partitions is one multi. A broker never leaves the ISR of a partition that no other live replica can
lead: the partition would have no leader, also after the broker's return.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from minikafka.base.errors import ErrorCode, KafkaError, MultiFailed, OutcomeUnknown
from minikafka.base.model import Broker, BrokerId, TopicPartition
from minikafka.broker.modes.leaders.peers import Peers
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.rpc.coordination import LookReason
from minikafka.broker.side_by_side import all_of
from minikafka.deciders.leaders.model import PartitionView
from minikafka.deciders.leaders.steps import CONTROLLED_SHUTDOWN
from minikafka.zookeeper.nodes import registrations
from minikafka.zookeeper.nodes.leaders import partitions
from minikafka.zookeeper.nodes.leaders.tree import REGISTRATIONS

logger = logging.getLogger(__name__)

_BATCH: Final = 100
"""Partitions that a broker leaves in one multi."""
_ATTEMPTS: Final = 5
"""Attempts to write a batch. A leader may change an ISR of the batch at the same time."""


class Handover:
    """Takes brokers out of ISRs and leaderships."""

    def __init__(self, ports: Ports, peers: Peers) -> None:
        self._zookeeper = ports.zookeeper
        self._gate = ports.gate
        self._faults = ports.faults
        self._peers = peers

    async def leave(self, broker_id: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        """Take a broker out of all partitions with other replicas; return those that it still leads.

        Raises KafkaError: STALE_BROKER_EPOCH for an earlier registration, BROKER_NOT_AVAILABLE without a
        registration. Raises CoordinationError.
        """
        await self._check_registration(broker_id, broker_epoch)
        tps = await partitions.list_partitions(self._zookeeper, self._faults)
        hosts = await partitions.read_hosts(self._zookeeper, tps, self._faults)
        hosted = [tp for tp, ids in hosts.items() if broker_id in ids]
        for first in range(0, len(hosted), _BATCH):
            await self._gate.reached(CONTROLLED_SHUTDOWN, "batch")
            await self._leave(broker_id, hosted[first : first + _BATCH])
        await self._gate.reached(CONTROLLED_SHUTDOWN, "answered")
        views = await self._views(hosted)
        return [tp for tp, view in views.items() if _is_led_with_others(view, broker_id)]

    async def _check_registration(self, broker_id: BrokerId, broker_epoch: int) -> None:
        stat = await registrations.stat(self._zookeeper, broker_id, REGISTRATIONS)
        if stat is None:
            message = f"broker {broker_id} is not registered"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, message)
        if stat.czxid != broker_epoch:
            message = f"broker {broker_id} has epoch {stat.czxid}, not {broker_epoch}"
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, message)

    async def _leave(self, broker_id: BrokerId, tps: Sequence[TopicPartition]) -> None:
        for _ in range(_ATTEMPTS):
            live = await self._peers.live()
            views = await self._views(tps)
            left = {tp: view for tp, view in views.items() if _may_leave(view, broker_id, live)}
            if not left:
                return
            multi = [
                operation
                for tp, view in left.items()
                for operation in partitions.leave(tp, view, broker_id)
            ]
            try:
                await self._zookeeper.multi(multi)
            except (MultiFailed, OutcomeUnknown) as error:
                logger.info("broker %d leaves its partitions again: %s", broker_id, error)
                await self._zookeeper.sync(REGISTRATIONS)
                continue
            await self._inform_leaders(broker_id, left, live)
            return

    async def _inform_leaders(
        self,
        broker_id: BrokerId,
        left: Mapping[TopicPartition, PartitionView],
        live: Mapping[BrokerId, Broker],
    ) -> None:
        """Let the leaders of other brokers read the ISR again: they would wait for the broker's fetches in vain."""
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for tp, view in left.items():
            if view.leader is not None and view.leader.broker_id in live:
                by_leader.setdefault(view.leader.broker_id, []).append(tp)
        by_leader.pop(broker_id, None)
        await all_of(
            self._peers.look_again(live[leader], LookReason.ISR, tps)
            for leader, tps in by_leader.items()
        )

    async def _views(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionView]:
        session_id = self._zookeeper.session_id
        return await partitions.read_views(self._zookeeper, tps, session_id, self._faults)


def _may_leave(view: PartitionView, broker_id: BrokerId, live: Collection[BrokerId]) -> bool:
    """True if another replica can lead: it is assigned, in sync and alive."""
    if not view.is_readable or view.isr is None or broker_id not in view.isr.ids:
        return False
    able = set(view.isr.ids).intersection(view.replicas or (), live) - {broker_id}
    return bool(able)


def _is_led_with_others(view: PartitionView, broker_id: BrokerId) -> bool:
    """True if the broker leads the partition, and the partition has other replicas."""
    is_led = view.leader is not None and view.leader.broker_id == broker_id
    return is_led and len(view.replicas or ()) > 1
