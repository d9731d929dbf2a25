"""A snapshot of a cluster links segments: no later change of the log reaches the bytes that the other name had."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.storage.logs import batch, open_log, produce, read_all, three_segments

from minikafka.base.ports import Storage
from minikafka.runtime.storage import DiskStorage
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.log import Log

SEGMENTS = tuple(f"{base:020d}.log" for base in (0, 10, 20))


class Linked:
    """A log of three segments that are linked elsewhere, on a disk."""

    def __init__(self, directory: Path) -> None:
        self.storage = DiskStorage()
        self.path = directory / "t-0"
        self.path.mkdir()
        self.log = self._three_segments()
        self.all = read_all(self.log)
        self.other = directory / "snapshot"
        self.other.mkdir()
        for name in SEGMENTS:
            os.link(self.path / name, self.other / name)
        self.kept = {name: (self.other / name).read_bytes() for name in SEGMENTS}

    def _three_segments(self) -> Log:
        size = len(batch())
        log = self._open(segment_bytes=10 * size)
        for i in range(25):
            produce(log, 1, epoch=i // 8, timestamp=1000 + i)
        return log

    def _open(self, **settings: int) -> Log:
        return open_log(self.storage, directory=str(self.path), **settings)

    def recover(self) -> Log:
        """Open the log again as after a crash."""
        self.log.abandon()
        self.log = self._open()
        return self.log

    def is_unchanged(self) -> bool:
        """True if the other names still begin with the bytes of the moment at which they were made."""
        return all(
            (self.other / name).read_bytes().startswith(self.kept[name]) for name in SEGMENTS
        )


@pytest.fixture
def linked(tmp_path: Path) -> Linked:
    return Linked(tmp_path)


def test_truncation_of_a_linked_segment_leaves_the_other_name_unchanged(linked: Linked) -> None:
    linked.log.truncate_to(5)
    produce(linked.log, 1, 1, epoch=9, size=30)
    assert linked.is_unchanged()
    assert linked.log.log_end_offset == 7


def test_append_to_a_linked_segment_that_is_active_again_leaves_the_other_name_unchanged(
    linked: Linked,
) -> None:
    linked.log.truncate_to(20)  # at a boundary: no byte of the segment before is cut
    produce(linked.log, 1, epoch=9)
    linked.log.truncate_to(10)
    produce(linked.log, 1, epoch=9)
    assert linked.is_unchanged()


def test_truncation_of_the_linked_active_segment_leaves_the_other_name_unchanged(
    linked: Linked,
) -> None:
    produce(linked.log, 1)
    linked.log.truncate_to(22)
    produce(linked.log, 1, 1, epoch=9, size=30)
    assert linked.is_unchanged()
    linked.log.truncate_fully_and_start_at(20)  # a file with this name is made again
    produce(linked.log, 1, epoch=10)
    assert linked.is_unchanged()


def test_append_after_the_active_segment_was_lost_leaves_the_other_name_unchanged(
    linked: Linked,
) -> None:
    linked.log.abandon()
    (linked.path / "00000000000000000020.log").unlink()
    log = linked.recover()
    assert log.log_end_offset == 20
    produce(log, 1, epoch=9)
    assert linked.is_unchanged()


def test_recovery_that_cuts_a_linked_segment_leaves_the_other_name_unchanged(
    linked: Linked,
) -> None:
    """A batch of the segment was damaged before it was linked, so that recovery cuts the log there."""
    path = linked.path / SEGMENTS[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)  # into the same file: both names have it
    linked.kept[SEGMENTS[1]] = bytes(data)
    log = linked.recover()
    assert 10 <= log.log_end_offset < 20
    produce(log, 1, epoch=9)
    assert linked.is_unchanged()


def test_log_reads_its_records_after_a_link_has_ended(linked: Linked) -> None:
    linked.log.truncate_to(15)
    assert linked.all.startswith(kept := read_all(linked.log))
    assert linked.recover().log_end_offset == 15
    assert read_all(linked.log) == kept


def test_link_of_a_file_ends_once(linked: Linked) -> None:
    linked.log.truncate_to(15)
    own = (linked.path / SEGMENTS[1]).stat()
    assert own.st_nlink == 1
    linked.log.truncate_to(12)
    assert (linked.path / SEGMENTS[1]).stat().st_ino == own.st_ino


@pytest.mark.parametrize("storage", [DiskStorage(), MemoryStorage()], ids=["disk", "memory"])
def test_file_with_two_names_has_its_own_content_after_a_truncation(
    storage: Storage, tmp_path: Path
) -> None:
    folder = str(tmp_path)
    storage.make_directories(folder)
    file = storage.open(f"{folder}/a", create=True)
    file.pwritev([b"before"], 0)
    assert storage.link(f"{folder}/a", f"{folder}/b")
    file.truncate(3)
    file.pwritev([b"later"], 3)
    file.close()
    assert storage.read(f"{folder}/b") == b"before"
    assert storage.read(f"{folder}/a") == b"beflater"
    assert storage.names(folder) == ["a", "b"]


def test_memory_log_ends_links_as_a_disk_does() -> None:
    storage = MemoryStorage()
    log = three_segments(storage)
    storage.make_directories("/s")
    assert storage.link(f"{log.directory}/{SEGMENTS[1]}", "/s/kept")
    before = storage.read("/s/kept")
    log.truncate_to(15)
    produce(log, 1, epoch=9)
    assert storage.read("/s/kept") == before
