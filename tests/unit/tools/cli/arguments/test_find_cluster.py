"""The cluster that a command chooses from `--data` and `--bootstrap`."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import click
import pytest

from minikafka.base.errors import ConfigError
from minikafka.runtime.clock import SystemRng
from minikafka.tools.cli.arguments.command_config import remember_file
from minikafka.tools.cli.arguments.config_files import _warn
from minikafka.tools.cli.arguments.find_cluster import (
    bootstrap_servers,
    data_directory,
)
from minikafka.tools.cluster import ClusterError
from minikafka.tools.cluster.directory import BrokerRecord, ClusterDirectory, ClusterRecord
from minikafka.tools.cluster.ports import free_ports
from minikafka.tools.cluster.processes import ProcessId, identify


def test_default_data_directory_is_named_data_without_cluster_toml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert data_directory(None) == "data"
    assert data_directory("elsewhere") == "elsewhere"


@pytest.mark.key("cluster.data")
def test_data_directory_comes_from_cluster_toml_of_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.toml").write_text('[cluster]\ndata = "here"\n')
    assert data_directory(None) == "here"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('[cluster]\ndata = "mine"\n[broker]\nnum.partitons = 3\n', "mine"),
        ('[cluster]\nport 0\ndata = "mine"\n', "mine"),
        ('[cluster]\ndata = "mine"\n[broker\nnum.partitions = 3\n', "mine"),
        ('[cluster]\ndata = "mine"\n[broker]\n\udcff', "mine"),
        ('cluster.data = "mine"\nbroker.log.retention = = 5', "mine"),
        ("[cluster]\nbrokrs = 5\n", "data"),
        ("[broker]\nnum.partitions = x\n", "data"),
        ("[broker\nnum.partitions = 3\n", "data"),
    ],
)
def test_mistake_elsewhere_in_cluster_toml_is_a_warning_for_commands_that_need_its_data(
    text: str,
    data: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    _warn.cache_clear()
    (tmp_path / "cluster.toml").write_bytes(text.encode(errors="surrogateescape"))
    assert (data_directory(None), data_directory(None)) == (data, data)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: cluster.toml: ")
    assert line.endswith(f"needs only the data directory, {data}")


@pytest.mark.parametrize(
    "text",
    [
        '[cluster]\ndata = "mine\n',
        '[cluster]\ndta = "mine"\n',
        '[clustr]\ndata = "mine"\n',
        '[cluster\ndata = "mine"\n',
        "[cluster]\ndata = 5\n",
        "[cluster]\ndirectory = 'mine'\n",
        "datadir = 'mine'\n",
    ],
)
def test_mistake_that_may_be_in_the_data_of_cluster_toml_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"line \d.*correct it, or name .* by --data DIR"):
        data_directory(None)
    assert data_directory("given") == "given"


def test_missing_cluster_is_an_error_unless_bootstrap_servers_are_given(tmp_path: Path) -> None:
    assert bootstrap_servers("h:1", None) == "h:1"
    with pytest.raises(ClusterError, match="there is no cluster in"):
        bootstrap_servers(None, str(tmp_path))


def test_error_says_how_to_start_brokers_when_all_are_down(tmp_path: Path) -> None:
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
        f"minikafka start 4 --data '{data}' starts one"
    )
    assert bootstrap_servers(record.bootstrap, str(data)) == record.bootstrap
    with socket.create_server(("127.0.0.1", ports[1])):
        assert bootstrap_servers(None, str(data)) == record.bootstrap
    ClusterDirectory(data).write(
        record.with_broker(replace(brokers[0], process=identify(os.getpid())))
    )
    assert bootstrap_servers(None, str(data)) == record.bootstrap


def test_cluster_that_demands_a_login_needs_a_file_that_says_how(tmp_path: Path) -> None:
    secured = BrokerRecord(
        1, 0, 1, identify(os.getpid()), {"SASL_SSL": 9192}, {"SASL_SSL": "SASL_SSL"}
    )
    record = ClusterRecord((secured,), "127.0.0.1:1")
    ClusterDirectory(tmp_path).write(record)
    with pytest.raises(
        ClusterError, match=r"properties with security\.protocol=SASL_SSL"
    ) as caught:
        bootstrap_servers(None, str(tmp_path))
    assert caught.value.hint == "--command-config FILE"
    command = click.Command("list", params=[click.Option(["--command-config"])])
    with click.Context(command) as context:
        remember_file(context, command.params[0], "client.properties")
        assert bootstrap_servers(None, str(tmp_path)) == record.bootstrap
