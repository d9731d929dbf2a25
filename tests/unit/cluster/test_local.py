"""What a cluster is given before anything starts: ids, ports, keys. No process is started here."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from minikafka.base.config import BrokerConfig, ClusterConfig
from minikafka.base.errors import ConfigError
from minikafka.cluster import ClusterError, LocalCluster
from minikafka.cluster.directory import ClusterRecord


def planned(cluster: LocalCluster) -> ClusterRecord:
    """The record that `start` would begin with, written down."""
    record = cluster._planned(cluster.directory.read())
    assert cluster.record == record
    return record


def test_ids_and_ports_stay_what_they_were(tmp_path: Path) -> None:
    first = planned(LocalCluster(3, data=tmp_path))
    assert [broker.id for broker in first.brokers] == [1, 2, 3]
    again = planned(LocalCluster(data=tmp_path, config=ClusterConfig(brokers=5, port=9092)))
    assert again == first


def test_a_first_port_is_followed_by_the_others_and_wins_over_what_was(tmp_path: Path) -> None:
    first = planned(LocalCluster(data=tmp_path, config=ClusterConfig(brokers=2, port=19000)))
    assert first.bootstrap == "127.0.0.1:19000,127.0.0.1:19001"
    moved = planned(LocalCluster(data=tmp_path, port=19500))
    assert moved.bootstrap == "127.0.0.1:19500,127.0.0.1:19501"
    assert [b.control_port for b in moved.brokers] == [b.control_port for b in first.brokers]


def test_brokers_are_added_beside_those_that_are_there(tmp_path: Path) -> None:
    two = planned(LocalCluster(2, data=tmp_path))
    three = planned(LocalCluster(3, data=tmp_path))
    assert three.brokers[:2] == two.brokers


def test_each_broker_gets_its_keys_and_the_secret_of_the_cluster(tmp_path: Path) -> None:
    config = ClusterConfig.parse(
        '[broker]\nlog.segment.bytes = 1048576\n[broker.2]\nbroker.rack = "b"\n'
    )
    cluster = LocalCluster(2, data=tmp_path, config=config)
    record = planned(cluster)
    cluster._write_broker_files(record)
    files = [BrokerConfig.parse(cluster.directory.broker_file(i).read_text()) for i in (1, 2)]
    assert [file.broker_id for file in files] == [1, 2]
    assert [file.broker_rack for file in files] == [None, "b"]
    assert {file.log_segment_bytes for file in files} == {1048576}
    assert {file.zookeeper_connect for file in files} == {record.zookeeper}
    assert len({file.minikafka_cluster_secret for file in files}) == 1
    for file, broker in zip(files, record.brokers, strict=True):
        assert file.kafka_listener == ("127.0.0.1", broker.port)
        assert file.control_listener == ("127.0.0.1", broker.control_port)


@pytest.mark.parametrize("key", ["broker.id", "listeners", "log.dirs", "zookeeper.connect"])
def test_what_the_cluster_gives_out_itself_cannot_be_set(tmp_path: Path, key: str) -> None:
    cluster = LocalCluster(1, data=tmp_path, config={key: "1"})
    with pytest.raises(ConfigError, match=f"{key} is given to each broker"):
        cluster._write_broker_files(planned(cluster))


def test_an_ensemble_of_ones_own_is_not_managed(tmp_path: Path) -> None:
    record = planned(LocalCluster(1, data=tmp_path, zookeeper="host:2181/chroot"))
    assert (record.zookeeper, record.managed) == ("host:2181/chroot", False)


def test_a_cluster_that_was_never_started_says_so(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="there is no cluster in"):
        _ = LocalCluster(data=tmp_path).bootstrap


async def test_stopping_what_was_never_started_removes_the_temporary_directory() -> None:
    cluster = LocalCluster(1)
    await cluster.stop()
    assert not await asyncio.to_thread(cluster.directory.path.exists)
