"""Log cleanings in real processes, on real files."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random
from struct import unpack
from typing import Any

import pytest
from support.storage.cleaning import carry_out, task, varied_log
from support.until import until

from minikafka.base.errors import CleaningFailed, StorageFailed
from minikafka.runtime.cleaner_processes import CleanerProcesses
from minikafka.runtime.cleaner_worker import CleanerThrottle
from minikafka.runtime.storage import DiskStorage
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.cleaner.task import CleaningTask

NOW = 20_000_000
SLOW = 100.0
"""Rate, in bytes per second, of a cleaning that must not end during the test."""


@pytest.fixture
async def cleaners() -> AsyncIterator[CleanerProcesses]:
    found = CleanerProcesses()
    yield found
    await found.close()


@pytest.fixture
def given(tmp_path: Path) -> CleaningTask:
    directory = str(tmp_path / "t-0")
    log = varied_log(DiskStorage(), directory, Random(1), NOW, cleanup_policy=("compact",))
    log.close()
    return task(log, NOW)


async def no_group(group: Any) -> None:
    """Ignore a group of cleaned segments."""


def test_cleaners_open_no_file_before_the_first_cleaning() -> None:
    before = os.listdir("/dev/fd")
    cleaners = CleanerProcesses()
    assert os.listdir("/dev/fd") == before
    del cleaners


async def test_cleaning_fails_when_the_shared_throttle_file_cannot_be_opened(
    cleaners: CleanerProcesses, given: CleaningTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(Path(given.directory) / "missing"))
    with pytest.raises(CleaningFailed, match="missing"):
        await cleaners.clean(given.encode(), no_group)


async def test_cleaning_is_not_given_up_if_no_file_descriptor_is_free(
    cleaners: CleanerProcesses, given: CleaningTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(StorageFailed) as caught:
        await cleaners.clean(given.encode(), no_group)
    assert caught.value.lacks_descriptors


async def test_cleaner_process_gives_the_same_result_as_cleaning_in_process(
    cleaners: CleanerProcesses, given: CleaningTask
) -> None:
    storage = MemoryStorage()
    log = varied_log(storage, given.directory, Random(1), NOW, cleanup_policy=("compact",))
    expected, outcome = carry_out(storage, task(log, NOW))
    groups: list[Any] = []

    async def add(group: Any) -> None:
        groups.append(group)

    found = await cleaners.clean(given.encode(), add)
    assert [group["bases"] for group in groups] == [group.bases for group in expected]
    assert found["end_offset"] == outcome.end_offset
    for group in groups:
        for suffix in (".log", ".index", ".timeindex"):
            path = f"{given.directory}/{group['bases'][0]:020d}{suffix}.cleaned"
            assert DiskStorage().read(path) == storage.read(path)


async def test_cleaner_process_is_used_again_for_the_next_cleaning(
    cleaners: CleanerProcesses, given: CleaningTask
) -> None:
    await cleaners.clean(given.encode(), no_group)
    (first,) = cleaners._idle
    await cleaners.clean(given.encode(), no_group)
    assert cleaners._idle == [first]
    await cleaners.close()
    assert first.returncode is not None


async def test_cleaning_of_a_damaged_log_fails_and_the_next_log_is_cleaned(
    cleaners: CleanerProcesses, given: CleaningTask, tmp_path: Path
) -> None:
    other = varied_log(DiskStorage(), str(tmp_path / "o-0"), Random(2), NOW)
    path = Path(given.directory) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CleaningFailed, match="has a wrong CRC"):
        await cleaners.clean(given.encode(), no_group)
    await cleaners.clean(task(other, NOW).encode(), no_group)


async def test_cleaning_with_a_missing_file_raises_storage_failed(
    cleaners: CleanerProcesses, given: CleaningTask
) -> None:
    (Path(given.directory) / f"{given.segments[1]:020d}.log").unlink()
    with pytest.raises(StorageFailed, match="No such file"):
        await cleaners.clean(given.encode(), no_group)


async def test_cleaner_process_is_not_reused_after_the_broker_failed_to_use_its_copy(
    cleaners: CleanerProcesses, given: CleaningTask
) -> None:
    async def refuse(group: Any) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await cleaners.clean(given.encode(), refuse)
    assert cleaners._idle == []


async def begun(cleaners: CleanerProcesses, given: CleaningTask) -> tuple[asyncio.Task[Any], int]:
    """Begin a slow cleaning; return its task and the pid of its process."""
    slow = replace(given, bytes_per_second=SLOW)
    before = children()
    running = asyncio.get_running_loop().create_task(cleaners.clean(slow.encode(), no_group))
    await until(lambda: bool(children() - before))
    return running, (children() - before).pop()


def children() -> set[int]:
    """Return the pids of the child processes of the current process."""
    found = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return {int(number) for number in found.split()}


async def test_cancelled_cleaning_leaves_no_process(
    cleaners: CleanerProcesses, given: CleaningTask
) -> None:
    running, process = await begun(cleaners, given)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert process not in children()


async def test_killed_process_fails_the_cleaning(
    cleaners: CleanerProcesses, given: CleaningTask
) -> None:
    running, process = await begun(cleaners, given)
    os.kill(process, signal.SIGKILL)
    with pytest.raises(CleaningFailed, match="ended with exit code -9"):
        await running


def test_throttle_spends_bytes_at_its_rate() -> None:
    with tempfile.TemporaryFile() as shared:
        throttle = CleanerThrottle(shared.fileno())
        assert throttle.pause_after(50, 100.0, 0.0) == 0.5
        assert throttle.pause_after(50, 100.0, 0.5) == 0.5
        assert throttle.pause_after(10, 100.0, 5.0) == pytest.approx(0.1)


def test_throttles_with_one_shared_file_share_the_rate() -> None:
    with tempfile.TemporaryFile() as shared:
        first, second = CleanerThrottle(shared.fileno()), CleanerThrottle(shared.fileno())
        assert first.pause_after(50, 100.0, 1.0) == 0.5
        assert second.pause_after(50, 100.0, 1.0) == 1.0
        assert first.pause_after(50, 100.0, 1.5) == 1.0


async def test_each_cleaning_with_a_rate_limit_advances_the_shared_throttle(
    cleaners: CleanerProcesses, given: CleaningTask
) -> None:
    limited = replace(given, bytes_per_second=1e9)
    await cleaners.clean(limited.encode(), no_group)
    (first,) = unpack("d", os.pread(cleaners._throttle.fileno(), 8, 0))
    await cleaners.clean(limited.encode(), no_group)
    (second,) = unpack("d", os.pread(cleaners._throttle.fileno(), 8, 0))
    assert 0 < first < second
