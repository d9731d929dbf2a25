"""A directory in which readers see only finished files, although its writers may be killed at any time.

    _staging/     files that tasks are writing; their names do not end in `.parquet`
    _lock         held by the driver that writes

Spark, pyarrow and pandas ignore names that begin with `_`. Invariant: only the driver that holds the lock moves a
staged file to its final name, and only if the file is complete and synced. The next run removes files that a
crashed run left in `_staging`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, TextIO

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.names import parse_json

STAGING: Final = "_staging"
_LOCK: Final = "_lock"
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class DirectoryBusy(MinikafkaError):
    """Another process writes the directory."""


class StagingDirectory:
    """A directory on a file system that the driver and all executors see under the same path."""

    kind: ClassVar[str]
    """What the directory holds, for error messages."""

    def __init__(self, path: str) -> None:
        """Set the path of the directory. Raises `ConfigError` if the path is a URI."""
        if _URI.match(path):
            raise ConfigError(
                f"{path}: {self._shared}, not a URI; mount the file system and give its path"
            )
        self.path = Path(path).absolute()

    @property
    def _shared(self) -> str:
        article = "an" if self.kind[0] in "aeiou" else "a"
        return f"{article} {self.kind} is a directory that the driver and all executors share"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the directory during the `with` body.

        First call `recover`, and remove the staged files of a crashed run.

        Raises `DirectoryBusy` if another process holds the lock.
        """
        _create(self.path)
        descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = f"process {file.read(20).strip() or 'unknown'}"
                text = f"{holder} writes the {self.kind} {self.path}: wait for it, or end it"
                raise DirectoryBusy(text) from None
            _note_holder(file)
            self.recover()
            self.remove_staged()
            yield
            self.remove_staged()

    def recover(self) -> None:
        """Complete or undo a change of several files that a crashed run has decided. By default, do nothing."""

    def remove_staged(self) -> None:
        """Remove all staged files. They belong to tasks whose results are not used."""
        shutil.rmtree(self.path / STAGING, ignore_errors=True)

    def staged_file(self, name: str) -> Path:
        """Return a new path in `_staging` for a task to write. Every call returns a different path."""
        place = self.path / STAGING
        place.mkdir(exist_ok=True)
        return place / f"{name}.{os.urandom(6).hex()}"

    def check_staged(self, staged: Path) -> None:
        """Raise `ConfigError` if the driver does not see a file that an executor has staged."""
        if not staged.exists():
            raise ConfigError(
                f"{staged} was written by an executor, and the driver does not see it: {self._shared}"
            )

    def publish(self, staged: Path, final: Path) -> None:
        """Move a staged file to its final name, and sync the new names, so that they survive a power cut."""
        final.parent.mkdir(parents=True, exist_ok=True)
        os.replace(staged, final)
        place = final.parent
        sync(place)
        while place != self.path:
            place = place.parent
            sync(place)

    def write_facts(self, folder: str, name: str, facts: Mapping[str, Any]) -> None:
        """Write `facts` to FOLDER/NAME.json, and replace an old file of this name at once."""
        place = self.path / folder
        place.mkdir(exist_ok=True)
        draft = place / f"{name}.draft"
        with draft.open("w") as file:
            file.write(json.dumps(facts, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, place / f"{name}.json")
        sync(place)
        sync(self.path)

    def facts(self, folder: str) -> dict[str, dict[str, Any]]:
        """Return the facts that `write_facts` has written to a folder, by name, sorted by name.

        Raises `ConfigError` for a damaged file.
        """
        found = sorted((self.path / folder).glob("*.json"))
        return {file.stem: _facts_in(file) for file in found}


def _facts_in(file: Path) -> dict[str, Any]:
    try:
        return parse_json(file.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{file} is damaged: {error}; restore it from a backup") from error


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
