"""The command `cluster health`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.errors import ErrorCode
from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.client import ClusterInfo, Node, Outcome, PartitionInfo, TopicInfo
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.tools.cli.cluster import health as module
from minikafka.tools.cli.cluster.health import Observed, diagnose, unreachable_addresses
from minikafka.tools.cluster.directory import BrokerRecord, ClusterDirectory, ClusterRecord
from minikafka.tools.cluster.observation.causes import Cause
from minikafka.tools.cluster.observation.sights import (
    DOWN,
    PAUSED,
    RUNS,
    BrokerSight,
    ProcessSight,
    Sights,
    ZooKeeperSight,
)
from minikafka.tools.cluster.processes import identify

T0 = TopicPartition("t", 0)
THIS = identify(os.getpid())
INFO = ClusterInfo("id", 1, {i: Node(i, "h", i, None) for i in (1, 2, 3)})


def topic(*partitions: PartitionInfo) -> list[TopicInfo]:
    return [TopicInfo("t", bytes(16), {p.partition: p for p in partitions})]


def in_sync(leader: int, *isr: int, number: int = 0) -> PartitionInfo:
    return PartitionInfo(number, leader, 1, (1, 2, 3), isr, (), 0)


def test_cluster_is_healthy_although_a_leader_is_not_the_preferred_one() -> None:
    found = diagnose(Observed(INFO, topic(in_sync(2, 1, 2, 3))), [1, 2, 3])
    assert (found["healthy"], found["reasons"]) == (True, [])
    assert found["not_led_by_preferred"] == ["t-0"]


def test_diagnosis_names_partitions_of_users_and_counts_internal_ones() -> None:
    many = {number: in_sync(1, 1, number=number) for number in range(50)}
    topics = [TopicInfo("__consumer_offsets", bytes(16), many, True), *topic(in_sync(-1, 2))]
    found = diagnose(Observed(INFO, topics), [1, 2, 3])
    counted = "t-0 and 50 partitions of __consumer_offsets"
    assert found["reasons"] == [
        "clients cannot use t-0: no leader",
        f"{counted} have replicas that are not in sync",
    ]
    assert found["under_replicated_partitions"][:2] == ["t-0", "__consumer_offsets-0"]
    assert module._counted(found["under_replicated_partitions"]) == f"51 ({counted})"


def test_diagnosis_names_missing_brokers_leaders_and_replicas() -> None:
    partitions = topic(in_sync(-1, 2), in_sync(1, 1, number=1))
    found = diagnose(Observed(INFO, partitions), [1, 2, 3, 4])
    assert found["reasons"] == [
        "broker 4 is not registered",
        "clients cannot use t-0: no leader",
        "t-0, t-1 have replicas that are not in sync",
    ]
    assert found["offline_partitions"] == ["t-0"]
    assert found["under_replicated_partitions"] == ["t-0", "t-1"]
    assert found["brokers_away"] == [4]


def test_paused_broker_counts_as_no_leader_no_controller_and_not_in_sync() -> None:
    partitions = topic(in_sync(1, 1, 2, 3), in_sync(2, 1, 2, 3, number=1))
    paused = Cause("broker-paused", "broker 1 is paused", "`minikafka resume 1`", 1)
    seen = Observed(INFO, partitions, None, {1: ""}, causes=[paused])
    found = diagnose(seen, [1, 2, 3])
    assert found["reasons"] == [
        "broker 1 is paused; `minikafka resume 1`",
        "no controller answers",
        "clients cannot use t-0: no answer from the leader, broker 1",
        "t-0, t-1 have replicas that are not in sync",
    ]
    assert (found["controller"], found["brokers_away"]) == (None, [1])
    assert found["causes"] == [paused.as_json()]


def test_partition_whose_leader_refuses_clients_is_offline() -> None:
    refused = {T0: Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
    found = diagnose(Observed(INFO, topic(in_sync(1, 1, 2, 3)), leaders=refused), [1, 2, 3])
    assert found["reasons"] == [
        "clients cannot use t-0: NOT_LEADER_OR_FOLLOWER from the leader, broker 1: "
        "the broker that was asked does not lead the partition"
    ]


def test_health_sentence_names_at_most_ten_partitions() -> None:
    partitions = topic(*(in_sync(1, 1, number=n) for n in range(12)))
    [reason] = diagnose(Observed(INFO, partitions), [])["reasons"]
    assert reason.endswith("t-8, t-9 and 2 more have replicas that are not in sync")


def test_cluster_without_controller_is_not_healthy() -> None:
    found = diagnose(Observed(INFO._replace(controller_id=-1), moving=None), [])
    assert found["reasons"] == ["no controller answers"]
    assert (found["controller"], found["reassignments"]) == (None, None)


def test_replica_being_added_does_not_make_a_partition_under_replicated() -> None:
    moving = {T0: ReplicaAssignment((1, 2)).reassigned_to((1, 3))}
    partitions = topic(PartitionInfo(0, 1, 1, (1, 3, 2), (1, 2), (), 0))
    assert diagnose(Observed(INFO, partitions, moving), [])["healthy"]
    assert not diagnose(Observed(INFO, partitions), [])["healthy"]


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    scripted = ScriptedAdmin({T0: (1, 2)}, brokers=2)
    monkeypatch.setattr("minikafka.client.Client", lambda servers, **limits: scripted)
    return scripted


def call(*arguments: str) -> Result:
    return CliRunner().invoke(module.health, arguments)


def test_health_exits_with_code_1_if_the_cluster_is_not_healthy(admin: ScriptedAdmin) -> None:
    well = call("--bootstrap", "h:1")
    assert (well.exit_code, well.stdout.splitlines()[0]) == (0, "healthy")
    admin.silent = {2}
    ill = call("--bootstrap", "h:1")
    assert (ill.exit_code, ill.stdout.splitlines()[:2]) == (
        1,
        ["not healthy", "  - broker 2 does not answer clients: Connection refused"],
    )
    assert "  brokers away: 1 (2)" in ill.stdout.splitlines()
    assert not json.loads(call("--bootstrap", "h:1", "--json").stdout)["healthy"]


def test_health_over_the_network_names_a_dead_broker_of_the_replica_lists(
    admin: ScriptedAdmin,
) -> None:
    admin.replicas[T0] = (1, 2, 3)
    found = json.loads(call("--bootstrap", "h:1", "--json").stdout)
    assert found["brokers_away"] == [3]
    assert found["reasons"][0] == "broker 3 is not registered"
    assert found["under_replicated_partitions"] == ["t-0"]


def test_health_over_the_network_names_no_controller_in_the_mode_leaders(
    admin: ScriptedAdmin,
) -> None:
    admin.configs[Resource(ResourceType.BROKER, "1")] = {"minikafka.coordination": "leaders"}
    found = json.loads(call("--bootstrap", "h:1", "--json").stdout)
    assert (found["healthy"], found["coordination"], found["controller"]) == (True, "leaders", None)


def written(path: Path) -> None:
    brokers = tuple(BrokerRecord(id_, 9090 + id_, 1) for id_ in (1, 2))
    ClusterDirectory(path).write(ClusterRecord(brokers, "127.0.0.1:1", zookeeper_process=THIS))


ANSWER = {
    "session_state": "connected",
    "is_controller": True,
    "controller_id": 1,
    "controller_epoch": 1,
    "live_brokers": [1, 2],
    "offline_directories": {},
    "clock_offsets_ms": {"2": 120_000},
}


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The states of the processes that the examination finds. Tests may change them."""
    states = {"zookeeper": RUNS, "1": RUNS, "2": RUNS}

    async def look(*_: object) -> Sights:
        runs = {id_: states[str(id_)] == RUNS for id_ in (1, 2)}
        is_controller = states["zookeeper"] == RUNS
        answers = {1: {**ANSWER, "is_controller": is_controller}}
        answers[2] = {**ANSWER, "is_controller": False}
        brokers = {
            id_: BrokerSight(
                id_, 1, 2, ProcessSight(states[str(id_)], 5), (runs[id_] and answers[id_]) or None
            )
            for id_ in (1, 2)
        }
        return Sights(ZooKeeperSight("z", ProcessSight(states["zookeeper"], 6)), brokers)

    monkeypatch.setattr("minikafka.tools.cluster.observation.sights.look", look)
    return states


