"""The command `topics`: its requests, output and exit codes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from support.scripted_admin import ScriptedAdmin

from minikafka.base.model import TopicPartition
from minikafka.cli import topics as module

T0 = TopicPartition("t", 0)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    scripted = ScriptedAdmin({T0: (1, 2)})
    monkeypatch.setattr("minikafka.client.Client", lambda servers: scripted)
    return scripted


def call(*arguments: str) -> Result:
    return CliRunner().invoke(module.topics, [*arguments, "--bootstrap", "h:1"])


def test_create_accepts_settings_and_a_replica_assignment(admin: ScriptedAdmin) -> None:
    done = call("create", "n", "--replica-assignment", "1:2,2:1", "--config", "retention.ms=5")
    assert (done.exit_code, done.stdout) == (0, "Created topic n.\n")
    topic = admin.created[0]
    assert (topic.assignment, topic.configs) == ({0: (1, 2), 1: (2, 1)}, {"retention.ms": "5"})
    both = call("create", "n", "--replica-assignment", "1:2", "--partitions", "1")
    assert both.exit_code == 2
    assert json.loads(call("create", "n", "--json").stdout) == [
        {"topic": "n", "error": None, "message": None}
    ]


def test_list_prints_names_as_lines_or_json(admin: ScriptedAdmin) -> None:
    assert call("list").stdout == "t\n"
    assert json.loads(call("list", "--json").stdout) == ["t"]


def test_describe_shows_all_or_only_filtered_partitions(admin: ScriptedAdmin) -> None:
    assert call("describe").stdout.startswith("Topic: t\t")
    assert json.loads(call("describe", "t", "--json").stdout)[0]["topic"] == "t"
    assert call("describe", "--under-replicated", "--unavailable").stdout == ""
    assert json.loads(call("describe", "--unavailable", "--json").stdout) == []


@pytest.mark.row("M4")
def test_alter_adds_partitions(admin: ScriptedAdmin) -> None:
    done = call("alter", "t", "--partitions", "3", "--replica-assignment", "3:4,4:5")
    assert (done.exit_code, done.stdout) == (0, "Topic t has 3 partitions.\n")
    assert admin.replicas[TopicPartition("t", 2)] == (4, 5)


def test_delete_prints_each_topic_and_waits_until_it_is_deleted(admin: ScriptedAdmin) -> None:
    admin.deleting = {"t": 2}
    admin.sizes = {(1, T0): 10, (2, T0): 10}
    done = call("delete", "t", "none", "--wait")
    assert done.exit_code == 1
    assert done.stdout == "Topic t is deleted.\n"
    assert "0 of 1 topics deleted: t 0 %" in done.stderr
    assert "UNKNOWN_TOPIC_OR_PARTITION: none: no such topic" in done.stderr
    assert call("delete", "t").stdout == "Topic t is marked for deletion.\n"


def test_delete_reports_a_timeout_of_the_waiting(admin: ScriptedAdmin) -> None:
    admin.deleting = {"t": 1000}
    done = call("delete", "t", "--wait", "--timeout", "0.3", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)[0]["error"] == "REQUEST_TIMED_OUT"
    assert call("delete", "t", "--timeout", "1").exit_code == 2
