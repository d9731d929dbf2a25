"""The partitions of views as the broker and its clients know them: `PartitionState`."""

from __future__ import annotations

from minikafka.base.model import (
    LEADER_DURING_DELETE,
    NO_EPOCH,
    NO_LEADER,
    BrokerId,
    PartitionState,
    TopicPartition,
)
from minikafka.leaders.model import PartitionView


def role_of(tp: TopicPartition, view: PartitionView, *, is_new: bool = False) -> PartitionState:
    """Return the role that a view gives to the replicas of its partition, which has a leader and an ISR."""
    assert view.leader is not None, view
    return _state(tp, view)._replace(is_new=is_new)


def metadata_of(
    tp: TopicPartition, view: PartitionView, live: frozenset[BrokerId]
) -> PartitionState:
    """Return what clients see of a partition. A partition that is not complete, or is being deleted, is hidden."""
    state = _state(tp, view)
    if view.topic_id is None or view.replicas is None or view.is_being_deleted:
        return state._replace(leader=LEADER_DURING_DELETE)
    return state._replace(offline=tuple(id_ for id_ in state.replicas if id_ not in live))


def _state(tp: TopicPartition, view: PartitionView) -> PartitionState:
    assigned = view.replicas or ()
    target = assigned if view.reassignment is None else view.reassignment.replicas
    adding = tuple(id_ for id_ in target if id_ not in assigned)
    isr = view.isr
    return PartitionState(
        tp,
        NO_LEADER if view.leader is None else view.leader.broker_id,
        view.epoch if view.leader is None else view.leader.epoch,
        () if isr is None else isr.ids,
        -1 if isr is None else isr.version,
        NO_EPOCH,
        (*assigned, *adding),
        adding,
        tuple(id_ for id_ in assigned if id_ not in target),
    )
