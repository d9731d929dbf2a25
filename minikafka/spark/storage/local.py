"""A directory of output files on a file system, with a lock of the operating system and atomic renames.

    _staging/     files that tasks are writing; their names do not end in `.parquet`
    _commits/     the decisions, one JSON file each
    _lock         held by the driver that writes

Spark, pyarrow and pandas ignore names that begin with `_`. Invariant: only the driver that holds the lock moves a
staged file to its final name, and only if the file is complete and synced.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow as pa

from minikafka.base.errors import ConfigError
from minikafka.spark.storage.files import (
    COMMITS,
    LOCK,
    STAGING,
    DirectoryBusy,
    StagedOutput,
    new_name,
    parsed,
)
from minikafka.spark.storage.store import StorageError

_RIGHTS: Final = "give this user the right to write there"
_REMEDIES: Final = {
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "make room in the quota of this user",
    errno.EFBIG: "raise the limit on the size of files",
    errno.EROFS: "mount its file system for writing",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
}


class LocalFiles:
    """A directory that the driver and all executors see under the same path. `kind`: what it holds, for messages."""

    def __init__(self, path: str, kind: str) -> None:
        self.path = Path(path).absolute()
        self.url = str(self.path)
        self._kind = kind

    @contextmanager
    def locked(self, recover: Callable[[], None]) -> Iterator[None]:
        """Hold the lock of the directory during the `with` body, after `recover` and the removal of staged files.

        Raises `DirectoryBusy` if another process holds the lock.
        """
        with writing(self.path):
            _create(self.path)
            descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = f"process {file.read(20).strip() or 'unknown'}"
                text = f"{holder} writes the {self._kind} {self.path}: wait for it, or end it"
                raise DirectoryBusy(text) from None
            _note_holder(file)
            recover()
            self.remove_folder(STAGING)
            yield
            self.remove_folder(STAGING)

    def has(self, folder: str) -> bool:
        return (self.path / folder).exists()

    def names(self, folder: str = "") -> list[str]:
        root = os.path.join(self.path, "")
        top = os.path.join(root, folder)
        found: list[str] = []
        for place, folders, files in os.walk(top):
            shown = _visible(files) if place == top else files
            if place == top:
                folders[:] = _visible(folders)
            inner = os.path.join(place, "").removeprefix(root)
            found += [inner + name for name in shown]
        return sorted(found)

    def folders(self, folder: str = "") -> list[str]:
        place = self.path / folder
        return sorted(one.name for one in place.iterdir()) if place.is_dir() else []

    def open(self, name: str) -> pa.NativeFile:
        return pa.OSFile(str(self.path / name))

    @contextmanager
    def stage(self, name: str) -> Iterator[StagedOutput]:
        place = self.path / STAGING
        staged = new_name(name)
        with writing(place / staged):
            place.mkdir(exist_ok=True)
            with (place / staged).open("wb") as file:
                yield StagedOutput(staged, file)
                file.flush()
                os.fsync(file.fileno())

    def check_staged(self, names: Iterable[str]) -> None:
        for staged in (self.path / STAGING / name for name in names):
            if not staged.exists():
                raise ConfigError(
                    f"{staged} was written by an executor, and the driver does not see it: the directory of"
                    f" the {self._kind} must be on a file system that the driver and all executors share"
                )

    def publish(self, moves: Mapping[str, str]) -> None:
        """Move the files, and sync the new names once, so that they survive a power cut."""
        places: set[Path] = set()
        for name, final in moves.items():
            staged, target = self.path / STAGING / name, self.path / final
            if staged.exists():
                with writing(target):
                    if target.parent not in places:
                        target.parent.mkdir(parents=True, exist_ok=True)
                        places.update(takewhile(self.path.parent.__ne__, target.parents))
                    self.move(staged, target)
        for place in sorted(places, reverse=True):  # a folder follows the folders in it
            sync(place)

    def move(self, staged: Path, final: Path) -> None:
        """Move one staged file to its final name, whose folder exists."""
        os.replace(staged, final)

    def add(self, name: str, moves: Mapping[str, str]) -> None:
        """Publish the files. The lock of the directory excludes another writer, so no decision is needed."""
        self.publish(moves)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and the folders that are then empty."""
        for file in (self.path / name for name in names):
            file.unlink(missing_ok=True)
            with suppress(OSError):
                for place in takewhile(self.path.__ne__, file.parents):
                    place.rmdir()

    def remove_folder(self, folder: str) -> None:
        shutil.rmtree(self.path / folder, ignore_errors=True)

    def facts(self, folder: str) -> dict[str, dict[str, Any]]:
        found = sorted((self.path / folder).glob("*.json"))
        return {file.stem: parsed(str(file), file.read_bytes()) for file in found}

    def write_facts(self, folder: str, name: str, facts: Mapping[str, Any]) -> None:
        place = self.path / folder
        draft = place / f"{name}.draft"
        with writing(draft):
            place.mkdir(exist_ok=True)
            with draft.open("w") as file:
                file.write(json.dumps(facts, indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, place / f"{name}.json")
        sync(place)
        sync(self.path)

    def decisions(self) -> dict[str, dict[str, Any]]:
        return self.facts(COMMITS)

    def decide(self, name: str, facts: Mapping[str, Any]) -> None:
        """Write a decision. The names of the staged files are synced first, because the decision refers to them."""
        if (self.path / STAGING).exists():
            sync(self.path / STAGING)
        self.write_facts(COMMITS, name, facts)

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / COMMITS / f"{name}.json").unlink()
        if (self.path / COMMITS).exists():
            sync(self.path / COMMITS)


def _visible(names: Iterable[str]) -> list[str]:
    return [name for name in names if name[0] not in "_."]


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Raise `StorageError` with the place and the remedy if the disk is full, or does not allow the write."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        raise StorageError(
            f"{place} cannot be written: {os.strerror(error.errno)}: {_REMEDIES[error.errno]}, and start again, which"
            " continues"
        ) from error


def _create(path: Path) -> None:
    """Create a directory with its parents, if it does not exist, and sync the new names."""
    new = [place for place in (path, *path.parents) if not place.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for place in new:
        sync(place.parent)


def sync(place: Path) -> None:
    """Fsync a directory, so that the names of new files in it survive a crash."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _note_holder(lock: TextIO) -> None:
    """Write the pid of this process to its lock file, which only this user can open and lock from now on."""
    if os.fstat(lock.fileno()).st_uid == os.geteuid():
        os.fchmod(lock.fileno(), 0o600)
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