def test_health_reports_a_broker_without_a_process_and_sends_it_no_request(
    admin: ScriptedAdmin, tmp_path: Path, states: dict[str, str]
) -> None:
    written(tmp_path)
    states["2"] = DOWN
    found = json.loads(call("--data", str(tmp_path), "--json").stdout)
    assert found["reasons"][0] == (
        f"broker 2 is down: it has no process; `minikafka start 2 --data {tmp_path}` starts it again"
    )
    assert (admin.probed, found["brokers_away"]) == ([1], [2])


def test_health_claims_nothing_about_partitions_if_every_broker_is_paused(
    admin: ScriptedAdmin, tmp_path: Path, states: dict[str, str]
) -> None:
    written(tmp_path)
    states.update({"1": PAUSED, "2": PAUSED})
    shown = call("--data", str(tmp_path))
    assert shown.exit_code == 1
    assert "  offline partitions: not known" in shown.stdout.splitlines()
    found = json.loads(call("--data", str(tmp_path), "--json").stdout)
    assert [cause["name"] for cause in found["causes"]] == ["broker-paused"] * 2
    assert found["reasons"][2:] == [
        "no broker answers, so the state of the partitions is not known"
    ]
    unknown = ("offline_partitions", "under_replicated_partitions", "reassignments", "controller")
    assert [found[name] for name in unknown] == [None] * 4
    assert admin.probed == []


