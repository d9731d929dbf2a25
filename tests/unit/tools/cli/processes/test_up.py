"""The output of `up`, and the arguments that `up` refuses before it starts a process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.main import commands
from minikafka.tools.cli.processes.up import started, zookeeper_failure
from minikafka.tools.cluster.directory import BrokerRecord, ClusterRecord
from minikafka.tools.cluster.local import LocalCluster
from minikafka.tools.cluster.processes import ProcessId

ZOOKEEPER = {"ZooKeeper": ProcessId(1, 1)}
ONE = {"1": ProcessId(2, 1)}
TWO = ONE | {"2": ProcessId(3, 1)}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, ZOOKEEPER | ONE, "1 broker serves, data"),
        ({}, ZOOKEEPER | TWO, "2 brokers serve, data"),
        (ZOOKEEPER | TWO, ZOOKEEPER | TWO, "already running"),
        (
            ZOOKEEPER | ONE,
            ZOOKEEPER | TWO,
            "started broker 2, already running: ZooKeeper, broker 1,",
        ),
        (TWO, ZOOKEEPER | TWO, "started ZooKeeper, already running: brokers 1, 2,"),
        (
            ZOOKEEPER | TWO,
            ZOOKEEPER | ONE | {"2": ProcessId(9, 9)},
            "started broker 2, already running: ZooKeeper, broker 1,",
        ),
        (ZOOKEEPER, ZOOKEEPER | TWO, "started brokers 1, 2, already running: ZooKeeper,"),
    ],
)
def test_command_up_prints_which_processes_it_started(
    before: dict[str, ProcessId], now: dict[str, ProcessId], expected: str
) -> None:
    assert started(before, now) == expected


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (
            "[zookeeper]\nconnect = 'localhost:notaport'",
            [],
            "mine.toml: line 2, column 1: zookeeper.connect cannot be",
        ),
        (
            "[cluster]\nport = 65534",
            [],
            "mine.toml: line 2, column 1: cluster.port must be at most 65533",
        ),
        (
            "[broker]\nreplica.lag.time.max.ms = 1",
            [],
            "mine.toml: line 2, column 1: replica.fetch.wait.max.ms must",
        ),
        (
            "[broker.9]\nbroker.rack = 'b'",
            [],
            "mine.toml: line 1, column 1: [broker.9] is for a broker that",
        ),
        ("", ["--port", "65535"], "port must be at most 65533 with 3 brokers"),
    ],
)
def test_command_up_says_which_setting_is_invalid_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, options: list[str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(text)
    done = CliRunner().invoke(commands, ["up", "--config", "mine.toml", *options])
    assert isinstance(done.exception, MinikafkaError)
    assert str(done.exception).startswith(expected)
    assert not Path("data").exists()


@pytest.mark.parametrize("value", ["embeded", "localhost", "h:1/a/"])
def test_command_up_refuses_a_zookeeper_and_names_the_three_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(commands, ["up", "--zookeeper", value])
    assert done.exit_code == 2
    assert "embedded, managed or HOST:PORT[/chroot]" in " ".join(done.output.split())
    assert not Path("data").exists()


def test_error_with_which_zookeeper_has_ended_is_known_at_the_next_start(tmp_path: Path) -> None:
    cluster = LocalCluster(1, data=tmp_path, attached=False)
    assert zookeeper_failure(cluster) == ""
    record = ClusterRecord((BrokerRecord(1, 1, 2),), "127.0.0.1:3", ProcessId(2**30, 0))
    cluster.directory.write(record)
    cluster.directory.output("zookeeper").write_text("minikafka: fsync failed\n")
    assert zookeeper_failure(cluster) == "fsync failed"
    cluster.directory.output("zookeeper").write_text("zookeeper has stopped\n")
    assert zookeeper_failure(cluster) == ""
    cluster.directory.write(replace(record, zookeeper_kind="external"))
    assert zookeeper_failure(cluster) == ""
