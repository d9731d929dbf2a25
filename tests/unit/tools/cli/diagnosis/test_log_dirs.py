from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner, Result
from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Outcome
from minikafka.client.administration.results import LogDir, StoredReplica
from minikafka.tools.cli.diagnosis.log_dirs import as_json_object, log_dirs

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 10), TopicPartition("u", 0)
INTERNAL = TopicPartition("__consumer_offsets", 3)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    scripted = ScriptedAdmin(dict.fromkeys((T0, T1, U0, INTERNAL), (1, 2)))
    scripted.sizes = {(1, T0): 1_500, (1, T1): 7, (1, INTERNAL): 9, (2, U0): 3}
    monkeypatch.setattr("minikafka.client.Client", lambda servers, **_: scripted)
    return scripted


def call(*arguments: str) -> Result:
    return CliRunner().invoke(log_dirs, [*arguments, "--bootstrap", "h:1"])


def rows(result: Result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines()]


def test_replicas_are_listed_by_broker_with_internal_topics_folded(admin: ScriptedAdmin) -> None:
    shown = rows(call())
    assert shown[:4] == [
        ["replica", "size", "offset", "lag"],
        ["broker", "1", "/data"],
        ["t-0", "1.5", "kB", "0"],
        ["t-10", "7", "B", "0"],
    ]
    assert shown[4:7] == [
        ["1", "of", "internal", "topics", "9", "B", "0"],
        ["broker", "2", "/data"],
        ["u-0", "3", "B", "0"],
    ]


def test_replica_whose_name_has_a_line_of_its_own_stays_below_its_broker(
    admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = TopicPartition("w" * 30, 0)
    admin.sizes = {(1, wide): 5, (2, U0): 3}
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("COLUMNS", "30")
    shown = [line.split() for line in click.unstyle(call().stdout).splitlines()]
    assert shown[1:6] == [
        ["broker", "1", "/data"],
        [str(wide)],
        ["5", "B", "0"],
        ["broker", "2", "/data"],
        ["u-0", "3", "B", "0"],
    ]


def test_topics_and_brokers_limit_the_output(admin: ScriptedAdmin) -> None:
    assert rows(call("t", "--brokers", "1"))[1:] == [
        ["broker", "1", "/data"],
        ["t-0", "1.5", "kB", "0"],
        ["t-10", "7", "B", "0"],
    ]
    assert "__consumer_offsets-3" in call("__consumer_offsets").stdout
    missing = call("t", "nope").exception
    assert isinstance(missing, KafkaError)
    assert "nope: no such topic" in str(missing)
    unknown = call("--brokers", "1,9").exception
    assert "there is no live broker 9; the live brokers are 1" in str(unknown)


def test_broker_that_does_not_answer_is_named(admin: ScriptedAdmin) -> None:
    admin.paused = {2}
    result = call("--json")
    assert (result.exit_code, result.stderr) == (1, "minikafka: broker 2 did not answer\n")
    assert [broker["broker"] for broker in json.loads(result.stdout)["brokers"]][:1] == [1]


def test_json_has_the_shape_of_kafka_log_dirs() -> None:
    replicas = [StoredReplica(T0, 5, 2), StoredReplica(U0, 3, 0, is_future=True)]
    good = LogDir("/a", Outcome(ErrorCode.NONE), replicas, -1, -1)
    bad = LogDir("/b", Outcome(ErrorCode.KAFKA_STORAGE_ERROR), (), -1, -1)
    # Printed by kafka-log-dirs --describe of Apache Kafka 3.9, with its class name as the error.
    assert as_json_object({1: [good, bad]}) == {
        "version": 1,
        "brokers": [
            {
                "broker": 1,
                "logDirs": [
                    {
                        "logDir": "/a",
                        "error": None,
                        "partitions": [
                            {"partition": "t-0", "size": 5, "offsetLag": 2, "isFuture": False},
                            {"partition": "u-0", "size": 3, "offsetLag": 0, "isFuture": True},
                        ],
                    },
                    {"logDir": "/b", "error": "KAFKA_STORAGE_ERROR", "partitions": []},
                ],
            }
        ],
    }
