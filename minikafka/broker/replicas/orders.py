"""Orders to the replicas of this broker, as its coordination mode gives them.

Invariant: an order for many partitions is carried out with pauses, in which clients and heartbeats are served. If the
order becomes stale in a pause, it is abandoned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from minikafka.base.model import (
    NO_EPOCH,
    Broker,
    BrokerId,
    MetadataUpdate,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)
from minikafka.base.ports import Clock
from minikafka.broker.capabilities import (
    Confirm,
    Fence,
    OrderResults,
    TopicStore,
    always_confirmed,
    never_stale,
)
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.replicas.strays import Strays
from minikafka.storage.replication.partition import Partition

_SLICE_MS: Final = 50
"""Maximum time (ms) that an order may occupy the event loop without a pause."""

_Named = TypeVar("_Named", PartitionState, StopReplicaPartition)
"""The type of a partition in an order."""


class ReplicaOrders:
    """The Orders of a mode, carried out on the replicas of this broker."""

    def __init__(self, replicas: ReplicaManager, topics: TopicStore, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock
        self._strays = Strays(
            replicas.broker_id,
            replicas.logs,
            replicas.metadata,
            topics,
            self._delete_stray,
            replicas.set_aside,
        )

    async def change_roles(
        self,
        partitions: Sequence[PartitionState],
        topic_ids: Mapping[str, bytes],
        leaders: Iterable[Broker],
        fence: Fence = never_stale,
        *,
        opens_later: bool = False,
    ) -> OrderResults:
        """Make this broker leader or follower of each partition; return the error code of each partition."""
        await self._load_configs(partitions)
        fence()
        self._replicas.fetchers.brokers_changed({broker.id: broker for broker in leaders})
        results = await self._one_by_one(
            partitions,
            lambda state: self._replicas.become_leader_or_follower(
                state, topic_ids.get(state.tp.topic), self._clock.now(), opens_later=opens_later
            ),
            fence,
        )
        self._replicas.checkpoints.start()
        return results

    async def _load_configs(self, partitions: Sequence[PartitionState]) -> None:
        """Read the settings of topics that have no settings loaded, and of topics with new partitions.

        A topic with new partitions may have been deleted and created again with other settings.
        """
        wanted = {state.tp.topic for state in partitions}
        wanted.difference_update(self._replicas.configs.topics)
        wanted.update(state.tp.topic for state in partitions if state.is_new)
        if wanted:
            # The mode decided with the latest settings, so this broker must not use older ones.
            await self._replicas.configs.read(wanted, latest=True)

    async def _one_by_one(
        self, partitions: Sequence[_Named], carry_out: Callable[[_Named], int], fence: Fence
    ) -> OrderResults:
        """Carry out an order partition by partition. Pause every `_SLICE_MS` to serve clients and heartbeats."""
        end = self._begin_slice()
        results = []
        for partition in partitions:
            results.append((partition.tp, carry_out(partition)))
            if self._clock.now() > end:
                await self._replicas.turns.orders.pause()
                fence()
                end = self._begin_slice()
        return results

    def _begin_slice(self) -> int:
        """Write all appended batches, because a replica with unwritten batches must not change its role.

        Return the time at which the slice ends. Requests that fail in the slice are answered soon.
        """
        now, purgatory = self._clock.now(), self._replicas.purgatory
        purgatory.finish_tick(now)
        purgatory.finish_soon()
        return now + _SLICE_MS

    async def caught_up(
        self,
        tp: TopicPartition,
        leader_epoch: int,
        timeout_ms: int,
        is_live: Callable[[BrokerId], bool] | None = None,
    ) -> tuple[BrokerId, ...]:
        partition = self._replicas.partition(tp)
        if partition is None:
            return ()
        is_live = is_live or self._replicas.metadata.is_alive
        return await CatchUp(partition, leader_epoch, is_live).wait(self._clock, timeout_ms)

    def open(
        self, tp: TopicPartition, leader_epoch: int, in_sync: Collection[BrokerId] = ()
    ) -> bool:
        return self._replicas.open(tp, leader_epoch, in_sync)

    def end_roles(self, partitions: Iterable[TopicPartition]) -> None:
        self._replicas.end_roles(partitions)

    def replicas_on_disk(self) -> Mapping[TopicPartition, bytes | None]:
        return {tp: log.topic_id for tp, log in self._replicas.logs.logs.items()}

    def failed_replicas(self) -> frozenset[TopicPartition]:
        return frozenset(self._replicas.logs.offline)

    def set_aside(self, tp: TopicPartition) -> None:
        self._replicas.set_aside(tp)

    async def stop_replicas(
        self, stops: Sequence[StopReplicaPartition], fence: Fence = never_stale
    ) -> OrderResults:
        """Stop replicas, and delete those whose `delete` is true; return the error code of each partition."""
        results = await self._one_by_one(stops, self._replicas.stop_replica, fence)
        if any(stop.delete for stop in stops):
            # Sync before the return: then the mode may assume that deleted replicas never come back.
            self._replicas.sync_deletions()
            kept = {*self._replicas.partitions, *self._replicas.unhosted}
            self._replicas.configs.keep({tp.topic for tp in kept})
        return results

    def update_metadata(self, update: MetadataUpdate, *, is_whole: bool) -> None:
        self._replicas.update_metadata(update, is_whole=is_whole)

    async def remove_strays(
        self, update: MetadataUpdate, *, is_whole: bool, confirm: Confirm = always_confirmed
    ) -> None:
        """Delete strays; also set orphans aside if the update names every partition."""
        await self._strays.delete_strays(update, is_whole=is_whole, confirm=confirm)
        if is_whole:
            await self._strays.set_orphans_aside(confirm)

    def _delete_stray(self, tp: TopicPartition) -> None:
        self._replicas.stop_replica(StopReplicaPartition(tp, NO_EPOCH, delete=True))
        self._replicas.sync_deletions()


class CatchUp:
    """The wait of an opening leader for the in-sync replicas (C17), as a `Waiter` of the partition.

    An opening leader appends nothing, so its log ends where its epoch begins. Invariant: a replica counts as caught up
    only after a fetch in this epoch, with an offset at or above this log end.

    The partition attempts it after each fetch of a follower and each change of the role. The broker attempts it when
    brokers die, and at each check of the ISRs. `is_live(broker_id)` is True for the brokers to wait for.
    """

    def __init__(
        self, partition: Partition, leader_epoch: int, is_live: Callable[[BrokerId], bool]
    ) -> None:
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._is_live = is_live
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, clock: Clock, timeout_ms: int) -> tuple[BrokerId, ...]:
        """Return the members of the ISR that have caught up, as soon as no live member is missing.

        Return them after the timeout in any case, and nothing if the leader's epoch is over.
        """
        timer = clock.call_later(timeout_ms, self._end)
        self._partition.waiting[self] = None
        try:
            self.attempt()
            await self._ended
        finally:
            timer.cancel()
            self._partition.waiting.pop(self, None)
        return self.in_sync()

    def attempt(self) -> None:
        """End the wait if every live member has caught up, or the leader's epoch is over."""
        if not any(map(self._is_live, self._missing())):
            self._end()

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def in_sync(self) -> tuple[BrokerId, ...]:
        """Return the members of the ISR that have the leader's log, the leader included; () if its epoch is over."""
        partition = self._partition
        if not partition.leads_in(self._leader_epoch):
            return ()
        missing = missing_members(partition)
        return tuple(member for member in partition.isr if member not in missing)

    def _missing(self) -> frozenset[BrokerId]:
        """Return the members of the ISR that have not caught up; nothing if the leader's epoch is over."""
        if not self._partition.leads_in(self._leader_epoch):
            return frozenset()
        return missing_members(self._partition)


def missing_members(partition: Partition) -> frozenset[BrokerId]:
    """Return the members of the ISR that have not reached the log end at which the leader's epoch began."""
    end, followers = partition.epoch_start_offset, partition.followers.items()
    return frozenset(id_ for id_, one in followers if id_ in partition.isr and one.offset < end)
