"""Kafka's own file of a broker, with the file of `init-secret` beside it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from minikafka.base.errors import ConfigError
from minikafka.tools.cli.foreground.broker_file import BrokerFile, load
from minikafka.tools.cli.foreground.broker_process import warn_about
from minikafka.tools.cli.foreground.init_secret import init_secret

NEEDED = "zookeeper.connect=h:2181\n"


def init(file: Path, *options: str) -> str:
    done = CliRunner().invoke(init_secret, [str(file), *options])
    assert done.exit_code == 0, done.exception
    return (file.parent / "minikafka-secret.properties").read_text()


def load_text(directory: Path, text: str) -> BrokerFile:
    file = directory / "server.properties"
    file.write_text(text)
    if not (directory / "minikafka-secret.properties").exists():
        init(file)
    return load(file)


def test_kafkas_file_starts_a_broker_with_the_secret_beside_it(tmp_path: Path) -> None:
    found = load_text(tmp_path, NEEDED + "broker.id=4\nnum.io.threads=8\n").config
    assert found.broker_id == 4
    assert len(found.minikafka_cluster_secret) == 64
    assert str(found.endpoints.control) == "CONTROLLER://127.0.0.1:0"


@pytest.mark.key("minikafka.control.listener")
def test_control_listener_has_the_advertised_host_of_the_listener_between_brokers(
    tmp_path: Path,
) -> None:
    init(tmp_path / "server.properties", "--port", "9190")
    listeners = "listeners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://b1:9092\n"
    found = load_text(tmp_path, NEEDED + "broker.id=4\n" + listeners).config
    shown = {item.name: (item.host, item.port) for item in found.endpoints.registered({})}
    assert shown == {"PLAINTEXT": ("b1", 9092), "CONTROLLER": ("b1", 9190)}


def test_listener_without_a_host_is_advertised_with_the_name_of_this_host(tmp_path: Path) -> None:
    found = load_text(tmp_path, NEEDED + "broker.id=4\nlisteners=PLAINTEXT://:9092\n").config
    assert found.advertised_listeners == (f"PLAINTEXT://{socket.getfqdn()}:9092",)


def test_secret_file_is_for_its_owner_only_and_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    first = init(file)
    made = tmp_path / "minikafka-secret.properties"
    assert made.stat().st_mode & 0o777 == 0o600
    again = CliRunner().invoke(init_secret, [str(file)])
    assert again.exit_code == 1
    assert "exists already" in str(again.exception)
    assert made.read_text() == first


def test_missing_secret_is_an_error_with_the_command_that_makes_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(NEEDED + "broker.id=1\n")
    with pytest.raises(ConfigError, match=f"run `minikafka init-secret {file}`"):
        load(file)


def test_key_of_kafka_in_the_file_of_the_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "minikafka-secret.properties").write_text("\nlog.dirs=/a\n")
    with pytest.raises(
        ConfigError, match=r"minikafka-secret.properties: line 2: log.dirs belongs into"
    ):
        load_text(tmp_path, NEEDED + "broker.id=1\n")


def test_error_has_the_file_and_the_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server.properties: line 3: num.partitions must be"):
        load_text(tmp_path, NEEDED + "broker.id=1\nnum.partitions=none\n")


def test_id_is_read_from_the_log_directory_if_the_file_has_none(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "meta.properties").write_text("#\nversion=0\nbroker.id=1001\ncluster.id=abc\n")
    assert (
        load_text(tmp_path, NEEDED + f"log.dirs={tmp_path}/new,{logs}\n").config.broker_id == 1001
    )


def test_without_an_id_anywhere_the_error_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"broker\.id is required"):
        load_text(tmp_path, NEEDED + f"log.dirs={tmp_path}/new\n")


def test_start_names_the_keys_without_effect_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = NEEDED + "broker.id=1\nnum.io.threads=8\nmetric.reporters=a.B\n"
    warn_about(load_text(tmp_path, text))
    assert caplog.messages == [
        "keys of Kafka that have no effect: metric.reporters (line 4), num.io.threads (line 3)"
    ]
