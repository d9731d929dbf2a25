"""The output of `up`, and the arguments that `up` refuses before it starts a process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.errors import MinikafkaError
from minikafka.broker.rpc.messages import SettingChange
from minikafka.tools.cli.main import commands
from minikafka.tools.cli.processes.start_stop import (
    Differences,
    _tell_unapplied,
    started,
    zookeeper_failure,
)
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


@pytest.mark.parametrize("value", ["embeded", "localhost", "h:1/"])
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


NOW = SettingChange("log.retention.ms", None, "5", "now")
LATER = SettingChange("num.partitions", "3", "6", "restart")
HIDDEN = SettingChange("min.insync.replicas", "1", "2", "overridden")


def test_command_up_lists_changed_keys_and_the_brokers_that_need_a_restart() -> None:
    found = Differences.of({2: [NOW, LATER], 1: [NOW, HIDDEN], 3: OSError("silent")})
    assert found.lines("my data") == [
        "log.retention.ms = 5 (was not set) on brokers 1, 2: in effect now",
        "min.insync.replicas = 2, set to 1 at run time, on broker 1: no effect while `configs set` overrides it",
        "num.partitions = 6 (was 3) on broker 2: takes effect at the next start",
        "broker 3 was not compared with the configuration: silent",
        "to restart them: minikafka restart 2 --rolling --data 'my data'",
    ]
    assert found.as_json()[0] == {
        "name": "log.retention.ms",
        "old": None,
        "new": "5",
        "effect": "now",
        "brokers": [1, 2],
    }
    assert Differences.of({1: [], 2: []}).lines(None) == []


def test_start_prints_the_settings_that_it_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    made = LocalCluster(3, data="data", config=ClusterConfig(replicates_topics=True))
    launcher = made._launcher()
    launcher.write(launcher.plan(None))
    _tell_unapplied(1, None)
    Path("cluster.toml").write_text("[broker]\nnum.partitions = 6\n")
    before = Path("data/broker-1.toml").read_text()
    _tell_unapplied(1, None)
    change, *kept = capsys.readouterr().err.splitlines()
    assert change.startswith("num.partitions = 6 (was 1): not in effect, `start` does not read")
    assert "minikafka restart 1 applies it" in change
    assert [line.partition(":")[0] for line in kept] == [
        "default.replication.factor = 3",
        "min.insync.replicas = 2",
    ]
    assert Path("data/broker-1.toml").read_text() == before
    _tell_unapplied(1, "data")
    assert capsys.readouterr().err == ""
