"""Reassignments and deletions as ZooKeeper sees them: each write in its order, the request's node last."""

from __future__ import annotations

from typing import Any

import pytest
from support.controller_bench import create_topic, until
from support.controller_office import T0, Office, reassign, stops

from minikafka.base.model import ReplicaAssignment, StopReplicaRequest, TopicPartition
from minikafka.base.ports import Check, Delete, MultiOp, WatchKind
from minikafka.zk import layout


def zookeeper_writes(multis: list[Any]) -> list[tuple[str, MultiOp]]:
    """(path, operation) of each write, after the check that leads each multi."""
    writes = []
    for ops in multis:
        assert isinstance(ops[0], Check)
        assert ops[0].path == layout.CONTROLLER_EPOCH
        writes += [(op.path, op) for op in ops[1:]]
    return writes


@pytest.mark.row("E4", "E10", "I5", "I6", "A9", "A11", "C31", "X14", "R2")
async def test_a_submitted_reassignment_is_written_step_by_step_and_its_assignment_last(
    office: Office,
) -> None:
    create_topic(office.ensemble, "t", [2])
    await office.led(2)
    office.coordination.multis.clear()
    reassign(office, {T0: [3]})
    await until(lambda: office.assignment()[0].adding == (3,))
    await office.idle()
    watched = (WatchKind.DATA, layout.state_path(T0))
    assert watched in office.coordination.watched()
    assert office.assignment()[0] == ReplicaAssignment((3, 2), adding=(3,), removing=(2,))
    assert office.there(layout.REASSIGN_PARTITIONS)
    office.join(2, 3)
    await until(lambda: not office.there(layout.REASSIGN_PARTITIONS))
    await office.idle()
    assert watched not in office.coordination.watched()
    assert office.assignment()[0] == ReplicaAssignment((3,))
    assert office.state().isr == (3,)  # type: ignore[union-attr]
    writes = zookeeper_writes(office.coordination.multis)
    topic, state, admin = layout.topic_path("t"), layout.state_path(T0), layout.REASSIGN_PARTITIONS
    assert [path for path, _ in writes] == [topic, state, state, state, topic, admin]
    states = [layout.decode_state(op.data, 0) for path, op in writes if path == state]  # type: ignore[union-attr]
    assert [(s.leader, s.isr) for s in states] == [(2, (2,)), (3, (2, 3)), (3, (3,))]
    assert isinstance(writes[-1][1], Delete)
    stops = [p for r in office.candidate.channels.to(2, StopReplicaRequest) for p in r.partitions]
    assert [p.delete for p in stops] == [False, True]


@pytest.mark.row("A11", "X12")
async def test_the_admin_node_loses_each_partition_that_is_done_and_goes_with_the_last(
    office: Office,
) -> None:
    t1 = TopicPartition("t", 1)
    create_topic(office.ensemble, "t", [2], [3])
    await office.led(3, t1)
    reassign(office, {T0: [3], t1: [2], TopicPartition("none", 0): [1]})

    def asked() -> set[TopicPartition]:
        node = office.ensemble.nodes.get(layout.REASSIGN_PARTITIONS)
        return set(layout.decode_reassignments(node.data)) if node else set()

    await until(lambda: asked() == {T0, t1})
    await office.idle()
    office.join(2, 3)
    await until(lambda: asked() == {t1})
    await office.idle()
    office.join(3, 2, tp=t1)
    await until(lambda: not office.there(layout.REASSIGN_PARTITIONS))


@pytest.mark.row("R60", "T8")
async def test_a_submission_right_after_the_deletion_of_the_admin_node_is_not_lost(
    office: Office,
) -> None:
    create_topic(office.ensemble, "t", [2])
    create_topic(office.ensemble, "u", [2])
    u0 = TopicPartition("u", 0)
    await office.led(2, u0)
    multi = office.coordination.multi

    async def then_submit(ops: Any, **session: Any) -> Any:
        stats = await multi(ops, **session)
        if any(isinstance(op, Delete) and op.path == layout.REASSIGN_PARTITIONS for op in ops):
            office.coordination.multi = multi  # type: ignore[method-assign]
            reassign(office, {u0: [3]})
        return stats

    reassign(office, {T0: [3]})
    await until(lambda: office.assignment()[0].adding == (3,))
    await office.idle()
    office.coordination.multi = then_submit  # type: ignore[method-assign]
    office.join(2, 3)
    await until(lambda: office.assignment("u")[0].adding == (3,))


@pytest.mark.row("E7", "A13", "A16", "J5", "L1", "R64", "G8")
async def test_a_marked_topic_goes_when_the_last_broker_has_answered_and_the_mark_last(
    office: Office,
) -> None:
    create_topic(office.ensemble, "t", [2, 3])
    office.ensemble.put(layout.topic_config_path("t"), layout.encode_config({}))
    await office.led(2)
    office.refuse = {3}
    office.coordination.multis.clear()
    office.ensemble.put(layout.delete_topic_path("t"))
    await until(lambda: any(p.delete for p in stops(office, 3)))
    await office.idle()
    assert office.there(layout.topic_path("t")), "broker 3 has not answered"
    assert office.there(layout.state_path(T0))
    office.refuse = set()
    office.ensemble.delete(layout.broker_path(3))
    await until(lambda: "3" not in office.shown()["brokers"])
    await office.idle()
    assert office.shown()["topics_ineligible_for_deletion"] == {"t": "offline replicas"}
    office.register(3)
    await until(lambda: not office.there(layout.delete_topic_path("t")))
    assert not office.there(layout.topic_path("t"))
    assert not office.there(layout.topic_config_path("t"))
    paths = [
        path for path, op in zookeeper_writes(office.coordination.multis) if isinstance(op, Delete)
    ]
    assert paths[-3:] == [
        layout.topic_path("t"),
        layout.topic_config_path("t"),
        layout.delete_topic_path("t"),
    ]


@pytest.mark.row("R65")
async def test_a_mark_of_an_unknown_topic_is_removed(office: Office) -> None:
    office.ensemble.put(layout.delete_topic_path("none"))
    await until(lambda: not office.there(layout.delete_topic_path("none")))
