"""Ledger lines of events, decisions, writes and answers."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from support.brokers.endpoints import endpoints
from support.deciders.controller_world import World, image

from minikafka.base.errors import (
    BadVersion,
    CoordinationError,
    ErrorCode,
    MultiFailed,
    NodeExists,
    NoNode,
    NotConnected,
    OutcomeUnknown,
    ServerError,
)
from minikafka.base.model import (
    Broker,
    ControllerResponse,
    LeaderAndIsr,
    PartitionResult,
    ReplicaAssignment,
    TopicPartition,
)
from minikafka.base.ports import Check, Create, Delete, Set, Stat
from minikafka.broker.ledger.record import DATA_MAX, PARTITIONS_MAX
from minikafka.broker.modes.controller.terms.lines import (
    answer_lines,
    decision_lines,
    event_lines,
    step_lines,
    write_line,
)
from minikafka.deciders.controller import events
from minikafka.deciders.controller.commands import AnnounceStep, ShutdownResponse
from minikafka.deciders.decider import Answer, Outcome
from minikafka.zookeeper.nodes import layout

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CHECK = Check("/controller_epoch", 4)
BROKER = Broker(1, endpoints("h", 1, "h", 2), epoch=77)
MANY = [TopicPartition("t", i) for i in range(PARTITIONS_MAX + 1)]

EVENTS: list[Any] = [
    events.ControllerElected({1: BROKER}, {"t": image([1], [1])}, {}, frozenset({"u"}), {T0: (2,)}),
    events.BrokersChanged({1: BROKER}),
    events.BrokerSuspected(1, 77, "connection to h:1 refused"),
    events.SuspicionEnded(1, 77),
    events.TopicsChanged({"t": image([1])}, ("u",)),
    events.AssignmentChanged("t", image([1]).assignment),
    events.DeletionsChanged(frozenset({"t"})),
    events.IsrChanged(("n",), {T0: LeaderAndIsr(1, 2, (1,), 3, 4)}),
    events.LogDirsFailed(("n",), (2,)),
    events.LeaderAndIsrAnswered(1, 77, ControllerResponse(0, ((T0, 0), (T1, 56)))),
    events.StopReplicaAnswered(1, 77, {T0: 0}),
    events.ControlledShutdownRequested(3, 1, 77),
    events.ReassignmentsSubmitted({T0: (1, 2)}),
    events.ReassignmentsRequested(3, {T0: None}),
    events.PreferredElectionSubmitted((T0,)),
    events.ElectionRequested(3, False, None),
    events.RebalanceDue(),
    events.UncleanElectionEnabled(None),
]


def test_every_controller_event_has_one_json_ledger_line_with_the_event_name() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(events.Event)) - {Outcome}
    for event in EVENTS:
        (line,) = event_lines(event)
        assert json.loads(json.dumps(line))["event"] == type(event).__name__


def test_isr_event_line_groups_partitions_with_the_same_state() -> None:
    state = LeaderAndIsr(1, 2, (1,), 3, 4)
    (line,) = event_lines(events.IsrChanged(("n",), {T0: state, T1: state}))
    assert [entry["partitions"] for entry in line["states"]] == [{"t": [0, 1]}]


def test_long_event_has_several_ledger_lines() -> None:
    state = LeaderAndIsr(1, 2, (1,), 3, 4)
    first, second = event_lines(events.IsrChanged((), dict.fromkeys(MANY, state)))
    assert [line["part"] for line in (first, second)] == [1, 2]
    assert second["states"][0]["partitions"] == {"t": [PARTITIONS_MAX]}


def test_ledger_line_of_a_deletion_step_contains_the_partitions() -> None:
    (line,) = step_lines(AnnounceStep("deletion", "queued", (T0, T1)))
    assert line == {"operation": "deletion", "step": "queued", "partitions": {"t": [0, 1]}}


def stat(version: int, zxid: int = 99) -> Stat:
    return Stat(1, zxid, 0, 0, version, 0, 0, 0, 0, 0, 0)


def test_ledger_line_of_a_write_contains_expected_and_actual_versions_and_zxid() -> None:
    operations = [Set("/a", b"{}", 3), Create("/b", b"x"), Delete("/c", -1), Create("/d", b"")]
    line = write_line(CHECK, operations, stats=[stat(4), stat(0), None, stat(0)])
    assert line == {
        "check": {"path": "/controller_epoch", "version": 4},
        "outcome": "ok",
        "zxid": 99,
        "operations": [
            {"op": "set", "path": "/a", "expected": 3, "actual": 4, "data": "{}"},
            {"op": "create", "path": "/b", "expected": None, "actual": 0, "data": "x"},
            {"op": "delete", "path": "/c", "expected": -1, "actual": None, "data": None},
            {"op": "create", "path": "/d", "expected": None, "actual": 0, "data": None},
        ],
    }


def test_ledger_line_of_a_write_contains_the_whole_node_of_500_partitions() -> None:
    moving = ReplicaAssignment((1001, 1002, 1003), (1001,), (1003,))
    data = layout.encode_topic(bytes(range(16)), dict.fromkeys(range(500), moving))
    (operation,) = write_line(CHECK, [Set("/brokers/topics/t", data, 3)], stats=[stat(4)])[
        "operations"
    ]
    assert operation["data"] == data.decode()


def test_ledger_line_of_a_write_omits_long_data() -> None:
    line = write_line(CHECK, [Set("/a", b"x" * (DATA_MAX + 1), 3)], stats=[stat(4)])
    assert line["operations"][0]["data"] is None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (OutcomeUnknown(), "unknown"),
        (NotConnected(), "failed"),
        (MultiFailed(0, BadVersion()), "fenced"),
        (MultiFailed(1, BadVersion()), "conflict"),
        (MultiFailed(1, NoNode()), "conflict"),
        (MultiFailed(1, NodeExists()), "conflict"),
        (MultiFailed(1, ServerError(-1)), "failed"),
    ],
)
def test_ledger_line_of_a_failed_multi_contains_the_outcome(
    error: CoordinationError, outcome: str
) -> None:
    line = write_line(CHECK, [Set("/a", b"", 3)], error=error)
    assert (line["outcome"], line["zxid"]) == (outcome, None)
    assert line["error"]
    assert line["operations"][0]["actual"] is None
    if isinstance(error, MultiFailed) and error.index:
        assert line["failed"] == 0


def test_ledger_line_of_an_admin_answer_groups_partitions_with_the_same_result() -> None:
    refused = PartitionResult(ErrorCode.INVALID_REQUEST, "no")
    (line,) = answer_lines(Answer(7, {T0: PartitionResult(), T1: refused}))
    assert line == {
        "ticket": 7,
        "results": [
            {"code": "NONE", "message": "", "partitions": {"t": [0]}},
            {"code": "INVALID_REQUEST", "message": "no", "partitions": {"t": [1]}},
        ],
    }


def test_ledger_line_of_a_controlled_shutdown_names_the_remaining_partitions() -> None:
    (line,) = answer_lines(Answer(7, ShutdownResponse(ErrorCode.NONE, (T0,))))
    assert line["results"] == [{"code": "NONE", "message": "", "partitions": {"t": [0]}}]


# Decisions of a real machine.


def decided(world: World) -> list[dict[str, Any]]:
    return list(decision_lines(world.machine.drain_decisions()))


def test_decisions_about_partitions_created_together_share_a_ledger_line() -> None:
    world = World(brokers=2)
    decided(world)
    world.create("t", [0, 1], [0, 1])
    lines = decided(world)
    partitions = {"t": [0, 1]}
    assert {
        "verdict": "choose",
        "machine": "partition",
        "leader": 0,
        "leader_epoch": 0,
        "isr": (0, 1),
        "partitions": partitions,
    } in lines
    assert {
        "verdict": "move",
        "machine": "partition",
        "from": "NewPartition",
        "to": "OnlinePartition",
        "election": "OfflinePartitionLeaderElection",
        "leader": 0,
        "leader_epoch": 0,
        "isr": (0, 1),
        "partitions": partitions,
    } in lines
    assert sum(line["machine"] == "replica" for line in lines) == 4
    assert decided(world) == []


def test_ledger_line_of_a_failed_election_contains_the_reason() -> None:
    world = World(brokers=2)
    world.create("t", [0])
    decided(world)
    del world.brokers[0]
    world.handle(events.BrokersChanged(dict(world.brokers)))
    (refused,) = [line for line in decided(world) if line["verdict"] == "refuse"]
    assert refused["reason"].startswith("has no live replica in its ISR")
    assert (refused["from"], refused["to"]) == ("OfflinePartition", "OnlinePartition")


def test_ledger_has_the_shrunk_isr_before_the_new_replica_state() -> None:
    world = World(brokers=2)
    world.create("t", [0, 1])
    decided(world)
    del world.brokers[1]
    world.handle(events.BrokersChanged(dict(world.brokers)))
    verdicts = [
        (line["verdict"], line.get("isr"))
        for line in decided(world)
        if line["machine"] == "replica"
    ]
    assert verdicts == [("choose", (0,)), ("move", None)]


def test_ledger_line_of_an_illegal_state_transition_names_the_replica() -> None:
    world = World(brokers=1)
    decided(world)
    world.machine._state_changes.record_illegal_move(
        T0,
        "replica 0 of partition t-0",
        events_state("NewReplica"),
        events_state("OnlineReplica"),
        0,
    )
    (line,) = decided(world)
    assert (line["verdict"], line["machine"], line["replica"]) == ("illegal", "replica", 0)


def events_state(name: str) -> Any:
    from minikafka.deciders.controller.states import ReplicaStatus

    return ReplicaStatus(name)
