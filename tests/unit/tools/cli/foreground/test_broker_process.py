"""The configuration file of a broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minikafka.base.config.authorizer import AUTHORIZER
from minikafka.base.errors import (
    ClusterLost,
    ConfigError,
    NoAuth,
    NoChildrenForEphemerals,
    NotConnected,
)
from minikafka.tools.cli.foreground.broker_process import errors_name_zookeeper, load, warn_about

KEYS = (
    "broker.id = 1",
    'zookeeper.connect = "h:2181"',
    'minikafka.cluster.secret = "0123456789abcdef"',
)


def write(directory: Path, *keys: str) -> Path:
    file = directory / "broker.toml"
    file.write_text("\n".join(["[broker]", *keys]))
    return file


def test_broker_config_needs_only_broker_id_zookeeper_and_cluster_secret(tmp_path: Path) -> None:
    assert load(write(tmp_path, *KEYS)).config.broker_id == 1


@pytest.mark.parametrize("left_out", KEYS)
def test_error_names_the_missing_key_and_the_file(tmp_path: Path, left_out: str) -> None:
    file = write(tmp_path, *(key for key in KEYS if key != left_out))
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert left_out.split(" = ")[0] in str(caught.value)
    assert str(caught.value).startswith(f"{file}: ")


def test_error_about_an_unknown_key_suggests_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"log\.retention\.bytes"):
        load(write(tmp_path, *KEYS, "log.retention.byte = 1"))


@pytest.mark.parametrize("again", ["d/", "d//", "other/../d", "link", "link/."])
def test_error_about_a_log_directory_named_twice_has_both_spellings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("d")
    file = write(tmp_path, *KEYS, f'log.dirs = "{tmp_path}/d,e,{again}"')
    twice = f"log.dirs names {tmp_path}/d twice, as {tmp_path}/d and as {again}: leave one out"
    expected = f"{file}: line {len(KEYS) + 2}, column 1: {twice}"
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}$"):
        load(file)


def test_distinct_log_directories_need_not_exist(tmp_path: Path) -> None:
    dirs = (f"{tmp_path}/d", f"{tmp_path}/d/d", "/")
    file = write(tmp_path, *KEYS, f'log.dirs = "{",".join(dirs)}"')
    assert load(file).config.log_dirs == dirs


@pytest.mark.key("minikafka.coordination")
def test_start_warns_about_a_key_that_only_the_other_mode_reads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_about(load(write(tmp_path, *KEYS, "minikafka.leaders.queue.max = 5")))
    assert caplog.messages == [
        "minikafka.leaders.queue.max has no effect: minikafka.coordination is controller"
    ]


def test_start_warns_about_a_key_of_tls_that_no_listener_uses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_about(load(write(tmp_path, *KEYS, "ssl.keystore.location = '/broker.p12'")))
    assert caplog.messages == ["ssl.keystore.location has no effect: no listener uses TLS"]


def test_start_does_not_warn_about_keys_with_which_encrypted_brokers_are_called(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = (
        "ssl.truststore.location = '/ca.pem'",
        "listener.name.plaintext.ssl.endpoint.identification.algorithm = ''",
        "ssl.client.auth = 'required'",
    )
    warn_about(load(write(tmp_path, *KEYS, *keys)))
    assert caplog.messages == ["ssl.client.auth has no effect: no listener uses TLS"]


def test_start_warns_that_metrics_of_a_secured_broker_need_tls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authorizer = f"authorizer.class.name = '{AUTHORIZER}'"
    warn_about(load(write(tmp_path, *KEYS, authorizer)))
    assert caplog.messages == [
        "/metrics is not served, because brokers connect to each other without TLS"
    ]
    caplog.clear()
    warn_about(load(write(tmp_path, *KEYS, authorizer, "minikafka.metrics.enable = false")))
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("error", "kind", "expected"),
    [
        (
            NotConnected("no server answers at h:1"),
            NotConnected,
            "no server answers at h:1; start ZooKeeper, or correct the key",
        ),
        (
            NoAuth("/x/brokers"),
            ConfigError,
            "ZooKeeper refuses to read or write /x/brokers: give this broker's user the rights, or name another chroot",
        ),
        (
            NoChildrenForEphemerals("/x"),
            ConfigError,
            "ZooKeeper refuses to read or write /x: its parent is ephemeral; name another chroot",
        ),
    ],
)
def test_error_of_zookeeper_at_the_start_names_the_key_and_the_remedy(
    error: Exception, kind: type[Exception], expected: str
) -> None:
    with pytest.raises(kind) as raised, errors_name_zookeeper("h:1/x"):
        raise error
    assert str(raised.value) == f"zookeeper.connect = h:1/x: {expected}"


def test_error_about_another_cluster_has_the_value_of_the_key() -> None:
    with pytest.raises(ClusterLost) as raised, errors_name_zookeeper("h:1/x"):
        raise ClusterLost("the log directories belong to cluster A")
    assert str(raised.value) == (
        "the log directories belong to cluster A (zookeeper.connect = h:1/x)"
    )
