"""Snapshots of a cluster without processes: their files, their names, and what is no snapshot."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from minikafka.base.zookeeper import EXTERNAL, MANAGED
from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.tools.cluster.time_and_state import snapshots as module
from minikafka.tools.cluster.time_and_state.copied_files import CopiedFiles, replace_content
from minikafka.tools.cluster.time_and_state.snapshot import ABOUT, RESTORING, Snapshots

SEALED, ACTIVE = f"{0:020d}", f"{7:020d}"


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """A cluster that is down, with one partition of two segments on its broker."""
    found = LocalCluster(1, data=tmp_path)
    launcher = found._launcher()
    launcher.write(launcher.plan(None))
    replica = found.directory.broker_data(1) / "t-0"
    replica.mkdir(parents=True)
    for name in (f"{SEALED}.log", f"{SEALED}.index", f"{ACTIVE}.log", "partition.metadata"):
        (replica / name).write_text(f"the content of {name}")
    (found.directory.broker_data(1) / ".lock").touch()
    (found.directory.zookeeper_data / "version-2").mkdir(parents=True)
    (found.directory.zookeeper_data / "version-2" / "log.1").write_text("a transaction")
    return found


def take(cluster: LocalCluster, name: str) -> Path:
    asyncio.run(cluster.snapshot(name))
    return cluster.directory.path / "snapshots" / name


def restore_files(cluster: LocalCluster, name: str) -> None:
    """Replace the data of the cluster by those of the snapshot, without a start."""
    found = Snapshots(cluster.directory)
    asyncio.run(cluster._replace_data(found, found.read(name)))


def test_snapshot_links_sealed_segments_and_copies_everything_else(cluster: LocalCluster) -> None:
    kept = take(cluster, "a") / "broker-1" / "t-0"
    links = {name: (kept / name).stat().st_nlink for name in os.listdir(kept)}
    assert links == {
        f"{SEALED}.log": 2,
        f"{SEALED}.index": 2,
        f"{ACTIVE}.log": 1,
        "partition.metadata": 1,
    }
    assert not (kept.parent / ".lock").exists()


def test_restore_brings_each_file_back_and_keeps_the_directory(cluster: LocalCluster) -> None:
    data = cluster.directory.broker_data(1)
    before = data.stat().st_ino
    take(cluster, "a")
    (data / "t-0" / f"{ACTIVE}.log").write_text("later")
    (data / "u-0").mkdir()
    for _ in range(2):
        restore_files(cluster, "a")
        assert (data / "t-0" / f"{ACTIVE}.log").read_text() == f"the content of {ACTIVE}.log"
        assert sorted(os.listdir(data)) == [".lock", "t-0"]
        (data / "t-0" / f"{ACTIVE}.log").write_text("later again")
    assert data.stat().st_ino == before


def test_unfinished_files_of_a_broker_are_left_out(tmp_path: Path) -> None:
    source = tmp_path / "t-0"
    (source / f"u-0.{'0' * 32}-delete").mkdir(parents=True)
    for name in (f"{SEALED}.log.cleaned", f"{SEALED}.log.deleted", "x.tmp", f"{SEALED}.log.swap"):
        (source / name).touch()
    CopiedFiles(tmp_path).copy(source, "copy")
    assert os.listdir(tmp_path / "copy") == [f"{SEALED}.log.swap"]


@pytest.mark.parametrize("name", ["a/b", "..", ".a", "", "-a", "ä", "a" * 101, "a b"])
def test_invalid_name_is_refused(cluster: LocalCluster, name: str) -> None:
    for work in (cluster.snapshot(name), cluster.restore(name)):
        with pytest.raises(ClusterError, match="cannot name a snapshot"):
            asyncio.run(work)
    with pytest.raises(ClusterError, match="cannot name a snapshot"):
        cluster.remove_snapshot(name)


def test_used_name_is_refused_and_the_snapshot_stays(cluster: LocalCluster) -> None:
    file = take(cluster, "a") / ABOUT
    before = file.read_text()
    with pytest.raises(ClusterError, match="there is a snapshot a already"):
        asyncio.run(cluster.snapshot("a"))
    assert file.read_text() == before


def test_unknown_snapshot_is_refused_with_the_known_names(cluster: LocalCluster) -> None:
    take(cluster, "one")
    take(cluster, "two")
    with pytest.raises(ClusterError, match=r"no snapshot three in .*; there are: one, two"):
        asyncio.run(cluster.restore("three"))
    with pytest.raises(ClusterError, match="no snapshot three"):
        cluster.remove_snapshot("three")


def test_snapshot_is_removed_and_its_name_is_free_again(cluster: LocalCluster) -> None:
    take(cluster, "a")
    cluster.remove_snapshot("a")
    assert cluster.snapshots() == []
    take(cluster, "a")
    assert [one.name for one in cluster.snapshots()] == ["a"]


def test_interrupted_snapshot_is_none_and_the_next_one_removes_it(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = cluster.directory.path / "snapshots" / ".a"
    (left / "broker-1").mkdir(parents=True)
    assert cluster.snapshots() == []
    with pytest.raises(ClusterError, match="there is no snapshot a in"):
        asyncio.run(cluster.restore("a"))
    take(cluster, "b")
    assert not left.exists()

    def full(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(CopiedFiles, "copy", full)
    with pytest.raises(OSError, match="no space"):
        asyncio.run(cluster.snapshot("c"))
    assert [one.name for one in cluster.snapshots()] == ["b"]
    assert os.listdir(cluster.directory.path / "snapshots") == ["b"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"coordination": "leaders"}, "coordination controller, here leaders"),
        ({"zookeeper_kind": MANAGED}, "ZooKeeper embedded, here managed"),
        ({"is_secure": True}, "security off, here on"),
    ],
)
def test_snapshot_of_another_kind_of_cluster_is_refused(
    cluster: LocalCluster, change: dict[str, object], words: str
) -> None:
    take(cluster, "a")
    cluster.directory.write(replace(cluster.record, **change))  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match=f"snapshot a does not fit this cluster: {words}"):
        asyncio.run(cluster.restore("a"))


def test_snapshot_of_other_brokers_is_refused(cluster: LocalCluster) -> None:
    take(cluster, "a")
    record = cluster.record
    more = (*record.brokers, replace(record.brokers[0], id=2))
    cluster.directory.write(replace(record, brokers=more))
    with pytest.raises(ClusterError, match="does not fit this cluster: brokers 1, here 1, 2"):
        asyncio.run(cluster.restore("a"))


def test_cluster_with_an_external_zookeeper_has_no_snapshots(cluster: LocalCluster) -> None:
    cluster.directory.write(replace(cluster.record, zookeeper_kind=EXTERNAL))
    with pytest.raises(ClusterError, match=r"uses the ZooKeeper at 127\.0\.0\.1:.*does not run"):
        asyncio.run(cluster.snapshot("a"))


def test_segment_that_grew_after_the_snapshot_is_restored_as_it_was(cluster: LocalCluster) -> None:
    """A large active segment is linked, and so is a sealed one that a broker may make active again."""
    replica = cluster.directory.broker_data(1) / "t-0"
    (replica / f"{ACTIVE}.log").write_bytes(large := bytes(range(256)) * 4096)
    os.utime(replica / f"{ACTIVE}.log", ns=(1, 1_700_000_000_000_000_000))
    kept = take(cluster, "a") / "broker-1" / "t-0"
    assert (kept / f"{ACTIVE}.log").stat().st_nlink == 2
    for _ in range(2):
        for name in (SEALED, ACTIVE):
            with (replica / f"{name}.log").open("ab") as file:
                file.write(b"later")
        restore_files(cluster, "a")
        assert (replica / f"{ACTIVE}.log").read_bytes() == large
        assert (replica / f"{SEALED}.log").read_text() == f"the content of {SEALED}.log"
        assert (replica / f"{ACTIVE}.log").stat().st_nlink == 1
        assert (replica / f"{ACTIVE}.log").stat().st_mtime == 1_700_000_000


def test_snapshot_whose_linked_file_was_cut_is_refused(cluster: LocalCluster) -> None:
    take(cluster, "a")
    with (cluster.directory.broker_data(1) / "t-0" / f"{SEALED}.log").open("a") as file:
        file.truncate(38)
    with pytest.raises(ClusterError, match=r"snapshot a is damaged: .* had 39 bytes and has 38"):
        asyncio.run(cluster.restore("a"))


def test_snapshot_with_an_unreadable_description_is_refused(cluster: LocalCluster) -> None:
    (take(cluster, "a") / ABOUT).write_text("{")
    with pytest.raises(ClusterError, match="snapshot a is damaged"):
        asyncio.run(cluster.restore("a"))
    cluster.remove_snapshot("a")
    assert cluster.snapshots() == []


def test_interrupted_restore_prevents_starts_until_it_is_repeated(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(cluster, "a")

    def dies(directory: Path, new: Path, former: Path) -> None:
        replace_content(directory, new, former)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "replace_content", dies)
    with pytest.raises(KeyboardInterrupt):
        restore_files(cluster, "a")
    monkeypatch.undo()
    for start in (cluster.start(), cluster.start(1), cluster.start_zookeeper()):
        with pytest.raises(ClusterError, match=r"the restore of snapshot a .* was interrupted"):
            asyncio.run(start)
    restore_files(cluster, "a")
    assert not (cluster.directory.path / RESTORING).exists()
    replica = cluster.directory.broker_data(1) / "t-0"
    assert (replica / f"{ACTIVE}.log").read_text() == f"the content of {ACTIVE}.log"
    assert (cluster.directory.zookeeper_data / "version-2" / "log.1").exists()
