"""One log directory: names, checkpoints, symbolic links, deletions and disk failures."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest
from support.storage.logs import batch, config, offsets, produce, read_all

from minikafka.base.errors import ConfigError, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.runtime.storage import DiskStorage
from minikafka.simulation.files import former_bytes, some_names
from minikafka.simulation.ports import InlineExecutor
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.directory import LogDirectory

TP = TopicPartition("a-b.c", 12)


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def directory(storage: MemoryStorage) -> LogDirectory:
    directory = LogDirectory(storage, "/d")
    directory.lock()
    return directory


def test_a_topic_name_may_hold_dashes_and_dots(
    storage: MemoryStorage, directory: LogDirectory
) -> None:
    directory.create(TP, config())
    assert storage.is_directory("/d/a-b.c-12")
    again = LogDirectory(storage.clone(), "/d")
    again.open_logs(config())
    assert list(again.logs) == [TP]


def test_first_start_does_not_log_an_unclean_stop(
    storage: MemoryStorage, directory: LogDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        directory.open_logs(config())
        assert caplog.messages == ["/d: has no logs yet"]
        directory.create(TP, config())
        LogDirectory(storage.clone(), "/d").open_logs(config())
    assert caplog.messages[-2:] == [
        "/d: opening 1 logs after an unclean stop",
        "/d: opened all logs",
    ]


def test_empty_checkpoint_which_kafka_makes_is_no_invalid_file(
    storage: MemoryStorage, directory: LogDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    storage.write_atomically("/d/cleaner-offset-checkpoint", b"")
    directory.open_logs(config())
    assert caplog.messages == []


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"\0\0",
        bytes(range(256)),
        "version=0\nbroker.id=²\n".encode(),
        b"version=0\ncluster.id=a b\n",
        b"",
        b"broker.id=1\n",
        b"version=1\nnode.id=1\ncluster.id=a\n",
    ],
)
def test_invalid_meta_properties_error_names_the_file(
    storage: MemoryStorage, directory: LogDirectory, content: bytes
) -> None:
    storage.write_atomically("/d/meta.properties", content)
    with pytest.raises(ConfigError, match=r"/d/meta\.properties is invalid"):
        directory.read_properties()


def test_a_checkpoint_is_written_only_when_it_changed(
    storage: MemoryStorage, directory: LogDirectory
) -> None:
    log = directory.create(TP, config())
    directory.write_high_watermarks({TP: 0})
    storage.fail("/d/replication-offset-checkpoint")
    directory.write_high_watermarks({TP: 0})
    storage.heal()
    produce(log, 3)
    directory.write_high_watermarks({TP: 3})
    assert storage.read("/d/replication-offset-checkpoint") == b"0\n1\na-b.c 12 3\n"


def test_rename_for_deletion_avoids_an_existing_name(
    storage: MemoryStorage, directory: LogDirectory
) -> None:
    paths = []
    for _ in range(2):
        directory.create(TP, config())
        paths.append(directory.move_aside(TP, 7, "-stray"))
    assert paths == [f"/d/a-b.c-12.{7:032x}-stray", f"/d/a-b.c-12.{8:032x}-stray"]


def test_directory_on_a_failed_disk_is_closed_without_a_clean_stop_file(
    storage: MemoryStorage, directory: LogDirectory
) -> None:
    produce(directory.create(TP, config()), 1)
    storage.fail("/d", errno.EIO)
    directory.abandon()
    assert storage.locks == {}
    assert not storage.exists("/d/.kafka_cleanshutdown")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_new_log_does_not_get_the_checkpointed_offsets_of_an_earlier_log(
    storage: MemoryStorage, directory: LogDirectory, is_restarted: bool
) -> None:
    """With the old offsets, unreplicated records would count as committed, and unsynced records as durable."""
    log = directory.create(TP, config())
    produce(log, *[1] * 50)
    log.advance_log_start_offset(7)
    log.sync()
    directory.write_high_watermarks({TP: 50})
    directory.write_recovery_points()
    directory.write_log_starts()
    if is_restarted:
        storage = storage.clone()
        directory = LogDirectory(storage, "/d")
        directory.lock()
        directory.open_logs(config())
    directory.move_aside(TP, 1, "-delete")
    log = directory.create(TP, config())
    produce(log, *[1] * 60)
    again = LogDirectory(storage.clone(), "/d")
    again.open_logs(config())
    assert again.high_watermarks[TP] == 0
    assert (again.logs[TP].log_start_offset, again.logs[TP].recovery_point) == (0, 0)
    assert again.logs[TP].log_end_offset == 60


DELETED = f"t-0.{7:032x}-delete"


def of_disk(path: Path) -> LogDirectory:
    """Return a locked log directory on the disk of this machine, without the file that a clean stop writes."""
    directory = LogDirectory(DiskStorage(), str(path / "d"))
    directory.lock()
    return directory


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
@pytest.mark.parametrize("name", ["t-0", DELETED])
def test_replica_directory_that_is_a_symbolic_link_is_refused_with_its_name(
    tmp_path: Path, name: str, target: str
) -> None:
    directory = of_disk(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_bytes(b"mine")
    link = tmp_path / "d" / name
    link.symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match=f"{name} must not be a symbolic link"):
        directory.open_logs(config())
    assert link.is_symlink()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["precious"]


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_new_replica_is_not_written_through_a_symbolic_link(tmp_path: Path, target: str) -> None:
    directory = of_disk(tmp_path)
    directory.open_logs(config())
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "d" / "t-0").symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match="t-0 must not be a symbolic link"):
        directory.create(TopicPartition("t", 0), config())
    assert not (tmp_path / "nowhere").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_segment_that_is_a_symbolic_link_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "d" / "t-0").mkdir(parents=True)
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / "d" / "t-0" / f"{0:020d}.log").symlink_to(tmp_path / "precious")
    with pytest.raises(StorageFailed, match=r"t-0/0{20}\.log: is a symbolic link"):
        of_disk(tmp_path).open_logs(config())
    assert (tmp_path / "precious").read_bytes() == b"mine"


def test_symbolic_links_without_a_partition_name_are_ignored(tmp_path: Path) -> None:
    directory = of_disk(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "d" / "notes").symlink_to(tmp_path / "notes")
    directory.open_logs(config())
    assert directory.logs == {}


@pytest.mark.row("R66")
@pytest.mark.parametrize("removed", [[], [f"{0:020d}.log"], ["partition.metadata"]])
def test_replica_whose_deletion_was_interrupted_is_deleted_at_the_next_start(
    tmp_path: Path, removed: list[str]
) -> None:
    """A kill may come before the deletion, or after the deletion of some of the files."""
    directory = of_disk(tmp_path)
    for tp in (TP, TopicPartition("t", 0)):
        log = directory.create(tp, config())
        directory.assign_topic_id(log, bytes(16))
        produce(log, 3)
    aside = Path(directory.move_aside(TopicPartition("t", 0), 7, "-delete"))
    for name in removed:
        (aside / name).unlink()
    directory.abandon()
    again = of_disk(tmp_path)
    again.open_logs(config())
    assert list(again.logs) == [TP]
    assert not aside.exists()


@pytest.mark.parametrize(
    "name",
    ["do-not-delete", "-delete", "t-0.7-delete", f"t-0.{7:032X}-delete ", f"ü.{7:032x}-delete"],
)
def test_directory_whose_name_only_resembles_one_renamed_for_deletion_is_kept(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "d" / name).mkdir(parents=True)
    of_disk(tmp_path).open_logs(config())
    assert (tmp_path / "d" / name).exists()


@pytest.mark.parametrize("stem", ["²" * 20, "٣" * 20, "7", f"{2**63:020d}", f"{0:019d}"])
@pytest.mark.parametrize("suffix", [".log", ".snapshot", ".index"])
def test_file_whose_name_is_not_an_offset_is_ignored(
    tmp_path: Path, stem: str, suffix: str
) -> None:
    directory = of_disk(tmp_path)
    produce(directory.create(TP, config()), 3)
    (tmp_path / "d" / str(TP) / f"{stem}{suffix}").write_bytes(b"junk")
    directory.abandon()
    again = of_disk(tmp_path)
    again.open_logs(config())
    assert again.logs[TP].log_end_offset == 3


async def test_kill_at_any_write_of_the_cleaner_checkpoint_leaves_no_temporary_file(
    storage: MemoryStorage, directory: LogDirectory
) -> None:
    log = directory.create(TP, config(cleanup_policy=("compact",)))
    log.gaps.mark(0)
    killed: list[MemoryStorage] = []
    storage.before_change = lambda path: killed.append(storage.clone())
    await directory.write_first_dirty_offsets_in(InlineExecutor())
    assert any(name.endswith(".next.tmp") for each in killed for name in each.names("/d"))
    for each in killed:
        LogDirectory(each, "/d").open_logs(config(cleanup_policy=("compact",)))
        assert not [name for name in each.names("/d") if ".next" in name]


def test_truncation_removes_the_log_start_from_its_checkpoint_before_any_record(
    storage: MemoryStorage, directory: LogDirectory
) -> None:
    log = directory.create(TP, config())
    produce(log, *[1] * 10)
    log.sync()
    log.advance_log_start_offset(5)
    directory.write_log_starts(sync=True)
    directory.write_recovery_points(sync=True)
    log.truncate_fully_and_start_at(0)
    left = storage.power_cut(former_bytes)
    assert left.read("/d/log-start-offset-checkpoint") == b"0\n0\n"
    assert left.read("/d/recovery-point-offset-checkpoint") == b"0\n1\na-b.c 12 0\n"


def test_power_loss_during_the_removal_of_the_first_segments_loses_no_later_record(
    storage: MemoryStorage, directory: LogDirectory
) -> None:
    settings = config(segment_bytes=2 * len(batch()))
    log = directory.create(TP, settings)
    produce(log, *[1] * 12)
    log.sync()
    directory.write_recovery_points(sync=True)
    log.advance_log_start_offset(7)
    directory.write_log_starts(sync=True)
    images: list[MemoryStorage] = []
    storage.before_change = lambda path: images.extend(
        storage.power_cut(former_bytes, some_names(len(images) + seed)) for seed in range(3)
    )
    log.remove_first_segments(3)
    directory.retired.take_due(0, 10)
    for segment in directory.retired.take_due(10**12, 10):
        for path in segment.paths():
            storage.remove(path + ".deleted")
    assert len(images) > 40
    for number, image in enumerate(images):
        again = LogDirectory(image, "/d")
        again.open_logs(settings)
        found = again.logs[TP]
        assert (found.log_start_offset, found.log_end_offset) == (7, 12), number
        assert offsets(read_all(found)) == list(range(6, 12)), number
        names = image.names(found.directory)
        assert not [name for name in names if name.endswith(".deleted")], number
