"""The directory of a Parquet table, and how the files of a micro-batch or of a batch are added to it.

    user=ann/batch-000000000007-4f1c2a9b-00000.parquet
    _commits/     QUERY: the last micro-batch that a stream has added; batch: a batch that has not ended
    _staging/ and _lock: see `storage`

Invariant: a micro-batch or batch is decided when its list of files has been written to `_commits`. Before that, its
files are only in `_staging`. After that, the next run moves the files that a crash has left there. So a micro-batch
that Spark repeats after a crash is either not in the table at all, or complete.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.spark.parquet.archive_directory import RUNS
from minikafka.spark.storage.files import STAGING
from minikafka.spark.storage.locations import open_files

_BATCH: Final = "batch"
_OF_SPARK: Final = "_spark_metadata"
"""The directory in which Spark's own file sink lists the valid files, which other readers do not know."""


class StagedFile(NamedTuple):
    """A staged file: its name in `_staging`, the directory for it in the table, and its number of rows."""

    name: str
    place: str
    rows: int


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch of a stream. `plan`: a digest of the offsets that Spark has planned for the micro-batch."""

    checkpoint: str
    batch: int
    plan: str


@dataclass(frozen=True)
class _Commit:
    """The staged files of a change with their final names, and the files that the change replaces."""

    files: dict[str, str]
    replaced: list[str] = field(default_factory=list)


class OtherQuery(MinikafkaError):
    """The directory holds the rows of another query, or of an older state of this query."""


class TableDirectory:
    """A table at a path or URI. `storage`: the options of the store of a URI. Raises `ConfigError`."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        self.files = open_files(url, storage or {}, "Parquet table")
        self.url = self.files.url

    def locked(self) -> AbstractContextManager[None]:
        """Be the only writer during the `with` body. Raises `DirectoryBusy`."""
        return self.files.locked(self.recover)

    def recover(self) -> None:
        """Complete the last micro-batch of each stream and an unfinished overwrite; undo an unfinished append.

        An append is undone because its command has not succeeded, so the user will repeat it.
        """
        for name, facts in self.files.decisions().items():
            commit = _Commit(facts["files"], facts["replaced"])
            if name != _BATCH or facts["overwrite"]:
                self._move(commit)
            else:
                self._undo(commit)
            if name == _BATCH:
                self.files.forget([_BATCH])

    def is_empty(self) -> bool:
        """True if the table has no file."""
        return not self.files.names()

    def check_format(self) -> None:
        """Raise `ConfigError` if the directory is an archive, or a table of Spark's own file sink."""
        if self.files.has(RUNS):
            raise ConfigError(f"{self.url} is an archive of topics: name another directory")
        if self.files.has(_OF_SPARK):
            raise ConfigError(
                f"{self.url} was written by Spark's own file sink: only Spark knows which of its files are"
                f" valid, from {_OF_SPARK}; name a new directory and a new checkpoint, or first copy the"
                " valid rows as docs/pipelines.md shows (Parquet files)"
            )

    def check_query(self, query: str | None) -> None:
        """Raise `OtherQuery` if another stream than `query` has added rows. `query`: None for a new stream."""
        for name, facts in self.files.decisions().items():
            if name not in (_BATCH, query):
                raise OtherQuery(
                    f"{self.url} holds the rows of another stream, whose checkpoint was {facts['checkpoint']}:"
                    " continue with this checkpoint, or name a new directory and a new checkpoint"
                )

    def holds(self, query: str, wanted: MicroBatch) -> bool:
        """True if the rows of a micro-batch are in the table. Raises `OtherQuery` for an older checkpoint."""
        last = self.files.decisions().get(query)
        if last is None or wanted.batch > last["batch"]:
            return False
        if (wanted.batch, wanted.plan) == (last["batch"], last["plan"]):
            return True
        raise OtherQuery(
            f"{self.url} holds the rows of the stream up to micro-batch {last['batch']}, and the checkpoint"
            f" {wanted.checkpoint} is an older copy, from which micro-batch {wanted.batch} differs: restore the"
            " newest checkpoint, or name a new directory and a new checkpoint"
        )

    def add_micro_batch(
        self, query: str, added: MicroBatch, staged: Sequence[StagedFile], prefix: str = ""
    ) -> None:
        """Add the files of a micro-batch. With a `prefix`, they replace the files of this directory."""
        replaced = self.files.names(prefix) if prefix else []
        label = f"batch-{added.batch:012d}-{query[:8]}"
        commit = self._commit(staged, label, prefix, replaced)
        self.files.decide(query, asdict(added) | asdict(commit))
        self._move(commit)

    def add_batch(self, staged: Sequence[StagedFile], *, overwrite: bool) -> None:
        """Add the files of a batch. With `overwrite`, they replace all files and the state of all streams."""
        replaced = self.files.names() if overwrite else []
        commit = self._commit(staged, f"part-{os.urandom(6).hex()}", "", replaced)
        self.files.decide(_BATCH, asdict(commit) | {"overwrite": overwrite})
        if overwrite:
            self._forget_streams()
        self._move(commit)
        self.files.forget([_BATCH])

    def _commit(
        self, staged: Sequence[StagedFile], label: str, prefix: str, replaced: list[str]
    ) -> _Commit:
        """Return the change that adds the files. Raises a MinikafkaError if the driver does not see a file."""
        self.files.check_staged(one.name for one in staged)
        files = {
            one.name: str(PurePosixPath(prefix, one.place, f"{label}-{number:05d}.parquet"))
            for number, one in enumerate(staged)
        }
        return _Commit(files, replaced)

    def _move(self, commit: _Commit) -> None:
        """Remove the replaced files and move the staged files. Files that an earlier call has moved are skipped."""
        self.files.remove(commit.replaced)
        self.files.publish(commit.files)

    def _undo(self, commit: _Commit) -> None:
        """Remove the files, first the staged ones: a killed run whose last request is late then finds none to move."""
        self.files.remove_folder(STAGING)
        self.files.remove(commit.files.values())

    def _forget_streams(self) -> None:
        """Remove the state of all streams. A stream that continues then adds its rows to the new table."""
        self.files.forget(name for name in self.files.decisions() if name != _BATCH)
        self.files.remove_folder(_OF_SPARK)
