"""What a table of any format can do, and the numbers by which a commit is recognized."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from minikafka.base.errors import MinikafkaError
from minikafka.spark.lakehouse.places import NO_OPTIONS, StoreOptions
from minikafka.spark.lakehouse.rules import PartitionRule
from minikafka.spark.lakehouse.stage import NULL, FileStage, LakeFile

_LOGIN: Final = re.compile(r"//.*@")
RECORDS: Final = "minikafka.records"
"""The name of a table in its catalog, if none is given."""
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
FORMATS: Final = (DELTA, ICEBERG)
Found = TypeVar("Found")
Marks = Mapping[str, int]
"""Named 64-bit numbers that a table changes in the same commit as its files."""
NO_MARK: Final = -1
"""The value of a mark that says no more than a mark that does not exist."""
ORPHAN_S: Final = 24 * 3600
"""Minimum age of a file that no state of the table has. A younger file may belong to a running task."""
COMMITS_MAX: Final = 20
"""Maximum number of attempts of a commit when other writers commit at the same time, or the catalog does not answer."""
_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 5.0
COMMIT: Final = "minikafka.commit"
"""The name under which the history of a table has a text that is unique to a commit."""


class TableError(MinikafkaError):
    """A table or its catalog cannot be used."""


class NoAnswer(TableError):
    """A catalog did not answer, so it is not known whether it has carried out the request."""


class NotCommitted(Exception):
    """A commit has lost a race, or it is not known whether it was made. The cause is the error of the library."""


class Overtaken(MinikafkaError):
    """Another writer has committed the same rows, or later rows of the same stream or archive."""


class NoLibrary(MinikafkaError):
    """The library of a format is not installed."""


@dataclass(frozen=True)
class LakeSettings:
    """Where a table is, and how it is written.

    `place`: the path or URI of the table; "" if the catalog chooses it. `name`: the name in the catalog of Iceberg.
    `catalog`: pyiceberg's properties of the catalog; without any, the catalog is a SQLite file in `place`.
    `storage`: options of deltalake for an object storage.
    """

    format: str
    place: str
    name: str = RECORDS
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    partition_by: tuple[PartitionRule, ...] = ()
    timestamps: str = "refuse"
    compression: str = "zstd"

    @property
    def nulls_timestamps(self) -> bool:
        """True if timestamps out of range become null, and are counted."""
        return self.timestamps == NULL

    @property
    def catalog_shown(self) -> str:
        """The catalog's address in error messages, without a password in it."""
        return _LOGIN.sub("//", self.catalog.get("uri", "the catalog"))

    @property
    def shown(self) -> str:
        """The table's name in error messages."""
        return f"{self.name} of {self.catalog_shown}" if self.catalog else self.place


@dataclass(frozen=True)
class Layout:
    """What tasks must know about a table.

    `names`: the names that the table has for the columns of the rows, in their order. `schema`: the columns of the
    files. `rules`: the partitioning, with the table's names. `directory`: the path or URI of the files.
    """

    names: tuple[str, ...]
    schema: pa.Schema
    rules: tuple[PartitionRule, ...]
    directory: str
    storage: StoreOptions = NO_OPTIONS
    """The options of the store, if `directory` is a URI."""

    def stage(self, label: str, settings: LakeSettings) -> FileStage:
        """Return the work of the tasks that write files. `label`: the beginning of the files' names."""
        return FileStage(
            self.schema,
            self.rules,
            self.directory,
            label,
            settings.timestamps,
            settings.compression,
            self.storage,
        )


@dataclass(frozen=True)
class TableChange:
    """Files that are added to a table, and marks that are set, in one step.

    `expected`: the values that the marks have before, without those that do not exist. `notes`: facts for people in
    the table's history. `overwrite`: remove all other files in the same step.
    """

    files: Sequence[LakeFile]
    marks: Marks = field(default_factory=dict)
    expected: Marks = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    overwrite: bool = False


