"""The keys that a cluster keeps when its configuration changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.errors import ConfigError
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.directory import ClusterDirectory
from minikafka.tools.cluster.launch.broker_keys import (
    kept_settings,
    protocols_of,
    settings_after,
    settings_in,
)
from minikafka.tools.cluster.launch.launcher import Launcher

WITHOUT_FILE = ClusterConfig(is_default=True, replicates_topics=True)
TWO = "min.insync.replicas"


def start(data: Path, config: ClusterConfig, brokers: int | None = None) -> Launcher:
    """Write the files of a start that starts no process."""
    launcher = LocalCluster(brokers, data=data, config=config, attached=False)._launcher()
    launcher.write(launcher.plan(launcher.directory.read()))
    return launcher


def value(data: Path, key: str, broker: int = 1) -> str | None:
    file = ClusterDirectory(data).broker_config(broker)
    assert file is not None
    return file.text(key)


def test_cluster_keeps_its_durability_when_a_later_file_does_not_set_it(tmp_path: Path) -> None:
    start(tmp_path, WITHOUT_FILE)
    launcher = start(tmp_path, ClusterConfig.parse("[broker]\nnum.partitions = 5"))
    assert (value(tmp_path, TWO), value(tmp_path, "default.replication.factor")) == ("2", "3")
    assert [change.name for change in launcher.changes[1]] == ["num.partitions"]


def test_cluster_keeps_the_durability_of_its_first_file(tmp_path: Path) -> None:
    start(tmp_path, ClusterConfig.parse("broker.'min.insync.replicas' = 2"), 3)
    start(tmp_path, ClusterConfig.parse("[broker]\nnum.partitions = 5"))
    start(tmp_path, WITHOUT_FILE)
    assert value(tmp_path, TWO) == "2"
    assert value(tmp_path, "default.replication.factor") == "1"


def test_start_reports_a_lower_durability_when_the_brokers_are_down(tmp_path: Path) -> None:
    start(tmp_path, WITHOUT_FILE)
    launcher = start(tmp_path, ClusterConfig.parse("[broker]\nmin.insync.replicas = 1"))
    for broker in (1, 2, 3):
        (change,) = launcher.changes[broker]
        assert change == (TWO, "2", "1", "started")


def test_cluster_keeps_the_keys_of_its_file_when_the_file_is_gone(tmp_path: Path) -> None:
    text = "[broker]\nnum.partitions = 5\n[broker.2]\nbroker.rack = 'r2'"
    start(tmp_path, ClusterConfig.parse(text))
    launcher = start(tmp_path, WITHOUT_FILE, 4)
    assert [value(tmp_path, "num.partitions", id_) for id_ in (1, 4)] == ["5", "5"]
    assert [value(tmp_path, "broker.rack", id_) for id_ in (1, 2)] == [None, "r2"]
    assert not any(launcher.changes.values())


def test_larger_cluster_replicates_its_new_topics_and_keeps_its_minimum(tmp_path: Path) -> None:
    start(tmp_path, WITHOUT_FILE, 1)
    launcher = start(tmp_path, WITHOUT_FILE, 3)
    assert (value(tmp_path, TWO), value(tmp_path, "default.replication.factor")) == ("1", "3")
    assert "default.replication.factor" in [change.name for change in launcher.changes[1]]


def test_smaller_cluster_keeps_its_minimum(tmp_path: Path) -> None:
    start(tmp_path, WITHOUT_FILE, 3)
    start(tmp_path, WITHOUT_FILE, 2)
    assert (value(tmp_path, TWO), value(tmp_path, "default.replication.factor")) == ("2", "2")


def test_cluster_of_an_older_version_keeps_the_durability_in_its_files(tmp_path: Path) -> None:
    launcher = start(tmp_path, WITHOUT_FILE)
    files = {id_: launcher.directory.broker_config(id_) for id_ in (1, 2, 3)}
    settings = settings_in({id_: file for id_, file in files.items() if file})
    assert settings.made_with == {TWO: 2, "default.replication.factor": 3}
    record = launcher.record
    launcher.directory.write(type(record)(record.brokers, record.zookeeper))
    start(tmp_path, ClusterConfig.parse("[broker]\nnum.partitions = 5"))
    assert value(tmp_path, TWO) == "2"


def test_secret_is_not_remembered_in_the_record(tmp_path: Path) -> None:
    secret = "a secret of the cluster"
    start(tmp_path, ClusterConfig.parse(f"[broker]\nminikafka.cluster.secret = '{secret}'"))
    assert secret not in (tmp_path / "cluster.json").read_text()
    assert secret in (tmp_path / "broker-1.toml").read_text()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", f"{TWO} = 2: the cluster was made with it, cluster.toml does not set it"),
        (f"{TWO} = 1", f"{TWO} = 1 in cluster.toml counts: the cluster was made with 2"),
        (f"{TWO} = 2", None),
        (f"{TWO} = 3", None),
    ],
)
def test_kept_settings_name_the_value_that_counts(text: str, line: str | None) -> None:
    config = ClusterConfig.parse(f"[broker]\n{text}")
    settings = settings_after(settings_after(None, WITHOUT_FILE, 3), config, 3)
    lines = kept_settings(settings, config, 3, "cluster.toml")
    assert [found for found in lines if found.startswith(TWO)] == ([line] if line else [])


def test_file_of_a_broker_has_the_listeners_of_the_cluster(tmp_path: Path) -> None:
    text = "[cluster]\nport = 31000\nmetrics.port = 31020\n[listeners]\nSSL = 31010"
    start(tmp_path, ClusterConfig.parse(text))
    wanted = "PLAINTEXT://127.0.0.1:31001,SSL://127.0.0.1:31011,CONTROLLER://127.0.0.1:31021"
    assert value(tmp_path, "listeners", 2) == wanted


def test_brokers_connect_to_each_other_through_the_listener_that_the_file_names(
    tmp_path: Path,
) -> None:
    text = "[listeners]\nSASL_SSL = 0\n[broker]\nsecurity.inter.broker.protocol = 'SASL_SSL'"
    start(tmp_path, ClusterConfig.parse(text))
    file = ClusterDirectory(tmp_path).broker_config(1)
    assert file is not None
    assert file.endpoints.inter_broker == "SASL_SSL"
    assert file.endpoints.control.security.value == "SSL"
    assert protocols_of(file) == {"SASL_SSL": "SASL_SSL", "CONTROLLER": "SSL"}


@pytest.mark.parametrize("broker", ["", "[broker]\ninter.broker.listener.name = 'plaintext'"])
def test_error_without_plaintext_says_how_brokers_can_connect_to_each_other(
    tmp_path: Path, broker: str
) -> None:
    with pytest.raises(
        ConfigError, match=r"set inter\.broker\.listener\.name to one of SSL, or set cluster\.port"
    ):
        start(tmp_path, ClusterConfig.parse(f"[listeners]\nSSL = 0\n{broker}"))
    assert not list(tmp_path.glob("broker-*.toml"))


def test_secrets_of_the_configuration_are_in_no_repr_of_a_cluster(tmp_path: Path) -> None:
    text = "[broker]\nssl.keystore.password = 's3cret'\n[broker.1]\nssl.key.password = 's3cret'"
    config = ClusterConfig.parse(text)
    record = start(tmp_path, config).record
    assert record.settings is not None
    assert record.settings.keys_of(1)["ssl.keystore.password"] == "s3cret"
    assert "s3cret" not in f"{config!r}{record!r}"
