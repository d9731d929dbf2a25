"""A disk with faults fails as Linux lets it fail, counts what it hits, and keeps its faults over a restart."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from minikafka.base.disk_faults import FAILED_SYNC, FULL, SLOW_SYNC, DiskFault
from minikafka.base.errors import StorageFailed
from minikafka.runtime.disk_faults import (
    DiskFaults,
    FaultyCleaners,
    FaultyStorage,
    read_faults,
    size_of,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    (directory / "t-0").mkdir(parents=True)
    (directory / "t-0" / "0.log").write_bytes(b"x" * 100)
    return directory


@pytest.fixture
def faults(tmp_path: Path) -> DiskFaults:
    return DiskFaults(str(tmp_path / "faults.json"))


def fill(faults: DiskFaults, data: Path, free: int = 0) -> None:
    faults.replace([DiskFault("f", FULL, str(data), size_of(str(data)) + free)])


def refused(error: pytest.ExceptionInfo[StorageFailed]) -> int | None:
    return error.value.cause.errno


def test_write_that_does_not_fit_writes_the_bytes_that_fit(data: Path, faults: DiskFaults):
    file = FaultyStorage(faults).open(str(data / "t-0" / "0.log"))
    fill(faults, data, free=10)

    assert file.pwritev([b"a" * 4, b"b" * 2], 100) == 6
    with pytest.raises(StorageFailed) as error:
        file.pwritev([b"c" * 3, b"d" * 5], 106)

    assert refused(error) == errno.ENOSPC
    assert (data / "t-0" / "0.log").read_bytes()[100:] == b"aaaabbcccd"
    assert [fault.hits for fault in faults.active] == [1]


def test_full_disk_lets_bytes_be_overwritten_and_read(data: Path, faults: DiskFaults):
    file = FaultyStorage(faults).open(str(data / "t-0" / "0.log"))
    fill(faults, data)

    assert file.pwritev([b"yy"], 98) == 2
    assert file.pread(4, 96) == b"xxyy"
    assert faults.active[0].hits == 0


def test_removed_file_gives_its_bytes_back(data: Path, faults: DiskFaults):
    storage = FaultyStorage(faults)
    (data / "old").write_bytes(b"o" * 50)
    file = storage.open(str(data / "t-0" / "0.log"))
    fill(faults, data)
    with pytest.raises(StorageFailed):
        file.pwritev([b"z"], 100)

    storage.remove(str(data / "old"))

    assert file.pwritev([b"z" * 50], 100) == 50
    assert storage.room(str(data))[1] == 0


@pytest.mark.parametrize("what", ["truncate", "write_atomically", "make_directories"])
def test_full_disk_refuses_what_needs_room(data: Path, faults: DiskFaults, what: str):
    storage = FaultyStorage(faults)
    file = storage.open(str(data / "t-0" / "0.log"))
    (data / "state").write_bytes(b"old")
    fill(faults, data)

    with pytest.raises(StorageFailed) as error:
        {
            "truncate": lambda: file.truncate(101),
            "write_atomically": lambda: storage.write_atomically(str(data / "state"), b"new"),
            "make_directories": lambda: storage.make_directories(str(data / "t-1")),
        }[what]()

    assert refused(error) == errno.ENOSPC
    assert (data / "state").read_bytes() == b"old"
    assert not (data / "t-1").exists()


def test_fault_concerns_no_other_directory(tmp_path: Path, data: Path, faults: DiskFaults):
    other = tmp_path / "data-2"
    other.mkdir()
    fill(faults, data)

    FaultyStorage(faults).write_atomically(str(other / "f"), b"new")

    assert (other / "f").read_bytes() == b"new"


def test_every_kind_of_sync_fails_with_an_input_error(data: Path, faults: DiskFaults):
    storage = FaultyStorage(faults)
    file = storage.open(str(data / "t-0" / "0.log"))
    faults.replace([DiskFault("f", FAILED_SYNC, str(data))])

    syncs = [
        file.sync,
        lambda: storage.sync_directory(str(data)),
        lambda: storage.write_atomically(str(data / "state"), b"new"),
        lambda: storage.make_directories(str(data / "t-1")),
        lambda: storage.rename(str(data / "t-0"), str(data / "t-2")),
    ]
    for sync in syncs:
        with pytest.raises(StorageFailed) as error:
            sync()
        assert refused(error) == errno.EIO

    assert faults.active[0].hits == 5
    assert not (data / "state").exists()
    storage.write_atomically(str(data / "state"), b"new", sync=False)


def test_sync_takes_longer_by_the_sum_of_the_faults(data: Path, faults: DiskFaults):
    file = FaultyStorage(faults).open(str(data / "t-0" / "0.log"))
    slow = [DiskFault(name, SLOW_SYNC, str(data), 20) for name in "ab"]
    faults.replace(slow)

    began = time.monotonic()
    file.sync()

    assert time.monotonic() - began >= 0.04
    assert [fault.hits for fault in faults.active] == [1, 1]


def test_faults_and_counts_outlive_the_process(tmp_path: Path, data: Path, faults: DiskFaults):
    fill(faults, data)
    with pytest.raises(StorageFailed):
        FaultyStorage(faults).make_directories(str(data / "t-1"))

    again = DiskFaults(str(tmp_path / "faults.json"))

    assert again.active == [DiskFault("f", FULL, str(data), 100, hits=1)]
    with pytest.raises(StorageFailed):
        FaultyStorage(again).make_directories(str(data / "t-1"))


def test_change_of_the_faults_keeps_the_counts_of_those_that_stay(data: Path, faults: DiskFaults):
    file = FaultyStorage(faults).open(str(data / "t-0" / "0.log"))
    slow = DiskFault("s", SLOW_SYNC, str(data), 0)
    faults.replace([slow])
    file.sync()

    faults.replace([slow, DiskFault("f", FAILED_SYNC, str(data))])

    assert [fault.hits for fault in faults.active] == [1, 0]
    faults.replace([])
    file.sync()


@pytest.mark.parametrize(("kind", "code"), [(FULL, errno.ENOSPC), (FAILED_SYNC, errno.EIO)])
async def test_cleaning_fails_as_the_disk_of_its_log(
    data: Path, faults: DiskFaults, kind: str, code: int
):
    (data / "t-0" / "00000000000000000000.log").write_bytes(b"r" * 60)
    faults.replace([DiskFault("f", kind, str(data), 210)])
    task = {"directory": str(data / "t-0"), "segments": [0]}

    async def on_group(group: object) -> None:
        raise AssertionError("nothing is cleaned")

    with pytest.raises(StorageFailed) as error:
        await FaultyCleaners(faults).clean(task, on_group)

    assert refused(error) == code


def test_file_that_does_not_exist_has_no_faults(tmp_path: Path):
    assert read_faults(tmp_path / "none.json") == []
