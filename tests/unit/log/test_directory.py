"""One log directory: the names of logs, and closing it after a disk failure."""

from __future__ import annotations

import errno

import pytest
from support.logs import config, produce
from support.memory_storage import MemoryStorage

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.log.directory import LogDirectory

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


def test_invalid_meta_properties_error_names_the_file(
    storage: MemoryStorage, directory: LogDirectory
) -> None:
    storage.write_atomically("/d/meta.properties", b"\xff\xfe")
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


def test_directory_on_a_failed_disk_can_be_abandoned(
    storage: MemoryStorage, directory: LogDirectory
) -> None:
    produce(directory.create(TP, config()), 1)
    storage.fail("/d", errno.EIO)
    directory.abandon()
    assert storage.locks == {}
    assert not storage.exists("/d/.kafka_cleanshutdown")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_new_log_has_no_checkpointed_offsets_of_an_earlier_one(
    storage: MemoryStorage, directory: LogDirectory, is_restarted: bool
) -> None:
    """Otherwise records that were never replicated or synced would count as committed or durable."""
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
