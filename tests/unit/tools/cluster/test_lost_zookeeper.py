"""The comparison of log directories with a ZooKeeper that has no data."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.zookeeper import EMBEDDED, EXTERNAL
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.storage.log import checkpoints
from minikafka.tools.cluster.directory import BrokerRecord, ClusterDirectory, ClusterRecord
from minikafka.tools.cluster.zookeeper.lost_data import known_cluster_ids, why_empty, why_lost

ID = "iDeNtItYiDeNtItYiDeNtA"


def cluster(tmp_path: Path, kind: str = EMBEDDED) -> tuple[ClusterDirectory, ClusterRecord]:
    """Return a cluster of brokers 1 and 2. Nothing listens at its ZooKeeper, and broker 2 was never started."""
    directory = ClusterDirectory(tmp_path)
    data = directory.broker_data(1)
    data.mkdir()
    content = checkpoints.encode_properties({"version": "0", "cluster.id": ID})
    (data / checkpoints.META_PROPERTIES).write_bytes(content)
    brokers = tuple(BrokerRecord(id_, 0, 0) for id_ in (1, 2))
    return directory, ClusterRecord(brokers, "127.0.0.1:1", zookeeper_kind=kind)


def test_zookeeper_without_files_has_lost_the_cluster_of_the_log_directories(
    tmp_path: Path,
) -> None:
    directory, record = cluster(tmp_path)
    assert known_cluster_ids(directory, record) == {1: ID}
    assert "brokers 1 and ZooKeeper at 127.0.0.1:1 do not match" in why_empty(directory, record)
    version = directory.zookeeper_data / "version-2"
    version.mkdir(parents=True)
    assert why_empty(directory, record)
    (version / "snapshot.0").touch()
    assert why_empty(directory, record) == ""


def test_new_cluster_and_external_zookeeper_have_lost_nothing(tmp_path: Path) -> None:
    directory, record = cluster(tmp_path, EXTERNAL)
    assert why_empty(directory, record) == ""
    assert why_empty(ClusterDirectory(tmp_path / "new"), record) == ""


@pytest.mark.parametrize("timeout_ms", [50])
async def test_zookeeper_that_does_not_answer_is_not_called_lost(
    tmp_path: Path, timeout_ms: int
) -> None:
    directory, record = cluster(tmp_path)
    assert await why_lost(directory, record, SystemClock(), SystemRng(), timeout_ms) == ""
