"""The Storage and Cleaners ports with faults: full log directories, and slow or failing fsyncs.

Only a broker that was started with faults imports this module. The faults are in a file, so a disk that was full when
a broker died is full when it starts again. Each operation fails as Linux lets it fail: a write that does not fit
writes the bytes that fit, and raises ENOSPC; a failing fsync raises EIO, and the data stay readable.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minikafka.base.disk_faults import FAILED_SYNC, FULL, SLOW_SYNC, DiskFault
from minikafka.base.errors import StorageFailed
from minikafka.base.ports import Buffer
from minikafka.runtime.cleaner_processes import CleanerProcesses
from minikafka.runtime.storage import DiskFile, DiskStorage


class DiskFaults:
    """The active faults of one broker, and the file that keeps them. Any thread may call any method."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)
        self._lock = threading.RLock()
        self._left: dict[tuple[str, str], int] = {}
        """By id and directory of a fault: the bytes that the directory may still grow by."""
        self.active = read_faults(self._file)

    def replace(self, faults: Iterable[DiskFault]) -> None:
        """Let these faults be the active ones; a fault that was active before keeps its count."""
        with self._lock:
            hits = {fault.id: fault.hits for fault in self.active}
            self.active = [fault._replace(hits=hits.get(fault.id, 0)) for fault in faults]
            self._left.clear()
            write_faults(self._file, self.active)

    def room(self, path: str, wanted: int) -> int:
        """Return how many of the `wanted` bytes a file may grow by. A file that grows by less meets a full disk."""
        if wanted == 0:
            return 0
        with self._lock:
            return min(
                (self._room_of(fault, wanted) for fault in self._of(FULL, path)), default=wanted
            )

    def _room_of(self, fault: DiskFault, wanted: int) -> int:
        left = self._left.get(_key(fault), 0)
        if left < wanted:  # files may have been removed, or written by another process
            left = max(0, fault.value - size_of(fault.directory))
        if left < wanted:
            self._hit(fault)
        self._left[_key(fault)] = left - min(left, wanted)
        return min(left, wanted)

    def free(self, path: str) -> int | None:
        """Return the free bytes of the full disk that holds the path; None if no such fault is active."""
        found = [max(0, f.value - size_of(f.directory)) for f in self._of(FULL, path)]
        return min(found, default=None)

    def before_sync(self, path: str) -> int:
        """Return the milliseconds that an fsync takes longer. Raises OSError if it fails."""
        delay = 0
        for fault in self._of(SLOW_SYNC, path):
            self._hit(fault)
            delay += fault.value
        for fault in self._of(FAILED_SYNC, path):
            self._hit(fault)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return delay

    def _of(self, kind: str, path: str) -> list[DiskFault]:
        if not self.active:
            return []
        return [fault for fault in self.active if fault.kind == kind and fault.concerns(path)]

    def _hit(self, fault: DiskFault) -> None:
        with self._lock:
            self.active = [
                other._replace(hits=other.hits + 1) if _key(other) == _key(fault) else other
                for other in self.active
            ]
            write_faults(self._file, self.active)


def _key(fault: DiskFault) -> tuple[str, str]:
    return fault.id, fault.directory


def read_faults(file: Path) -> list[DiskFault]:
    """Return the faults in a file; none if it does not exist."""
    try:
        return [DiskFault(*row) for row in json.loads(file.read_bytes())]
    except FileNotFoundError:
        return []


def write_faults(file: Path, faults: Sequence[DiskFault]) -> None:
    """Replace the file by one with these faults."""
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(faults))
    temporary.replace(file)


def size_of(directory: str) -> int:
    """Return the bytes of all files in a directory, also of those in its directories."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:  # removed in the meantime
                continue
    return total


def _no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FaultyFile(DiskFile):
    """An open file that meets the active faults of its log directory."""

    __slots__ = ("_faults",)

    def __init__(self, path: str, fd: int, faults: DiskFaults) -> None:
        super().__init__(path, fd)
        self._faults = faults

    def pwritev(self, slices: Sequence[Buffer], position: int) -> int:
        if not self._faults.active:
            return super().pwritev(slices, position)
        size = sum(map(len, slices))
        lacking = self._grow(position + size)
        if lacking == 0:
            return super().pwritev(slices, position)
        if lacking < size:
            super().pwritev((b"".join(slices)[: size - lacking],), position)
        raise StorageFailed(self.path, _no_space())

    def truncate(self, size: int) -> None:
        if self._faults.active and self._grow(size):
            raise StorageFailed(self.path, _no_space())
        super().truncate(size)

    def _grow(self, end: int) -> int:
        """Return how many bytes the disk lacks for the file to end at this position."""
        wanted = max(0, end - self.size())
        return wanted - self._faults.room(self.path, wanted)

    def sync(self) -> None:
        _sync(self._faults, self.path)
        super().sync()


def _sync(faults: DiskFaults, path: str) -> None:
    try:
        time.sleep(faults.before_sync(path) / 1000)
    except OSError as error:
        raise StorageFailed(path, error) from error


class FaultyStorage(DiskStorage):
    """The local file system, with the active faults of the log directories."""

    def __init__(self, faults: DiskFaults) -> None:
        self._faults = faults

    def _file(self, path: str, descriptor: int) -> DiskFile:
        return FaultyFile(path, descriptor, self._faults)

    def write_atomically(
        self, path: str, data: bytes, *, private: bool = False, sync: bool = True
    ) -> None:
        if self._faults.room(path, len(data)) < len(data):
            raise StorageFailed(path, _no_space())
        if sync:
            _sync(self._faults, path)
        super().write_atomically(path, data, private=private, sync=sync)

    def make_directories(self, path: str, *, sync: bool = True) -> bool:
        # A directory needs a block of its own.
        if not os.path.isdir(path) and self._faults.room(path, 1) < 1:
            raise StorageFailed(path, _no_space())
        return super().make_directories(path, sync=sync)

    def sync_directory(self, path: str) -> None:
        _sync(self._faults, path)
        super().sync_directory(path)

    def room(self, path: str) -> tuple[int, int]:
        total, usable = super().room(path)
        free = self._faults.free(path)
        return total, usable if free is None else min(usable, free)


class FaultyCleaners(CleanerProcesses):
    """Cleaner processes whose cleanings fail, or last longer, as the disk of the log would let them."""

    def __init__(self, faults: DiskFaults) -> None:
        super().__init__()
        self._faults = faults

    async def clean(
        self, task: Mapping[str, Any], on_group: Callable[[Mapping[str, Any]], Awaitable[None]]
    ) -> Mapping[str, Any]:
        directory = task["directory"]
        try:
            wanted = _size_of_input(task)
            if self._faults.room(directory, wanted) < wanted:
                raise _no_space()
            await asyncio.sleep(self._faults.before_sync(directory) / 1000)
        except OSError as error:
            raise StorageFailed(directory, error) from error
        return await super().clean(task, on_group)


def _size_of_input(task: Mapping[str, Any]) -> int:
    """Return the bytes of the segments that a cleaning copies, at most."""
    names = (f"{task['directory']}/{base:020d}.log" for base in task["segments"])
    return sum(os.lstat(name).st_size for name in names)
