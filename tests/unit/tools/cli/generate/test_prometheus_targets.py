"""The list of metrics for Prometheus: from a data directory, and from the settings of brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from minikafka.base.errors import ConfigError
from minikafka.tools.cli.generate.prometheus_targets import _group, metrics_of
from minikafka.tools.cli.main import commands
from minikafka.tools.cluster.directory import (
    CONTROL,
    BrokerRecord,
    ClusterDirectory,
    ClusterRecord,
)

ENABLED = {"minikafka.metrics.enable": "true"}


def test_targets_of_a_data_directory_are_those_of_brokers_with_metrics(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    tls = BrokerRecord(3, 9094, 9406, protocols={CONTROL: "SSL"})
    brokers = (BrokerRecord(1, 9092, 9404), BrokerRecord(2, 9093, 9405), tls)
    directory.write(ClusterRecord(brokers, "127.0.0.1:1"))
    keys = '[broker]\nbroker.id = 1\nzookeeper.connect = "h:1"\nminikafka.cluster.secret = "0123456789abcdef"\n'
    directory.broker_file(1).write_text(keys)
    directory.broker_file(2).write_text(f"{keys}minikafka.metrics.enable = false\n")
    directory.broker_file(3).write_text(keys)
    words = ["generate", "prometheus-targets", "--data", str(tmp_path)]
    made = CliRunner().invoke(commands, words, catch_exceptions=False)
    assert json.loads(made.stdout) == [
        {"targets": ["127.0.0.1:9404"], "labels": {"broker": "1"}},
        {"targets": ["127.0.0.1:9406"], "labels": {"broker": "3", "__scheme__": "https"}},
    ]
    assert "broker 2 is left out: its configuration disables them" in made.stderr


def test_target_of_a_broker_elsewhere_is_the_advertised_address_of_its_control_listener() -> None:
    settings = {
        **ENABLED,
        "listeners": "IN://0.0.0.0:9092",
        "advertised.listeners": "IN://[2001:db8::1]:9092",
        "listener.security.protocol.map": "IN:PLAINTEXT",
        "inter.broker.listener.name": "IN",
        "minikafka.control.listener": "CONTROLLER://:9404",
    }
    assert _group(7, metrics_of(7, settings))["targets"] == ["[2001:db8::1]:9404"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "it is not a broker of minikafka"),
        ({"minikafka.metrics.enable": "false"}, "minikafka.metrics.enable is false"),
        (ENABLED, "its control listener has a free port; set one in minikafka.control.listener"),
    ],
)
def test_broker_without_known_metrics_is_left_out_with_the_reason(
    settings: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        metrics_of(1, settings)
