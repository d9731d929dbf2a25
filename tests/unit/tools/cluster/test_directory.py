"""The record, secrets and ports in a cluster's data directory."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import tomllib
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from support.storage.fsynced_files import FsyncedFiles

from minikafka.base.config import BrokerConfig
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.locks import try_lock
from minikafka.tools.cli.processes.waits import until_serving
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.directory import (
    BrokerRecord,
    ClusterDirectory,
    ClusterError,
    ClusterRecord,
)
from minikafka.tools.cluster.processes import ProcessId

RECORD = ClusterRecord(
    brokers=(BrokerRecord(1, 9092, 20001, ProcessId(77, 123456)), BrokerRecord(2, 9093, 20002)),
    zookeeper="127.0.0.1:20003",
    zookeeper_process=ProcessId(78, 123457),
    owner=ProcessId(79, 123458),
    coordination="leaders",
    retired=(BrokerRecord(3, 9094, 20004),),
)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_cluster_record_that_is_read_equals_the_one_written(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    assert directory.read() is None
    directory.write(RECORD)
    assert directory.read() == RECORD
    assert RECORD.bootstrap == "127.0.0.1:9092,127.0.0.1:9093"
    assert mode(tmp_path / "cluster.json") == 0o600


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the /proc of Linux")
async def test_files_of_a_new_cluster_survive_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable = FsyncedFiles(monkeypatch)
    directory = ClusterDirectory(tmp_path / "new" / "data")
    async with directory.locked(SystemClock()):
        secret = directory.secret(SystemRng())
        broker_file = directory.write_broker_file(1, {"broker.id": 1})
        directory.write(RECORD)
    durable.restore(tmp_path, tmp_path / "left")
    durable.close()
    left = ClusterDirectory(tmp_path / "left" / "new" / "data")
    assert left.read() == RECORD
    assert left.secret(SystemRng()) == secret
    assert left.broker_file(1).read_text() == broker_file.read_text()


def test_cluster_record_has_no_retired_brokers_if_its_file_lacks_the_key_retired(
    tmp_path: Path,
) -> None:
    ClusterDirectory(tmp_path).write(RECORD)
    file = tmp_path / "cluster.json"
    former = json.loads(file.read_text())
    del former["retired"]
    file.write_text(json.dumps(former))
    assert ClusterDirectory(tmp_path).read() == replace(RECORD, retired=())


def test_record_has_the_ports_and_protocols_of_all_listeners(tmp_path: Path) -> None:
    names = {"SASL_SSL": 9192, "IN": 9292}
    protocols = {"SASL_SSL": "SASL_SSL", "IN": "SSL", "CONTROLLER": "SSL"}
    secured = BrokerRecord(1, 0, 20001, None, names, protocols)
    record = replace(RECORD, brokers=(secured,))
    ClusterDirectory(tmp_path).write(record)
    assert ClusterDirectory(tmp_path).read() == record
    assert [str(item) for item in secured.clients] == [
        "SASL_SSL://127.0.0.1:9192",
        "IN://127.0.0.1:9292",
    ]
    assert [item.security.value for item in secured.clients] == ["SASL_SSL", "SSL"]
    assert secured.control.security.value == "SSL"
    assert (record.bootstrap, record.address(1)) == ("127.0.0.1:9192", "127.0.0.1:9192")


def test_record_names_the_bootstrap_servers_of_each_listener() -> None:
    both = (BrokerRecord(1, 9092, 1, listeners={"SSL": 9192}), BrokerRecord(2, 9093, 2))
    record = replace(RECORD, brokers=both)
    assert record.bootstrap_of("plaintext") == record.bootstrap == "127.0.0.1:9092,127.0.0.1:9093"
    assert record.bootstrap_of("SSL") == "127.0.0.1:9192"
    with pytest.raises(ClusterError, match="has no listener SASL_SSL, but PLAINTEXT, SSL"):
        record.bootstrap_of("SASL_SSL")


def test_record_of_an_older_version_has_the_listener_plaintext_alone(tmp_path: Path) -> None:
    ClusterDirectory(tmp_path).write(RECORD)
    file = tmp_path / "cluster.json"
    former = json.loads(file.read_text())
    for broker in (*former["brokers"], *former["retired"]):
        del broker["listeners"], broker["protocols"]
    file.write_text(json.dumps(former))
    assert ClusterDirectory(tmp_path).read() == RECORD
    former["brokers"][0]["protocols"] = {"X": "TLS"}
    file.write_text(json.dumps(former))
    with pytest.raises(ClusterError, match="'TLS'"):
        ClusterDirectory(tmp_path).read()


@pytest.mark.parametrize(("was_managed", "kind"), [(True, "managed"), (False, "external")])
def test_record_of_an_older_version_has_apache_or_external_zookeeper(
    tmp_path: Path, was_managed: bool, kind: str
) -> None:
    ClusterDirectory(tmp_path).write(RECORD)
    file = tmp_path / "cluster.json"
    former = json.loads(file.read_text())
    del former["zookeeper"]["kind"]
    former["zookeeper"]["managed"] = was_managed
    file.write_text(json.dumps(former))
    assert ClusterDirectory(tmp_path).read() == replace(RECORD, zookeeper_kind=kind)


@pytest.mark.parametrize("kind", ["embedded", "managed", "external"])
def test_record_has_the_field_of_zookeeper_that_older_versions_read(
    tmp_path: Path, kind: str
) -> None:
    ClusterDirectory(tmp_path).write(replace(RECORD, zookeeper_kind=kind))
    assert ClusterDirectory(tmp_path).read() == replace(RECORD, zookeeper_kind=kind)
    written = json.loads((tmp_path / "cluster.json").read_text())
    assert written["zookeeper"]["managed"] == (kind != "external")


def test_record_with_an_unknown_kind_of_zookeeper_is_refused(tmp_path: Path) -> None:
    ClusterDirectory(tmp_path).write(replace(RECORD, zookeeper_kind="other"))
    with pytest.raises(ClusterError, match="kind 'other'"):
        ClusterDirectory(tmp_path).read()


def test_record_of_an_older_version_has_the_controller_mode(tmp_path: Path) -> None:
    ClusterDirectory(tmp_path).write(RECORD)
    file = tmp_path / "cluster.json"
    former = json.loads(file.read_text())
    del former["coordination"]
    file.write_text(json.dumps(former))
    assert ClusterDirectory(tmp_path).read() == replace(RECORD, coordination="controller")
    file.write_text(json.dumps(former | {"coordination": "nobody"}))
    with pytest.raises(ClusterError, match="coordination 'nobody'"):
        ClusterDirectory(tmp_path).read()


@pytest.mark.parametrize(
    "changed",
    [
        {"id": 2**63},
        {"id": -1},
        {"port": 65_536},
        {"control_port": -1},
        {"port": float("inf")},
        None,
    ],
    ids=repr,
)
def test_cluster_record_without_brokers_or_with_a_number_out_of_range_is_refused(
    tmp_path: Path, changed: dict[str, float] | None
) -> None:
    ClusterDirectory(tmp_path).write(RECORD)
    file = tmp_path / "cluster.json"
    record = json.loads(file.read_text())
    record["brokers"] = [] if changed is None else [record["brokers"][0] | changed]
    file.write_text(json.dumps(record))
    with pytest.raises(ClusterError, match=r"cluster\.json is invalid"):
        ClusterDirectory(tmp_path).read()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"brokers": [{}]}', "\0"])
def test_error_about_an_invalid_cluster_record_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(ClusterError, match=r"cluster\.json is invalid") as caught:
        ClusterDirectory(tmp_path).read()
    assert "\n" not in str(caught.value)


def test_error_about_an_unknown_broker_lists_the_known_ones() -> None:
    with pytest.raises(ClusterError, match="no broker 7, the cluster has 1, 2"):
        RECORD.broker(7)


def test_with_broker_replaces_only_the_broker_record_with_the_same_broker_id() -> None:
    changed = BrokerRecord(2, 9999, 20002)
    assert RECORD.with_broker(changed).brokers == (RECORD.brokers[0], changed)


def test_private_cluster_secret_is_kept_until_the_user_supplies_another_secret(
    tmp_path: Path,
) -> None:
    directory = ClusterDirectory(tmp_path)
    secret = directory.secret(SystemRng())
    assert len(secret) >= 32
    assert directory.secret(SystemRng()) == secret
    assert mode(tmp_path / "secret") == 0o600
    assert directory.secret(SystemRng(), "chosen by the user") == "chosen by the user"
    assert directory.secret(SystemRng()) == "chosen by the user"


def test_broker_config_file_is_private_and_contains_the_settings_written_to_it(
    tmp_path: Path,
) -> None:
    directory = ClusterDirectory(tmp_path)
    keys: dict[str, object] = {
        "broker.id": 3,
        "broker.rack": 'a "quoted" \\ räck',
        "auto.create.topics.enable": False,
        "log.cleaner.min.cleanable.ratio": 0.25,
        "log.dirs": [str(tmp_path / "broker-3")],
    }
    file = directory.write_broker_file(3, keys)
    assert mode(file) == 0o600
    assert tomllib.loads(file.read_text())["broker"] == keys
    assert BrokerConfig.parse(file.read_text()).broker_id == 3


async def test_data_directory_lock_is_held_by_one_command_at_a_time(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    async with directory.locked(SystemClock()):
        with (tmp_path / "lock").open("ab") as file:
            assert not try_lock(file.fileno())
    with (tmp_path / "lock").open("ab") as file:
        assert try_lock(file.fileno())


async def test_data_directory_and_its_lock_are_closed_to_other_users(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    for path, mode in ((tmp_path, 0o755), (tmp_path / "lock", 0o644)):
        path.chmod(mode)
    async with ClusterDirectory(tmp_path).locked(SystemClock()):
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, tmp_path / "lock")]
    assert modes == [0o700, 0o600]


async def test_command_that_waits_for_the_lock_names_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalCluster(data=tmp_path)
    directory, clock = cluster.directory, SystemClock()
    reason = until_serving(cluster, None)
    async with ClusterDirectory(tmp_path).locked(clock):
        waiting = asyncio.create_task(entered(directory.locked(clock)))
        while not directory.lock_holder:
            await clock.sleep(1)
        holder = f"process {os.getpid()} "
        assert f"the lock of {tmp_path}: {holder}" in await reason()
    await waiting
    assert holder not in await reason()
    monkeypatch.setattr("minikafka.tools.cluster.directory._LOCK_TIMEOUT_MS", 0)
    async with ClusterDirectory(tmp_path).locked(clock):
        with pytest.raises(ClusterError, match=f"is in use: {holder}.*end it"):
            await entered(directory.locked(clock))


async def entered(lock: AbstractAsyncContextManager[None]) -> None:
    async with lock:
        pass


async def test_data_directory_created_for_its_lock_is_removed_if_nothing_else_is_in_it(
    tmp_path: Path,
) -> None:
    directory = ClusterDirectory(tmp_path / "data")
    with pytest.raises(ClusterError, match="failed"):
        async with directory.locked(SystemClock()):
            raise ClusterError("failed")
    assert not directory.path.exists()
    async with directory.locked(SystemClock()):
        (directory.path / "file").touch()
    assert (directory.path / "lock").exists()


async def test_data_directory_that_existed_before_its_lock_is_not_removed(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    async with directory.locked(SystemClock()):
        pass
    assert directory.path.exists()


async def test_lock_file_removed_while_waiting_for_it_is_created_again(
    tmp_path: Path,
) -> None:
    directory = ClusterDirectory(tmp_path / "data")
    clock = SystemClock()
    entered: list[int] = []

    async def enter(number: int) -> None:
        async with directory.locked(clock):
            entered.append(number)
            with (directory.path / "lock").open("ab") as file:
                assert not try_lock(file.fileno())

    async with directory.locked(clock):
        waiting = [asyncio.create_task(enter(number)) for number in range(2)]
        await clock.sleep(0)
    await asyncio.gather(*waiting)
    assert sorted(entered) == [0, 1]


def test_cluster_id_is_read_from_the_brokers_data(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    assert directory.cluster_id(1) is None
    data = directory.broker_data(1)
    data.mkdir()
    (data / "meta.properties").write_text("#\nbroker.id=1\nversion=0\ncluster.id=abc-DEF_123==\n")
    assert directory.cluster_id(1) == "abc-DEF_123=="


@pytest.mark.parametrize("content", [b"\xff\xfe", bytes(range(256)), b"cluster.id=a\tb\n", b"x"])
def test_cluster_id_is_none_when_meta_properties_is_damaged(tmp_path: Path, content: bytes) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.broker_data(1).mkdir()
    (directory.broker_data(1) / "meta.properties").write_bytes(content)
    assert directory.cluster_id(1) is None


def test_error_about_a_secret_that_is_not_text_names_the_secret_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xff\xfe")
    with pytest.raises(ClusterError, match="secret is not text: stop the cluster and remove"):
        ClusterDirectory(tmp_path).secret(SystemRng())


def test_data_directory_whose_path_is_not_utf8_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = Path(os.fsdecode(os.fsencode(tmp_path) + b"/d\xff"))
    with pytest.raises(ClusterError, match=r"d\\xff', is not UTF-8: .*Rename it") as refused:
        ClusterDirectory(named)
    assert str(refused.value).isprintable()
    named.mkdir()
    monkeypatch.chdir(named)
    with pytest.raises(ClusterError, match="is not UTF-8"):
        ClusterDirectory(Path("data"))
