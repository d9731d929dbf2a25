"""What a table of any format can do, and the numbers by which a commit is recognized."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa

from minikafka.base.errors import MinikafkaError
from minikafka.spark.lakehouse.rules import PartitionRule
from minikafka.spark.lakehouse.stage import LakeFile

_LOGIN: Final = re.compile(r"//[^/@]*@")
RECORDS: Final = "minikafka.records"
"""The name of a table in its catalog, if none is given."""
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
FORMATS: Final = (DELTA, ICEBERG)
Marks = Mapping[str, int]
"""Named 64-bit numbers that a table changes in the same commit as its files."""
ORPHAN_S: Final = 24 * 3600
"""Minimum age of a file that no state of the table has. A younger file may belong to a running task."""
COMMITS_MAX: Final = 20
"""Maximum number of attempts of a commit when other writers commit at the same time."""


class TableError(MinikafkaError):
    """A table or its catalog cannot be used."""


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


class LakeTable(Protocol):
    """A table on the driver. Every method reads the table's newest state."""

    def exists(self) -> bool:
        """True if the table exists. Raises `TableError` if its place or catalog does not answer."""

    def prepare(self, rows: pa.Schema) -> Layout:
        """Create the table, or add the columns that it lacks. Raises `SchemaNarrows`, `ConfigError`, `TableError`."""

    def marks(self, names: Sequence[str]) -> dict[str, int]:
        """Return the marks that the table has, of these names."""

    def commit(
        self,
        files: Sequence[LakeFile],
        marks: Marks,
        expected: Marks,
        notes: Mapping[str, str],
        *,
        overwrite: bool = False,
    ) -> None:
        """Add files and set marks in one step. `overwrite`: remove all other files in the same step.

        `expected`: the values that these marks have now, without those that do not exist. `notes`: facts for people
        in the table's history. Raises `Overtaken` if a mark has another value, and `TableError` if the commit fails.
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


def check_marks(found: Marks, expected: Marks, names: Iterable[str], place: str) -> None:
    """Raise `Overtaken` if a mark differs from the value that it had when the rows were computed."""
    for name in names:
        if found.get(name) != expected.get(name):
            raise Overtaken(
                f"{place}: another process has added rows of the same stream or archive at the same time: end one of"
                " the two, and start the other one again"
            )
