"""The command `cluster`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from support.scripted_admin import ScriptedAdmin

from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.cli import cluster as module
from minikafka.client import ClusterInfo, Node, PartitionInfo, TopicInfo

T0 = TopicPartition("t", 0)
INFO = ClusterInfo("id", 1, {i: Node(i, "h", i, None) for i in (1, 2, 3)})


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    scripted = ScriptedAdmin({T0: (1, 2)}, brokers=2)
    scripted.racks = {1: "a", 2: None}
    scripted.sizes = {(1, T0): 1500}
    monkeypatch.setattr("minikafka.client.Client", lambda servers: scripted)
    return scripted


def call(*arguments: str) -> Result:
    return CliRunner().invoke(module.cluster, [*arguments, "--bootstrap", "h:1"])


def test_describe_shows_racks_and_log_directories(admin: ScriptedAdmin) -> None:
    admin.paused = {2}
    shown = json.loads(call("describe", "--json").stdout)
    assert (shown["cluster_id"], shown["controller"], shown["controller_epoch"]) == (
        "scripted",
        1,
        None,
    )
    assert [(b["id"], b["rack"], b["controller"]) for b in shown["brokers"]] == [
        (1, "a", True),
        (2, None, False),
    ]
    assert shown["brokers"][0]["log_dirs"] == [
        {
            "path": "/data",
            "error": None,
            "partitions": 1,
            "size": 1500,
            "total_bytes": 100,
            "usable_bytes": 50,
        }
    ]
    assert shown["brokers"][1]["log_dirs"] == []
    text = call("describe").stdout
    assert "controller  1  epoch –" in text
    assert "1.5 kB" in text


def topic(*partitions: PartitionInfo) -> list[TopicInfo]:
    return [TopicInfo("t", bytes(16), {p.partition: p for p in partitions})]


def test_cluster_is_healthy_if_only_preferred_leaders_do_not_lead() -> None:
    found = module.diagnose(INFO, topic(PartitionInfo(0, 2, 1, (1, 2), (1, 2), (), 0)), {}, [1, 2])
    assert found["healthy"]
    assert found["not_led_by_preferred"] == ["t-0"]


def test_diagnosis_names_missing_brokers_leaders_and_replicas() -> None:
    partitions = topic(
        PartitionInfo(0, -1, 1, (1, 2), (2,), (), 5), PartitionInfo(1, 1, 1, (1, 2), (1,), (), 0)
    )
    found = module.diagnose(INFO, partitions, {}, [1, 2, 3, 4])
    assert not found["healthy"]
    assert found["offline_partitions"] == ["t-0"]
    assert found["under_replicated_partitions"] == ["t-0", "t-1"]
    assert found["brokers_away"] == [4]
    assert not module.diagnose(INFO._replace(controller_id=-1), [], {}, [])["healthy"]


def test_replica_being_added_does_not_make_a_partition_under_replicated() -> None:
    moving = {T0: ReplicaAssignment((1, 2)).reassigned_to((1, 3))}
    partitions = topic(PartitionInfo(0, 1, 1, (1, 3, 2), (1, 2), (), 0))
    assert module.diagnose(INFO, partitions, moving, [])["healthy"]
    assert not module.diagnose(INFO, partitions, {}, [])["healthy"]


def test_health_exits_with_code_1_if_the_cluster_is_not_healthy(admin: ScriptedAdmin) -> None:
    well = call("health")
    assert (well.exit_code, well.stdout.splitlines()[0]) == (0, "healthy")
    admin.controller = -1
    ill = call("health", "--json")
    assert (ill.exit_code, json.loads(ill.stdout)["healthy"]) == (1, False)