class LakeTable(Protocol):
    """A table on the driver. Every method reads the table's newest state."""

    def exists(self) -> bool:
        """True if the table exists. Raises `TableError` if its place or catalog does not answer."""

    def prepare(
        self, rows: pa.Schema, marks: Marks | None = None, *, may_lack: bool = False
    ) -> Layout:
        """Create the table with these marks, or add the columns that it lacks.

        `may_lack`: the rows may lack columns of the table that may be null. Raises `SchemaNarrows`, `ConfigError` and
        `TableError`.
        """

    def marks(self, names: Sequence[str]) -> dict[str, int]:
        """Return the marks that the table has, of these names."""

    def commit(self, change: TableChange) -> None:
        """Make a change in one step.

        Raises `Overtaken` if a mark has another value than expected, and `TableError` if the commit fails.
        """

    def compact(self, target_bytes: int) -> MergedFiles:
        """Merge files that are smaller than the target, within each partition. Rows and marks stay the same."""

    def expire(self, age_s: int, now_ms: int) -> Expired:
        """Remove the states of the table that were replaced more than `age_s` seconds ago, and their files.

        Files of tasks that were never committed are removed if they are also older than `ORPHAN_S`.
        """


@dataclass(frozen=True)
class MergedFiles:
    """The numbers of files that were merged, and of the files that have their rows now."""

    merged: int
    written: int


@dataclass(frozen=True)
class Expired:
    """The numbers of removed states and files. `snapshots`: None for a format that does not list its states."""

    snapshots: int | None
    files: int


def number_of(text: str) -> int:
    """Return a number from 0 to 2^63 - 1 that stands for a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


class CommitTarget(Protocol):
    """A table as `commit_once` needs it. A state of the table is an object of the format's library."""

    def newest(self) -> Any:
        """Return the newest state. Raises `NoAnswer`, and `TableError` for other failures."""

    def marks_in(self, state: Any, names: Sequence[str]) -> Marks:
        """Return the marks of a state, of these names."""

    def has_commit(self, state: Any, unique: str) -> bool:
        """True if the history of a state has a commit with this text as its note `COMMIT`."""


def commit_once(
    target: CommitTarget,
    change: TableChange,
    place: str,
    attempt: Callable[[Any, TableChange], None],
) -> None:
    """Make a change, although other writers commit at the same time and responses are lost.

    `attempt`: makes the change to a state; it raises `NotCommitted` if it may be repeated, or may have been made.
    """
    unique = os.urandom(8).hex()
    change = replace(change, notes={**change.notes, COMMIT: unique})
    is_repeated = False

    def once() -> None:
        nonlocal is_repeated
        state = target.newest()
        if is_repeated and target.has_commit(state, unique):
            return
        is_repeated = True
        _check_marks(target.marks_in(state, list(change.marks)), change, place)
        attempt(state, change)

    patiently(once)


def patiently(request: Callable[[], Found]) -> Found:
    """Return the result of a request that may be repeated.

    It is repeated for about a minute while the catalog does not answer, or while other writers commit first.
    """
    for number in range(COMMITS_MAX - 1):
        try:
            return request()
        except (NotCommitted, NoAnswer):
            _pause(number)
    try:
        return request()
    except NotCommitted as error:
        raise TableError(str(error)) from error


def _pause(number: int) -> None:
    threading.Event().wait(min(_PAUSE_S * 2**number, _PAUSE_MAX_S))


def _check_marks(found: Marks, change: TableChange, place: str) -> None:
    """Raise `Overtaken` if a mark differs from the value that it had when the rows were computed."""
    for name in change.marks:
        if found.get(name, NO_MARK) != change.expected.get(name, NO_MARK):
            raise Overtaken(
                f"{place}: another process has added rows of the same stream, batch or archive at the same time: end"
                " one of the two, and start the other one again"
            )
