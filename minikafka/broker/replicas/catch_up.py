"""The wait of an opening leader for the in-sync replicas (C17).

An opening leader appends nothing, so its log ends where its epoch begins. Invariant: a replica counts as caught up only
after a fetch in this epoch, with an offset at or above this log end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from minikafka.base.model import BrokerId
from minikafka.base.ports import Clock
from minikafka.replication.partition import Partition


class CatchUp:
    """The wait for the members of one partition's ISR, as a `Waiter` of the partition.

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
