"""Commands for one process, with `zookeeper` instead of the id of a broker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from minikafka.base.errors import MinikafkaError
from minikafka.base.zookeeper import EXTERNAL
from minikafka.tools.cli.main import commands
from minikafka.tools.cluster.directory import BrokerRecord, ClusterDirectory, ClusterRecord
from minikafka.tools.cluster.launch import launcher
from minikafka.tools.cluster.processes import ProcessId, identify, is_alive, is_paused


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ProcessId]:
    """Yield a process that only sleeps, as the ZooKeeper of the cluster in `tmp_path`."""
    with subprocess.Popen(["sleep", "600"]) as child:
        process = identify(child.pid)
        assert process is not None
        record = ClusterRecord((BrokerRecord(1, 1, 2),), "127.0.0.1:3", process)
        ClusterDirectory(tmp_path).write(record)
        yield process
        child.kill()


def call(data: Path, *words: str) -> Result:
    return CliRunner().invoke(commands, [*words, "--data", str(data)])


def test_zookeeper_is_paused_resumed_and_killed(tmp_path: Path, zookeeper: ProcessId) -> None:
    assert call(tmp_path, "pause", "zookeeper").stderr == "ZooKeeper is paused\n"
    assert is_paused(zookeeper)
    assert call(tmp_path, "resume", "ZooKeeper").stderr == "ZooKeeper continues\n"
    assert not is_paused(zookeeper)
    assert call(tmp_path, "kill", "zookeeper").stderr == "ZooKeeper was killed\n"
    assert not is_alive(zookeeper)
    again = call(tmp_path, "kill", "zookeeper").exception
    assert isinstance(again, MinikafkaError)
    assert (str(again), again.hint) == ("ZooKeeper is not running", "minikafka start zookeeper")


def test_zookeeper_is_stopped(tmp_path: Path, zookeeper: ProcessId) -> None:
    assert call(tmp_path, "stop", "zookeeper").stderr == "ZooKeeper has stopped\n"
    assert not is_alive(zookeeper)


def test_start_of_a_zookeeper_that_runs_is_refused(
    tmp_path: Path, zookeeper: ProcessId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "DYING_MS", 20)
    assert str(call(tmp_path, "start", "zookeeper").exception) == "ZooKeeper is already running"
    call(tmp_path, "pause", "zookeeper")
    paused = call(tmp_path, "start", "zookeeper").exception
    assert str(paused) == "ZooKeeper is paused (SIGSTOP), not down"


@pytest.mark.parametrize("command", ["kill", "pause", "resume", "start", "stop"])
def test_zookeeper_of_others_is_left_alone(tmp_path: Path, command: str) -> None:
    ClusterDirectory(tmp_path).write(
        ClusterRecord((BrokerRecord(1, 1, 2),), "host:9", zookeeper_kind=EXTERNAL)
    )
    error = call(tmp_path, command, "zookeeper").exception
    assert str(error) == "this cluster runs no ZooKeeper of its own: it uses host:9"


def test_word_that_names_no_process_is_a_usage_error(tmp_path: Path) -> None:
    for command in ("kill", "start", "logs", "restart"):
        result = call(tmp_path, command, "zoo")
        assert result.exit_code == 2
        assert "'zoo' is neither the id of a broker nor zookeeper" in result.stderr


def test_log_of_zookeeper_is_printed_alone(tmp_path: Path, zookeeper: ProcessId) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.output("zookeeper").write_text("of ZooKeeper\n")
    directory.output("broker-1").write_text("of the broker\n")
    assert call(tmp_path, "logs", "zookeeper").stdout == "of ZooKeeper\n"
    assert call(tmp_path, "logs", "1").stdout == "of the broker\n"
