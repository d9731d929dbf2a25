"""The nodes of partitions: `replicas`, `leader` and `ISR`, and the multis of a partition's leader.

Invariants: a view says whether all nodes were readable, so that nothing is decided otherwise. A reassignment is read
before the replica list, because one multi moves the brokers of the first to the second: a broker that hosts a replica
the whole time is in at least one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, TypeVar

from minikafka.base.model import BrokerId, Epoch, TopicPartition
from minikafka.base.names import parse_number, parse_topic
from minikafka.base.ports import Check, Create, Delete, MultiOp, Set, Znode, ZooKeeper
from minikafka.deciders.leaders.model import (
    IsrNode,
    LeaderNode,
    PartitionView,
    Reassignment,
    Replicas,
    StateChange,
)
from minikafka.zookeeper.nodes import configs
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import layout, queues
from minikafka.zookeeper.nodes.reader import NodeReader

Value = TypeVar("Value")

_NODES: Final = (
    layout.reassignment_path,
    layout.replicas_path,
    layout.leader_path,
    layout.isr_path,
)
"""The nodes of a partition, in the order in which they are read."""
_UNCLEAN: Final = "unclean.leader.election.enable"


leader_path = layout.leader_path
replicas_path = layout.replicas_path
isr_path = layout.isr_path


# Reading.


async def list_requested(zookeeper: ZooKeeper, faults: Faults) -> list[TopicPartition]:
    """Return the partitions below the reassignments. Report other names to `faults`. Raises CoordinationError."""
    return await _children(zookeeper, layout.REASSIGNMENTS, faults)


async def list_partitions(zookeeper: ZooKeeper, faults: Faults) -> list[TopicPartition]:
    """Return all partitions below the topics and the reassignments, in order. Report other names to `faults`.

    A partition may be below the reassignments only, while it is being created. Raises CoordinationError.
    """
    found = {
        *await _children(zookeeper, layout.REASSIGNMENTS, faults),
        *await _children(zookeeper, layout.TOPICS, faults),
    }
    return sorted(found)


async def list_of_topics(
    zookeeper: ZooKeeper, topics: Sequence[str], faults: Faults
) -> list[TopicPartition]:
    """Return the partitions of these topics; a topic that does not exist has none. Raises CoordinationError."""
    return await _below(zookeeper, layout.TOPICS, topics, faults)


async def read_hosts(
    nodes: NodeReader, tps: Sequence[TopicPartition], faults: Faults
) -> dict[TopicPartition, frozenset[BrokerId]]:
    """Return the brokers that host each partition: its assigned replicas and those of its reassignment.

    An unreadable node is reported to `faults` and counts as empty. Raises CoordinationError.
    """
    paths = [path(tp) for tp in tps for path in _NODES[:2]]
    found = await nodes.get_many(paths)
    hosts = {}
    for tp, reassignment, replicas in zip(tps, found[::2], found[1::2], strict=True):
        read = _Decoding(faults)
        target = read.node(layout.reassignment_path(tp), reassignment, layout.decode_reassignment)
        assigned = read.node(layout.replicas_path(tp), replicas, layout.decode_replicas)
        hosts[tp] = frozenset((*(target or ()), *(assigned or ())))
    return hosts


async def read_views(
    nodes: NodeReader,
    tps: Iterable[TopicPartition],
    session_id: int,
    faults: Faults,
    *,
    unclean_default: bool = False,
) -> dict[TopicPartition, PartitionView]:
    """Return the view of each partition. A partition without nodes has a view in which everything is None.

    An unreadable node is reported to `faults`, is None in the view, and makes the view unreadable. `session_id`: the
    session whose `leader` nodes are ours. `unclean_default`: the broker's setting unclean.leader.election.enable,
    which a topic's own setting replaces. Raises CoordinationError.
    """
    wanted = list(dict.fromkeys(tps))
    topics = list(dict.fromkeys(tp.topic for tp in wanted))
    entities = {topic: configs.Entity(configs.TOPICS, topic) for topic in topics}
    paths = [path for topic in topics for path in _paths_of_topic(entities[topic])]
    paths += [path(tp) for tp in wanted for path in _NODES]
    found = iter(await nodes.get_many(paths))
    of_topics = {topic: (next(found), next(found)) for topic in topics}
    views = {}
    for tp in wanted:
        topic, settings = of_topics[tp.topic]
        overrides = configs.decode(entities[tp.topic], settings, faults) or {}
        unclean = overrides.get(_UNCLEAN, str(unclean_default)).strip().lower() == "true"
        views[tp] = _view(tp, (topic, *islice(found, len(_NODES))), session_id, faults, unclean)
    return views


def _paths_of_topic(entity: configs.Entity) -> tuple[str, str]:
    return layout.topic_path(entity.name), configs.path_of(entity)


def _view(
    tp: TopicPartition,
    nodes: Sequence[Znode | None],
    session_id: int,
    faults: Faults,
    unclean: bool,
) -> PartitionView:
    topic, reassignment, replicas, leader, isr = nodes
    read = _Decoding(faults)
    topic_id = read.node(layout.topic_path(tp.topic), topic, layout.decode_topic)
    assigned = read.node(layout.replicas_path(tp), replicas, layout.decode_replicas)
    leading = read.node(layout.leader_path(tp), leader, layout.decode_leader)
    in_sync = read.node(layout.isr_path(tp), isr, layout.decode_isr)
    has_readable_roles = read.has_succeeded
    target = read.node(layout.reassignment_path(tp), reassignment, layout.decode_reassignment)
    is_ours = leader is not None and leader.stat.ephemeral_owner == session_id
    return PartitionView(
        topic_id=topic_id,
        replicas=assigned,
        replicas_version=_version(replicas),
        leader=None if leading is None else LeaderNode(*leading, _version(leader), is_ours),
        isr=None if in_sync is None else IsrNode(*in_sync, _version(isr)),
        reassignment=None if target is None else Reassignment(target, _version(reassignment)),
        is_readable=read.has_succeeded,
        has_readable_roles=has_readable_roles,
        unclean_election=unclean,
    )


class _Decoding:
    """The decoding of the nodes of one partition."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.has_succeeded = True
        """False after an unreadable node."""

    def node(self, path: str, node: Znode | None, decode: Callable[[bytes], Value]) -> Value | None:
        """Return the content of a node, None if it does not exist or is not readable."""
        try:
            return None if node is None else decode(node.data)
        except ValueError as fault:
            self._faults.report(path, fault)
            self.has_succeeded = False
            return None


