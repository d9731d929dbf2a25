"""Short builders for the views and requests of the leader-coordinated mode."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.model import TopicPartition
from minikafka.deciders.leaders.model import (
    IsrNode,
    LeaderNode,
    Operation,
    PartitionView,
    Reassignment,
    Replicas,
    StateChange,
)

T0 = TopicPartition("t", 0)
ID, OTHER_ID = b"i" * 16, b"o" * 16
EVERYONE = frozenset(range(6))


def view(
    replicas: Iterable[int] | None = (0, 1, 2),
    *,
    leader: tuple[int, int] | None = None,
    ours: bool = False,
    isr: Replicas | None = None,
    epoch: int | None = None,
    target: Replicas | None = None,
    topic_id: bytes | None = ID,
    readable: bool = True,
    has_roles: bool = False,
    unclean: bool = False,
) -> PartitionView:
    """Return a view; without `epoch`, the ISR has the leader's epoch (7 without a leader)."""
    written = epoch if epoch is not None else 7 if leader is None else leader[1]
    return PartitionView(
        topic_id,
        None if replicas is None else tuple(replicas),
        0,
        None if leader is None else LeaderNode(*leader, version=0, is_ours=ours),
        None if isr is None else IsrNode(isr, written, version=written),
        None if target is None else Reassignment(target, 0),
        readable,
        readable or has_roles,
        unclean,
    )


def request(
    operation: Operation = Operation.START,
    *,
    epoch: int = -1,
    sender: int = -1,
    topic_id: bytes | None = ID,
    tp: TopicPartition = T0,
) -> StateChange:
    """Return a request; without arguments, the start request of an administrator."""
    return StateChange(operation, tp, topic_id, epoch, sender)
