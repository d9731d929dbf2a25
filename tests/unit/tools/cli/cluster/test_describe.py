"""The command `cluster`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.model import TopicPartition
from minikafka.tools.cli.cluster import cluster

T0 = TopicPartition("t", 0)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    scripted = ScriptedAdmin({T0: (1, 2)}, brokers=2)
    scripted.racks = {1: "a", 2: None}
    scripted.sizes = {(1, T0): 1500}
    monkeypatch.setattr("minikafka.client.Client", lambda servers, **_: scripted)
    return scripted


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cluster, [*arguments, "--bootstrap", "h:1"])


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
    assert "controller  1  epoch -" in text
    assert "1.5 kB" in text
