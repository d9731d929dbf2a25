"""Which cluster a command means."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from minikafka.base.errors import ConfigError, ErrorCode, KafkaError
from minikafka.cli.main import commands
from minikafka.cli.target import (
    bootstrap_servers,
    data_directory,
    errors_name_topic,
    load_config,
)
from minikafka.cluster import ClusterError
from minikafka.cluster.directory import BrokerRecord, ClusterDirectory, ClusterRecord, free_ports
from minikafka.cluster.processes import ProcessId, identify
from minikafka.runtime.clock import SystemRng


def test_without_a_file_it_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert data_directory(None) == "data"
    assert data_directory("elsewhere") == "elsewhere"


def test_a_cluster_toml_in_the_current_directory_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.toml").write_text('[cluster]\ndata = "here"\nbrokers = 5\n')
    assert data_directory(None) == "here"
    assert load_config(None).brokers == 5


@pytest.mark.parametrize(
    "command",
    [
        ["up", "--data", ""],
        ["up", "--config", ""],
        ["down", "--data", " "],
        ["topics", "list", "--data", ""],
        ["topics", "list", "--bootstrap", ""],
    ],
    ids=" ".join,
)
def test_an_empty_name_is_refused_and_does_not_mean_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(commands, command)
    assert done.exit_code == 2
    assert f"{command[-1]!r} names nothing; leave the option out for its default" in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_error_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[cluster]\nbroker = 3\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: .*brokers"):
        load_config(str(file))


def test_given_brokers_are_asked_and_none_are_made_up(tmp_path: Path) -> None:
    assert bootstrap_servers("h:1", None) == "h:1"
    with pytest.raises(ClusterError, match="there is no cluster in"):
        bootstrap_servers(None, str(tmp_path))


def test_brokers_that_are_all_down_are_not_asked_and_the_way_to_start_them_is_told(
    tmp_path: Path,
) -> None:
    data = tmp_path / "of mine"
    data.mkdir()
    ports = free_ports(2, SystemRng())
    gone = ProcessId(os.getpid(), 0)
    brokers = tuple(BrokerRecord(id_, port, 1, gone) for id_, port in enumerate(ports, 4))
    record = ClusterRecord(brokers, "127.0.0.1:1")
    ClusterDirectory(data).write(record)
    with pytest.raises(ClusterError) as caught:
        bootstrap_servers(None, str(data))
    assert str(caught.value) == (
        f"no broker of the cluster in {data} is running: minikafka up --data '{data}' starts all, "
        f"minikafka start 4 --data '{data}' for one"
    )
    assert bootstrap_servers(record.bootstrap, str(data)) == record.bootstrap
    with socket.create_server(("127.0.0.1", ports[1])):
        assert bootstrap_servers(None, str(data)) == record.bootstrap
    ClusterDirectory(data).write(
        record.with_broker(replace(brokers[0], process=identify(os.getpid())))
    )
    assert bootstrap_servers(None, str(data)) == record.bootstrap


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ("t-1", "t-1: no such topic; to make it: minikafka topics create t-1"),
        ("t-1-7", "t-1-7: no such partition; those there are: minikafka topics describe t-1"),
        ("line 5 (t-1-7)", "line 5 (t-1-7)"),
    ],
)
def test_what_is_not_there_is_told_with_what_can_be_done(detail: str, said: str) -> None:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as caught, errors_name_topic("t-1"):
        raise KafkaError(code, detail)
    assert str(caught.value) == f"UNKNOWN_TOPIC_OR_PARTITION: {said}"


def test_a_topic_that_needs_more_brokers_than_there_are_is_told_with_the_way_to_make_it() -> None:
    code = ErrorCode.INVALID_REPLICATION_FACTOR
    fix = "t: default.replication.factor is more than the brokers that run; to make it with fewer: "
    with pytest.raises(KafkaError) as caught, errors_name_topic("t"):
        raise KafkaError(code, "t")
    assert caught.value.detail == f"{fix}minikafka topics create t --replication-factor N"


def test_other_errors_of_a_topic_stay_as_they_are() -> None:
    with pytest.raises(KafkaError, match=r"^MESSAGE_TOO_LARGE: t$"), errors_name_topic("t"):
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "t")
