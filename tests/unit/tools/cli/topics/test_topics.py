"""The command `topics`: its requests, output and exit codes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from click.testing import CliRunner, Result
from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic, Outcome
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.tools.cli.topics import topics

T0 = TopicPartition("t", 0)
T = Resource(ResourceType.TOPIC, "t")


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    scripted = ScriptedAdmin({T0: (1, 2)})
    monkeypatch.setattr("minikafka.client.Client", lambda servers, **_: scripted)
    return scripted


def call(*arguments: str) -> Result:
    return CliRunner().invoke(topics, [*arguments, "--bootstrap", "h:1"])


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


def test_create_and_alter_accept_short_options(admin: ScriptedAdmin) -> None:
    assert call("create", "n", "-p", "3", "-r", "2").exit_code == 0
    assert admin.created[0][1:3] == (3, 2)
    assert call("alter", "t", "-p", "3").stdout == "Topic t has 3 partitions.\n"


def test_topics_list_prints_names_as_lines_or_json(admin: ScriptedAdmin) -> None:
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


def test_topics_delete_explains_an_error_without_a_message(
    admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(names: tuple[str, ...]) -> dict[str, Outcome]:
        return dict.fromkeys(names, Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))

    monkeypatch.setattr(admin, "delete_topics", refuse)
    done = call("delete", "none")
    expected = "minikafka: UNKNOWN_TOPIC_OR_PARTITION: none: there is no such topic\n"
    assert (done.exit_code, done.stderr) == (1, expected)


def test_topics_delete_reports_a_timeout_when_the_deletion_takes_too_long(
    admin: ScriptedAdmin,
) -> None:
    admin.deleting = {"t": 1000}
    done = call("delete", "t", "--wait", "--timeout", "0.3", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)[0]["error"] == "REQUEST_TIMED_OUT"
    assert call("delete", "t", "--timeout", "60").exit_code == 0


def test_create_succeeds_for_an_existing_topic_only_with_if_not_exists(
    admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create(topics: list[NewTopic]) -> dict[str, Outcome]:
        return {topic.name: Outcome(ErrorCode.TOPIC_ALREADY_EXISTS, "exists") for topic in topics}

    monkeypatch.setattr(admin, "create_topics", create)
    assert call("create", "t").exit_code == 1
    done = call("create", "t", "--if-not-exists")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "Topic t already exists.\n", "")
    shown = json.loads(call("create", "-t", "t", "--if-not-exists", "--json").stdout)
    assert shown == [{"topic": "t", "error": None, "message": None}]


def test_alter_changes_settings_and_then_adds_partitions(admin: ScriptedAdmin) -> None:
    done = call("alter", "t", "--config", "retention.ms=5", "--config", "segment.bytes={}")
    assert (done.exit_code, done.stdout) == (0, "Topic t has retention.ms=5, segment.bytes={}.\n")
    assert admin.configs[T] == {"retention.ms": "5", "segment.bytes": "{}"}
    both = call("alter", "-t", "t", "--partitions", "2", "--config", "retention.ms=6")
    assert both.stdout == "Topic t has 2 partitions, retention.ms=6.\n"
    assert TopicPartition("t", 1) in admin.replicas
    assert call("alter", "t").exit_code == 2
    assert call("alter", "t", "--config", "a=b", "--replica-assignment", "1:2").exit_code == 2


def test_alter_adds_no_partition_if_a_setting_is_refused(
    admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(changes: Mapping[Resource, object]) -> dict[Resource, Outcome]:
        return dict.fromkeys(changes, Outcome(ErrorCode.INVALID_CONFIG, "not a number"))

    monkeypatch.setattr(admin, "alter_configs", refuse)
    done = call("alter", "t", "--partitions", "2", "--config", "retention.ms=x")
    assert (done.exit_code, done.stderr) == (1, "minikafka: INVALID_CONFIG: t: not a number\n")
    assert TopicPartition("t", 1) not in admin.replicas


def test_topics_are_named_by_arguments_or_options(admin: ScriptedAdmin) -> None:
    assert call("describe", "--topic", "t").stdout == call("describe", "t").stdout
    assert call("delete").exit_code == 2
    assert call("delete", "--topic", "t").exit_code == 0
    assert call("create").exit_code == 2
    assert call("create", "t", "--topic", "u").exit_code == 2