def _version(node: Znode | None) -> int:
    return -1 if node is None else node.stat.version


async def _children(zookeeper: ZooKeeper, parent: str, faults: Faults) -> list[TopicPartition]:
    """Return the partitions whose nodes are two levels below `parent`."""
    [names] = await zookeeper.children_many([parent])
    topics = _parsed(parent, names or (), parse_topic, faults)
    return await _below(zookeeper, parent, topics, faults)


async def _below(
    zookeeper: ZooKeeper, parent: str, topics: Sequence[str], faults: Faults
) -> list[TopicPartition]:
    paths = [f"{parent}/{topic}" for topic in topics]
    below = await zookeeper.children_many(paths)
    return [
        TopicPartition(topic, number)
        for topic, path, children in zip(topics, paths, below, strict=True)
        for number in _parsed(path, children or (), parse_number, faults)
    ]


def _parsed(
    parent: str, names: Iterable[str], parse: Callable[[str], Value], faults: Faults
) -> list[Value]:
    found = []
    for name in names:
        try:
            found.append(parse(name))
        except ValueError as fault:
            faults.report(f"{parent}/{name}", fault)
    return found


# Multis. Each fails unless the nodes that its decision used still have the versions in the view. A node `leader` that
# another broker has made again has version 0 too: the version of `ISR`, which every new leader raises, differs.