def test_health_asks_no_controller_if_zookeeper_is_down(
    admin: ScriptedAdmin, tmp_path: Path, states: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    states["zookeeper"] = DOWN
    monkeypatch.delattr(ScriptedAdmin, "list_reassignments")
    found = json.loads(call("--data", str(tmp_path), "--json").stdout)
    assert found["reasons"][0].startswith("ZooKeeper is down: it has no process")
    assert found["reasons"][1:] == ["no controller answers"]
    assert (found["controller"], found["offline_partitions"]) == (None, [])


def test_health_has_a_note_about_a_wrong_clock_of_a_healthy_cluster(
    admin: ScriptedAdmin, tmp_path: Path, states: dict[str, str]
) -> None:
    written(tmp_path)
    found = json.loads(call("--data", str(tmp_path), "--json").stdout)
    note = "the clock of broker 2 is 120.0 s ahead of the clocks of the others; set it"
    assert (found["healthy"], found["notes"]) == (True, [note])
    assert f"  note: {note}" in call("--data", str(tmp_path)).stdout.splitlines()


def test_cluster_with_a_clock_that_is_hours_off_is_not_healthy(
    admin: ScriptedAdmin,
    tmp_path: Path,
    states: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written(tmp_path)
    monkeypatch.setitem(ANSWER, "clock_offsets_ms", {"2": 7_200_000})
    found = json.loads(call("--data", str(tmp_path), "--json").stdout)
    assert (found["healthy"], found["notes"]) == (False, [])
    [reason] = found["reasons"]
    assert reason.startswith("the clock of broker 2 is 7200.0 s ahead of the clocks of the others")


@pytest.mark.parametrize(
    ("blind", "expected"),
    [
        ({1: "2", 3: "2"}, ["no other broker reaches SSL://h:1 of broker 2 (timed out): "]),
        ({1: "2"}, ["broker 1 cannot reach SSL://h:1 of broker 2 (timed out): "]),
        ({1: "4", 2: "4", 3: "4"}, []),
    ],
)
def test_address_that_brokers_cannot_reach_is_named(
    blind: dict[int, str], expected: list[str]
) -> None:
    rows = {
        id_: [{"broker": int(of), "address": "SSL://h:1", "reason": "timed out"}]
        for id_, of in blind.items()
    }
    answers = {id_: {"unreachable": rows.get(id_, [])} for id_ in (1, 2, 3)}
    remedy = "correct advertised.listeners of broker 2, or the network"
    assert unreachable_addresses(answers, {4}) == [text + remedy for text in expected]


def test_health_of_the_mode_leaders_needs_no_controller(capsys: pytest.CaptureFixture[str]) -> None:
    seen = Observed(INFO, topic(in_sync(2, 1, 2, 3)), coordination="leaders")
    found = diagnose(seen, [1, 2, 3])
    assert (found["healthy"], found["controller"], found["reassignments"]) == (True, None, 0)
    silent = diagnose(seen._replace(moving=None), [1, 2, 3])
    assert silent["reasons"] == ["no broker lists the reassignments"]
    module._print(found)
    printed = capsys.readouterr().out
    assert "coordination: leaders (the cluster has no controller)" in printed
    assert "controller: " not in printed
