"""The roles of a broker's replicas: the orders that a mode may give, and the capability that gives them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from minikafka.base.model import (
    Broker,
    BrokerId,
    MetadataUpdate,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)
from minikafka.base.ports import Call

OrderResults: TypeAlias = list[tuple[TopicPartition, int]]
"""The error code of each partition in an order, 0 on success."""
Fence: TypeAlias = Callable[[], None]
"""Function that raises KafkaError if an order has become stale."""


Confirm: TypeAlias = Callable[[], Awaitable[None]]
"""Function that asks whether an order is still valid. Raises KafkaError if not, CoordinationError if unknown."""


async def always_confirmed() -> None:
    """Do nothing: the `Confirm` of an order that cannot become stale."""


def never_stale() -> None:
    """Do nothing: the `Fence` of an order that cannot become stale."""


class Orders(Protocol):
    """The orders that a mode gives to the replicas of its broker. A mode may give them before it registers.

    A long order is carried out with pauses, in which clients and heartbeats are served. `fence` is called before the
    first partition and after each pause. If it raises a KafkaError, the order is abandoned with this error.
    """

    async def change_roles(
        self,
        partitions: Sequence[PartitionState],
        topic_ids: Mapping[str, bytes],
        leaders: Iterable[Broker],
        fence: Fence = never_stale,
        *,
        opens_later: bool = False,
    ) -> OrderResults:
        """Make this broker leader or follower of each partition; create a replica that does not exist yet.

        `leaders`: the brokers that lead these partitions, with their endpoints. `opens_later`: as leader, this broker
        serves followers, and refuses clients with NOT_LEADER_OR_FOLLOWER until `open` (C17, C18).
        A role whose leader epoch is not higher than the replica's is refused with STALE_CONTROLLER_EPOCH, except a role
        that resumes one that `end_roles` has ended. Raises CoordinationError if the settings of a topic cannot be read.
        """

    async def caught_up(
        self,
        tp: TopicPartition,
        leader_epoch: int,
        timeout_ms: int,
        is_live: Callable[[BrokerId], bool] | None = None,
    ) -> tuple[BrokerId, ...]:
        """Wait until every live member of the ISR has the log of the opening leader, at most `timeout_ms`.

        Return the members of the ISR that have it, this broker included; an empty tuple if this broker no longer
        leads the partition in this epoch. `is_live`: the brokers to wait for; without it, the metadata decide.
        """

    def open(
        self, tp: TopicPartition, leader_epoch: int, in_sync: Collection[BrokerId] = ()
    ) -> bool:
        """Serve clients of a partition that this broker leads since a role with `opens_later`.

        `in_sync`: the members that stay in the ISR (all if empty). The leader proposes the smaller ISR to the
        `IsrStore` as it opens; until the write, the high watermark waits for the leaving members too.
        Return False, and change nothing, if this broker does not lead the partition in this epoch. A later role of
        the same leader without `opens_later` opens the partition too.
        """

    def end_roles(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop leading, following and serving these partitions at once, and keep their files.

        Waiting produce requests fail with NOT_LEADER_OR_FOLLOWER. The next role must have a higher leader epoch. Only
        a replica that followed may also resume its role: the same leader in the same epoch.
        """

    def replicas_on_disk(self) -> Mapping[TopicPartition, bytes | None]:
        """Return the replicas in the log directories that work, each with its topic id (None if it has none)."""

    def failed_replicas(self) -> frozenset[TopicPartition]:
        """Return the replicas whose log directory has failed."""

    def set_aside(self, tp: TopicPartition) -> None:
        """Stop a replica, and keep its files under another name."""

    async def stop_replicas(
        self, stops: Sequence[StopReplicaPartition], fence: Fence = never_stale
    ) -> OrderResults:
        """Stop replicas, and delete the files of those whose `delete` is true. Deletions are durable at the return."""

    def update_metadata(self, update: MetadataUpdate, *, is_whole: bool) -> None:
        """Update what clients and the other parts of the broker see of the cluster.

        `is_whole`: the update names every partition, and all other partitions are removed.
        """

    async def remove_strays(
        self, update: MetadataUpdate, *, is_whole: bool, confirm: Confirm = always_confirmed
    ) -> None:
        """Delete replicas that the update assigns to other brokers, and set those of unknown topics aside.

        `confirm` is awaited before files are deleted or moved. If it raises, no file is.
        A mode whose metadata may be older than the roles that it has given must not call this method.
        """


class RoleSource(Protocol):
    """The part of a mode that gives this broker's replicas their orders."""

    @property
    def calls(self) -> Mapping[str, Callable[[Call], Awaitable[dict[str, Any]]]]:
        """The handlers of the mode's own calls on the control plane, by method. Empty if it gives orders itself."""

    @property
    def epoch(self) -> int:
        """The controller epoch of the last order, -1 if there was none or the mode has no controller."""

    async def start(self, orders: Orders) -> None:
        """Begin to give orders. The broker registers (`Membership.start`) when this method has returned."""