def lead(
    tp: TopicPartition, view: PartitionView, broker_id: BrokerId, epoch: Epoch, isr: Replicas
) -> list[MultiOp]:
    """Return the multi with which a broker becomes the leader of a partition without one.

    The first leader creates the node `ISR`; each later one replaces it.
    """
    text = layout.encode_isr(isr, epoch)
    return [
        Check(layout.replicas_path(tp), view.replicas_version),
        Create(layout.leader_path(tp), layout.encode_leader(broker_id, epoch), ephemeral=True),
        Create(layout.isr_path(tp), text)
        if view.isr is None
        else Set(layout.isr_path(tp), text, view.isr.version),
    ]


def raise_epoch(
    tp: TopicPartition,
    view: PartitionView,
    epoch: Epoch,
    isr: Replicas,
    closes: Iterable[tuple[BrokerId, StateChange]] = (),
) -> list[MultiOp]:
    """Return the multi that renews the role of the leader in a new epoch, with this ISR.

    `closes` are for brokers that leave the ISR because a reassignment was cancelled: a replica that is closed before it
    has left the ISR could complete the next reassignment without its records.
    """
    return [
        Check(layout.replicas_path(tp), view.replicas_version),
        *_renewal(tp, view, epoch, isr),
        *(queues.entry(broker_id, request) for broker_id, request in closes),
    ]


def complete_reassignment(
    tp: TopicPartition,
    view: PartitionView,
    epoch: Epoch,
    closes: Iterable[tuple[BrokerId, StateChange]],
) -> list[MultiOp]:
    """Return the multi with which the leader makes the replicas of the reassignment the assigned replicas.

    It is one multi, with the requests to close the other replicas: a leader that another has replaced, or that dies in
    between, could otherwise leave a partition whose in-sync replicas are closed.
    """
    assert view.reassignment is not None
    assert view.isr is not None
    target = view.reassignment.replicas
    isr = tuple(id_ for id_ in view.isr.ids if id_ in target)
    assert set(isr) == set(
        target
    )  # RAR ⊆ ISR, otherwise the multi would assign replicas that lack records
    return [
        *_renewal(tp, view, epoch, isr),
        Set(layout.replicas_path(tp), layout.encode_ids(target), view.replicas_version),
        Delete(layout.reassignment_path(tp), view.reassignment.version),
        *(queues.entry(broker_id, request) for broker_id, request in closes),
    ]


def _renewal(
    tp: TopicPartition, view: PartitionView, epoch: Epoch, isr: Replicas
) -> tuple[MultiOp, MultiOp]:
    """Return the operations that write the next epoch of the present leader."""
    assert view.leader is not None
    assert view.isr is not None
    leader = layout.encode_leader(view.leader.broker_id, epoch)
    return (
        Set(layout.leader_path(tp), leader, view.leader.version),
        Set(layout.isr_path(tp), layout.encode_isr(isr, epoch), view.isr.version),
    )


def give_up(tp: TopicPartition, view: PartitionView) -> list[MultiOp]:
    """Return the multi with which the leader of the view gives up its leadership.

    If another program has deleted the node `ISR`, the session of the leader is the only fence.
    """
    assert view.leader is not None
    delete = Delete(layout.leader_path(tp), view.leader.version)
    return [delete] if view.isr is None else [Check(layout.isr_path(tp), view.isr.version), delete]


def leave(tp: TopicPartition, view: PartitionView, broker_id: BrokerId) -> list[MultiOp]:
    """Return the multi that takes a broker out of a partition's ISR, and out of its leadership if it leads.

    The broker must not be the only in-sync replica: a node `ISR` is never empty. The epoch stays.
    """
    assert view.isr is not None
    isr = tuple(id_ for id_ in view.isr.ids if id_ != broker_id)
    assert isr
    multi: list[MultiOp] = [isr_write(tp, isr, view.isr.epoch, view.isr.version)]
    if view.leader is not None and view.leader.broker_id == broker_id:
        multi.append(Delete(layout.leader_path(tp), view.leader.version))
    return multi


def isr_write(tp: TopicPartition, isr: Sequence[BrokerId], epoch: Epoch, version: int) -> Set:
    """Return the operation that replaces a partition's in-sync replicas within the epoch of its leader."""
    assert isr
    return Set(layout.isr_path(tp), layout.encode_isr(isr, epoch), version)
