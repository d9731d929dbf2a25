"""The command `cluster health`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.scripted_admin import ScriptedAdmin

from minikafka.base.errors import ErrorCode
from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.cli import health as module
from minikafka.cli.health import PAUSED, Observed, diagnose
from minikafka.client import ClusterInfo, Node, Outcome, PartitionInfo, TopicInfo
from minikafka.cluster.directory import BrokerRecord, ClusterDirectory, ClusterRecord
from minikafka.cluster.processes import ProcessId, identify

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
    found = diagnose(Observed(INFO, partitions, faults={1: PAUSED}), [1, 2, 3])
    assert found["reasons"] == [
        "broker 1 is paused (SIGSTOP)",
        "no controller answers",
        "clients cannot use t-0: no answer from the leader, broker 1",
        "t-0, t-1 have replicas that are not in sync",
    ]
    assert (found["controller"], found["brokers_away"]) == (None, [1])


def test_partition_whose_leader_refuses_clients_is_offline() -> None:
    refused = {T0: Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
    found = diagnose(Observed(INFO, topic(in_sync(1, 1, 2, 3)), leaders=refused), [1, 2, 3])
    assert found["reasons"] == [
        "clients cannot use t-0: NOT_LEADER_OR_FOLLOWER from the leader, broker 1"
    ]


def test_health_sentence_names_at_most_ten_partitions() -> None:
    partitions = topic(*(in_sync(1, 1, number=n) for n in range(12)))
    [reason] = diagnose(Observed(INFO, partitions), [])["reasons"]
    assert reason.endswith("t-8, t-9 and 2 more have replicas that are not in sync")


def test_cluster_without_controller_is_not_healthy() -> None:
    found = diagnose(Observed(INFO._replace(controller_id=-1)), [])
    assert found["reasons"] == ["no controller answers"]


def test_replica_being_added_does_not_make_a_partition_under_replicated() -> None:
    moving = {T0: ReplicaAssignment((1, 2)).reassigned_to((1, 3))}
    partitions = topic(PartitionInfo(0, 1, 1, (1, 3, 2), (1, 2), (), 0))
    assert diagnose(Observed(INFO, partitions, moving), [])["healthy"]
    assert not diagnose(Observed(INFO, partitions), [])["healthy"]


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    scripted = ScriptedAdmin({T0: (1, 2)}, brokers=2)
    monkeypatch.setattr("minikafka.client.Client", lambda servers: scripted)
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


def written(
    path: Path,
    *processes: ProcessId | None,
    zookeeper: ProcessId | None = THIS,
    managed: bool = True,
) -> None:
    brokers = tuple(BrokerRecord(id_, 9090 + id_, 1, p) for id_, p in enumerate(processes, 1))
    record = ClusterRecord(brokers, "127.0.0.1:1", zookeeper_process=zookeeper, managed=managed)
    ClusterDirectory(path).write(record)


def test_health_reports_a_broker_without_a_process_and_sends_it_no_request(
    admin: ScriptedAdmin, tmp_path: Path
) -> None:
    written(tmp_path, identify(os.getpid()), None)
    found = json.loads(call("--data", str(tmp_path), "--json").stdout)
    assert found["reasons"][0] == "broker 2 is down: it has no process"
    assert admin.probed == [1]


def test_health_sends_no_request_if_every_broker_is_paused(
    admin: ScriptedAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, identify(os.getpid()))
    monkeypatch.setattr("minikafka.cluster.processes.is_paused", lambda process: True)
    found = json.loads(call("--data", str(tmp_path), "--json").stdout)
    assert found["reasons"] == [
        "broker 1 is paused (SIGSTOP)",
        "ZooKeeper is paused (SIGSTOP); nothing can be elected, created or changed",
        "no controller answers",
    ]
    assert admin.probed == []


@pytest.mark.parametrize(("managed", "healthy"), [(True, False), (False, True)])
def test_cluster_is_unhealthy_only_if_a_managed_zookeeper_has_no_process(
    admin: ScriptedAdmin, tmp_path: Path, managed: bool, healthy: bool
) -> None:
    written(tmp_path, THIS, THIS, zookeeper=None, managed=managed)
    found = json.loads(call("--data", str(tmp_path), "--json").stdout)
    assert found["healthy"] is healthy
    down = "ZooKeeper is down: it has no process; nothing can be elected, created or changed"
    assert found["reasons"] == ([] if healthy else [down])
