"""One term of a controller from election to end: its reads, its watches, their order, and its final cleanup."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from support.brokers.controller_bench import (
    T0,
    Candidate,
    ControllerBench,
    TracedZooKeeper,
    create_topic,
    encode_preferred_election,
    new_ensemble,
    partitions_of,
    reassign,
    stops,
    until,
)

from minikafka.base.errors import ErrorCode, MultiFailed, NoNode
from minikafka.base.model import (
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.ports import WatchKind
from minikafka.zookeeper.nodes import layout


@pytest.mark.row("D2", "D3", "D5", "D6", "D16", "D17", "T8", "T9", "R18")
async def test_new_controller_watches_and_reads_nodes_and_sends_requests_in_kafkas_order() -> None:
    bench = ControllerBench()
    ensemble = bench.ensemble
    create_topic(ensemble, "t", [9, 2])
    ensemble.put(layout.state_path(T0), layout.encode_state(LeaderAndIsr(9, 4, (9, 2), 0, 0)))
    create_topic(ensemble, "gone", [3])
    ensemble.put(layout.delete_topic_path("gone"))
    create_topic(ensemble, "r", [2])
    bench.ensemble.put(layout.CONTROLLER_EPOCH, b"6")
    reassign(bench, {TopicPartition("r", 0): [3]})
    preferred = encode_preferred_election([T0])
    ensemble.put(layout.PREFERRED_ELECTION, preferred)
    stale = layout.ISR_CHANGE_PREFIX + "0000000003"
    ensemble.put(stale, layout.encode_isr_change([T0]))
    await bench.elected()
    order = [
        ("watch", layout.CONTROLLER),
        ("write", layout.CONTROLLER),
        ("write", layout.CONTROLLER_EPOCH),
        ("watch", layout.REASSIGN_PARTITIONS),
        ("watch", layout.ISR_CHANGES),
        ("write", stale),
        ("watch", layout.PREFERRED_ELECTION),
        ("watch", layout.TOPICS),
        ("watch", layout.DELETE_TOPICS),
        ("watch", layout.BROKER_IDS),
        ("read", layout.broker_path(2)),
        ("read", layout.topic_path("t")),
        ("read", layout.state_path(T0)),
        ("send", "UpdateMetadata 1"),
        ("send", "LeaderAndIsr 2"),
        ("write", layout.state_path(T0)),
        ("step", "reassignment.U1"),
        ("step", "deletion.partitions-gone"),
        ("write", layout.PREFERRED_ELECTION),
    ]
    places = [bench.first(*event) for event in order]
    assert places == sorted(places), [bench.trace[i] for i in sorted(places)]
    moved = [about for what, about in bench.trace if what == "move"]
    assert moved.index("replica to OnlineReplica") < moved.index("partition to OnlinePartition")
    assert bench.service.epoch == 7
    assert await bench.led(2)
    informed = {to for to, r in bench.channels.sent if isinstance(r, UpdateMetadataRequest)}
    assert informed == {1, 2, 3}
    await bench.close()


@pytest.mark.row("D2")
@pytest.mark.parametrize("is_first", [True, False])
async def test_candidate_watches_the_controller_node_before_it_tries_to_create_it(
    is_first: bool,
) -> None:
    ensemble = new_ensemble()
    if not is_first:
        ensemble.put(layout.CONTROLLER, layout.encode_controller(7, 0))
    session = TracedZooKeeper(ensemble)
    candidate = Candidate(ensemble, 1, session)
    events = session.events

    def traced() -> Any:
        session.trace.append(("follow", "session"))
        return events()

    session.events = traced  # type: ignore[method-assign]
    await candidate.start()
    await until(lambda: candidate.service.is_active is is_first and session.trace)
    await until(lambda: ("watch", layout.CONTROLLER) in session.trace)
    order = [event for event in session.trace if event[1] in ("session", layout.CONTROLLER)]
    assert order[:2] == [("follow", "session"), ("watch", layout.CONTROLLER)]
    assert (("write", layout.CONTROLLER) in order) is is_first
    await candidate.close()


@pytest.mark.row("F10")
async def test_controller_reports_partition_states_only_during_its_term() -> None:
    bench = ControllerBench()
    create_topic(bench.ensemble, "t", [2, 3])
    standby = await Candidate(bench.ensemble, 4).start()
    await until(lambda: standby.service.is_active)
    await until(lambda: len(partitions_of(standby.service)) == 1)
    await bench.start()
    assert bench.shown()["partitions"] == [], "not the controller"
    (row,) = partitions_of(standby.service)
    assert (row["state"], set(row["replica_states"].values())) == (
        "OnlinePartition",
        {"OnlineReplica"},
    )
    await standby.service.resign()
    assert partitions_of(standby.service) == []
    await until(lambda: bench.service.is_active and bench.shown()["partitions"])
    assert bench.shown()["partitions"][0]["replica_states"] == row["replica_states"]
    moved = [about for what, about in bench.trace if what == "move"]
    assert moved == ["replica to OnlineReplica"] * 2, "a second start changes no state"
    await standby.close()
    await bench.close()


@pytest.mark.row("T8")
async def test_new_controller_watches_each_zookeeper_node_before_it_reads_it() -> None:
    bench = ControllerBench()
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.elected()
    for path in (layout.TOPICS, layout.BROKER_IDS, layout.DELETE_TOPICS, layout.ISR_CHANGES):
        assert bench.first("watch", path) < bench.first("list", path)
    for path in (layout.topic_path("t"), layout.broker_path(2)):
        assert bench.first("watch", path) < bench.first("read", path)
    await bench.close()


@pytest.mark.row("T8", "E2")
async def test_zookeeper_change_while_a_new_controller_loads_is_not_missed() -> None:
    bench = ControllerBench()
    create_topic(bench.ensemble, "t", [2, 3])
    read = bench.zookeeper.get_many

    async def meanwhile(paths: Any) -> Any:
        bench.zookeeper.get_many = read  # type: ignore[method-assign]
        create_topic(bench.ensemble, "u", [3])
        bench.ensemble.delete(layout.broker_path(2))
        return await read(paths)

    bench.zookeeper.get_many = meanwhile  # type: ignore[method-assign]
    await bench.elected()
    assert await bench.led(3)
    assert await bench.led(3, TopicPartition("u", 0))
    await bench.close()


@pytest.mark.row("D6", "B5", "B6")
async def test_context_of_the_controller_matches_zookeeper() -> None:
    bench = ControllerBench()
    create_topic(bench.ensemble, "t", [2, 3], [3, 1])
    create_topic(bench.ensemble, "gone", [9])
    bench.ensemble.put(layout.delete_topic_path("gone"))
    await bench.elected()
    reassign(bench, {T0: [1, 3]})
    await until(lambda: bench.shown()["reassignments"])
    await bench.idle()
    shown = bench.shown()
    assert set(shown["brokers"]) == {"1", "2", "3"}
    assert shown["shutting_down"] == []
    assert shown["topics_marked_for_deletion"] == ["gone"]
    assert "gone" in shown["topics_ineligible_for_deletion"]
    assert shown["reassignments"][0]["adding_replicas"] == [1]
    for row in shown["partitions"]:
        state = bench.state(TopicPartition(row["topic"], row["partition"]))
        assert state is not None
        assert (row["leader"], tuple(row["isr"])) == (state.leader, state.isr)
        assert (row["leader_epoch"], row["zk_version"]) == (state.leader_epoch, state.state_version)
        assert row["controller_epoch"] == state.controller_epoch
    assert len(shown["partitions"]) == 2
    await bench.close()


@pytest.mark.row("R11")
async def test_controller_bounds_its_concurrent_reads_and_writes() -> None:
    bench = ControllerBench()
    for number in range(600):
        create_topic(bench.ensemble, f"t{number}", [2, 3])
    reads = Gauge(bench.zookeeper, "get")
    multis = Gauge(bench.zookeeper, "multi")
    await bench.elected()
    await bench.led(2, TopicPartition("t599", 0))
    assert 100 < reads.most <= 256
    assert 1 < multis.most <= 4
    largest = max(len(ops) for ops in bench.zookeeper.multis)
    assert largest <= 201
    await bench.close()


class Gauge:
    """A counter of concurrent calls of one method. `most`: the largest number of concurrent calls so far."""

    def __init__(self, zookeeper: TracedZooKeeper, name: str) -> None:
        self.most = self.now = 0
        self._call = getattr(zookeeper, name)
        setattr(zookeeper, name, self._counted)

    async def _counted(self, *args: Any, **kwargs: Any) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self._call(*args, **kwargs)
        finally:
            self.now -= 1


@pytest.mark.row("D4", "R12")
async def test_failed_controller_election_is_retried() -> None:
    bench = ControllerBench()
    multi = bench.zookeeper.multi

    async def refused(ops: Any, **session: Any) -> Any:
        bench.zookeeper.multi = multi  # type: ignore[method-assign]
        raise MultiFailed(0, NoNode("/"))

    bench.zookeeper.multi = refused  # type: ignore[method-assign]
    await bench.start()
    await until(lambda: bench.zookeeper.multi == multi)
    assert not bench.service.is_active
    assert not bench.there(layout.CONTROLLER)
    await until(lambda: bench.service.is_active)
    assert bench.service.epoch == 1
    await bench.close()


@pytest.mark.row("L6", "D18")
async def test_next_controller_resumes_operations_of_the_previous_controller(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2])
    create_topic(bench.ensemble, "gone", [3])
    await bench.led(2)
    bench.refuse = {3}
    bench.ensemble.put(layout.delete_topic_path("gone"))
    reassign(bench, {T0: [3]})
    await until(lambda: bench.assignment()[0].adding == (3,) and any(stops(bench, 3)))
    await bench.idle()
    await bench.die()
    bench.join(2, 3)
    successor = Candidate(bench.ensemble, 4)
    successor.channels.answer = bench._answer
    bench.refuse = set()
    await successor.start()
    await until(lambda: not bench.there(layout.topic_path("gone")))
    await until(lambda: not bench.there(layout.REASSIGN_PARTITIONS))
    assert bench.assignment()[0] == ReplicaAssignment((3,))
    assert successor.service.epoch == 2
    await successor.close()


@pytest.mark.row("D6", "F10")
async def test_controller_logs_its_start_and_its_end_in_kafkas_words(
    bench: ControllerBench, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    successor = Candidate(bench.ensemble, 4)
    with caplog.at_level(logging.INFO, "minikafka.deciders.controller"):
        bench.ensemble.delete(layout.CONTROLLER)
        await bench.service.resign()
        await successor.start()
        await until(lambda: successor.service.is_active)
        await until(lambda: "Started partition state machine" in caplog.text)
    lines = [record.getMessage() for record in caplog.records]
    expected = [
        "Stopped partition state machine",
        "Stopped replica state machine",
        "Currently active brokers in the cluster: [1, 2, 3, 4]",
        "Currently shutting brokers in the cluster: []",
        "Current list of topics in the cluster: [t]",
        "Initializing replica state",
        "Triggering online replica state changes",
        "Started replica state machine with initial state -> [t-0 on 2 -> OnlineReplica, t-0 on 3 -> OnlineReplica]",
        "Initializing partition state",
        "Triggering online partition state changes",
        "Started partition state machine with initial state -> [t-0 -> OnlinePartition]",
    ]
    assert [line for line in lines if line in expected] == expected
    await successor.close()
    caplog.clear()
    await bench.service.resign()
    assert "Stopped" not in caplog.text, "only a controller has something to stop"


@pytest.mark.row("D10", "D8", "F10", "E10")
async def test_controller_that_resigns_drops_its_watches_in_kafkas_order(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    reassign(bench, {T0: [1, 3]})
    await until(lambda: (WatchKind.DATA, layout.state_path(T0)) in bench.zookeeper.watched())
    bench.trace.clear()
    bench.ensemble.put(layout.CONTROLLER, layout.encode_controller(7, 0))
    await until(lambda: ("unwatch", layout.BROKER_IDS) in bench.trace)
    order = [
        layout.ISR_CHANGES,
        layout.REASSIGN_PARTITIONS,
        layout.PREFERRED_ELECTION,
        layout.state_path(T0),
        layout.TOPICS,
        layout.topic_path("t"),
        layout.DELETE_TOPICS,
        layout.BROKER_IDS,
    ]
    places = [bench.first("unwatch", path) for path in order]
    assert places == sorted(places)
    await until(lambda: bench.zookeeper.watched() == {(WatchKind.EXISTS, layout.CONTROLLER)})
    assert bench.channels.open == {}
    shown = bench.shown()
    assert not shown["is_active"]
    assert shown["partitions"] == []
    assert "state" not in shown


@pytest.mark.row("R13")
async def test_waiting_reassignment_request_fails_when_the_controller_resigns(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    bench.gate.hold("reassignment.U2")
    waiting = asyncio.gather(
        bench.service.alter_reassignments({T0: (1, 3)}), return_exceptions=True
    )
    await until(lambda: bench.gate.waiting)
    await bench.zookeeper.expire()
    (error,) = await waiting
    assert getattr(error, "code", None) is ErrorCode.NOT_CONTROLLER
    bench.gate.release("reassignment.U2")
    await until(lambda: bench.channels.open == {})


@pytest.mark.row("D4", "R12")
async def test_controller_node_is_deleted_and_created_again_when_event_handling_raises(
    bench: ControllerBench,
) -> None:
    session = bench.ensemble.nodes[layout.CONTROLLER].czxid
    term = bench.service._term
    assert term is not None

    def broken(*_: Any) -> Any:
        raise RuntimeError("illegal state")

    term.machine.handle = broken  # type: ignore[method-assign]
    create_topic(bench.ensemble, "t", [2])
    await until(lambda: bench.service.epoch == 2 and bench.service.is_active)
    assert bench.ensemble.nodes[layout.CONTROLLER].czxid > session, "deleted, then created again"
    await bench.led(2)
