"""The writes of reassignments and deletions to ZooKeeper, in their order."""

from __future__ import annotations

from typing import Any

import pytest
from support.brokers.controller_bench import (
    T0,
    ControllerBench,
    create_topic,
    reassign,
    stops,
    until,
)

from minikafka.base.model import ReplicaAssignment, StopReplicaRequest, TopicPartition
from minikafka.base.ports import Check, Delete, MultiOp, WatchKind
from minikafka.zookeeper.nodes import layout


def zookeeper_writes(multis: list[Any]) -> list[tuple[str, MultiOp]]:
    """Return (path, operation) of each write in the multis; leave out their version checks."""
    writes = []
    for ops in multis:
        assert isinstance(ops[0], Check)
        assert ops[0].path == layout.CONTROLLER_EPOCH
        writes += [(op.path, op) for op in ops if not isinstance(op, Check)]
    return writes


@pytest.mark.row("E4", "E10", "I5", "I6", "A9", "A11", "C31", "X14", "R2")
async def test_reassignment_writes_the_final_replica_list_after_the_partition_states(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2])
    await bench.led(2)
    bench.zookeeper.multis.clear()
    reassign(bench, {T0: [3]})
    await until(lambda: bench.assignment()[0].adding == (3,))
    await bench.idle()
    watched = (WatchKind.DATA, layout.state_path(T0))
    assert watched in bench.zookeeper.watched()
    assert bench.assignment()[0] == ReplicaAssignment((3, 2), adding=(3,), removing=(2,))
    assert bench.there(layout.REASSIGN_PARTITIONS)
    bench.join(2, 3)
    await until(lambda: not bench.there(layout.REASSIGN_PARTITIONS))
    await bench.idle()
    assert watched not in bench.zookeeper.watched()
    assert bench.assignment()[0] == ReplicaAssignment((3,))
    assert bench.state().isr == (3,)  # type: ignore[union-attr]
    writes = zookeeper_writes(bench.zookeeper.multis)
    topic, state, admin = layout.topic_path("t"), layout.state_path(T0), layout.REASSIGN_PARTITIONS
    assert [path for path, _ in writes] == [topic, state, state, state, topic, admin]
    states = [layout.decode_state(op.data, 0) for path, op in writes if path == state]  # type: ignore[union-attr]
    assert [(s.leader, s.isr) for s in states] == [(2, (2,)), (3, (2, 3)), (3, (3,))]
    assert isinstance(writes[-1][1], Delete)
    stops = [p for r in bench.channels.to(2, StopReplicaRequest) for p in r.partitions]
    assert [p.delete for p in stops] == [False, True]


async def test_each_reassignment_of_a_partition_in_one_term_ends_when_the_isr_has_its_target(
    bench: ControllerBench,
) -> None:
    """No notification of an ISR change is written: only the watch on the state node tells the controller."""
    create_topic(bench.ensemble, "t", [2])
    await bench.led(2)
    for source, target in ((2, 3), (3, 1), (1, 2)):
        reassign(bench, {T0: [target]})
        await until(
            lambda target=target: bench.assignment()[0].adding == (target,),  # type: ignore[misc]
            seconds=5,
        )
        await bench.idle()
        bench.join(source, target)
        await until(lambda: not bench.there(layout.REASSIGN_PARTITIONS), seconds=5)
        await bench.idle()
        assert bench.assignment()[0] == ReplicaAssignment((target,))


@pytest.mark.row("A11", "X12")
async def test_reassign_partitions_node_loses_each_finished_partition_and_is_then_deleted(
    bench: ControllerBench,
) -> None:
    t1 = TopicPartition("t", 1)
    create_topic(bench.ensemble, "t", [2], [3])
    await bench.led(3, t1)
    reassign(bench, {T0: [3], t1: [2], TopicPartition("none", 0): [1]})

    def asked() -> set[TopicPartition]:
        node = bench.ensemble.nodes.get(layout.REASSIGN_PARTITIONS)
        return set(layout.decode_reassignments(node.data)) if node else set()

    await until(lambda: asked() == {T0, t1})
    await bench.idle()
    bench.join(2, 3)
    await until(lambda: asked() == {t1})
    await bench.idle()
    bench.join(3, 2, tp=t1)
    await until(lambda: not bench.there(layout.REASSIGN_PARTITIONS))


@pytest.mark.row("R60", "T8")
async def test_reassignment_submitted_right_after_the_admin_node_was_deleted_is_started(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2])
    create_topic(bench.ensemble, "u", [2])
    u0 = TopicPartition("u", 0)
    await bench.led(2, u0)
    multi = bench.zookeeper.multi

    async def then_submit(ops: Any, **session: Any) -> Any:
        stats = await multi(ops, **session)
        if any(isinstance(op, Delete) and op.path == layout.REASSIGN_PARTITIONS for op in ops):
            bench.zookeeper.multi = multi  # type: ignore[method-assign]
            reassign(bench, {u0: [3]})
        return stats

    reassign(bench, {T0: [3]})
    await until(lambda: bench.assignment()[0].adding == (3,))
    await bench.idle()
    bench.zookeeper.multi = then_submit  # type: ignore[method-assign]
    bench.join(2, 3)
    await until(lambda: bench.assignment("u")[0].adding == (3,))


@pytest.mark.row("E7", "A13", "A16", "J5", "L1", "R64", "G8")
async def test_topic_node_is_deleted_after_all_replicas_and_before_its_delete_topics_node(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3])
    bench.ensemble.put(layout.topic_config_path("t"), layout.encode_config({}))
    await bench.led(2)
    bench.refuse = {3}
    bench.zookeeper.multis.clear()
    bench.ensemble.put(layout.delete_topic_path("t"))
    await until(lambda: any(p.delete for p in stops(bench, 3)))
    await bench.idle()
    assert bench.there(layout.topic_path("t")), "broker 3 has not answered"
    assert bench.there(layout.state_path(T0))
    bench.refuse = set()
    bench.ensemble.delete(layout.broker_path(3))
    await until(lambda: "3" not in bench.shown()["brokers"])
    await bench.idle()
    assert bench.shown()["topics_ineligible_for_deletion"] == {"t": "offline replicas"}
    bench.register_broker(3)
    await until(lambda: not bench.there(layout.delete_topic_path("t")))
    assert not bench.there(layout.topic_path("t"))
    assert not bench.there(layout.topic_config_path("t"))
    paths = [
        path for path, op in zookeeper_writes(bench.zookeeper.multis) if isinstance(op, Delete)
    ]
    assert paths[-3:] == [
        layout.topic_path("t"),
        layout.topic_config_path("t"),
        layout.delete_topic_path("t"),
    ]


@pytest.mark.row("R65")
async def test_delete_topics_node_of_an_unknown_topic_is_removed(bench: ControllerBench) -> None:
    bench.ensemble.put(layout.delete_topic_path("none"))
    await until(lambda: not bench.there(layout.delete_topic_path("none")))
