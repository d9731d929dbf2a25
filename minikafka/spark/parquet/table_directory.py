"""The directory of a Parquet table, and how the files of a micro-batch or of a batch are added to it.

    user=ann/batch-000000000007-4f1c2a9b-00000.parquet
    _commits/     QUERY.json: the last micro-batch that a stream has added; batch.json: a batch that has not ended
    _staging/ and _lock: see `staging`

Invariant: a micro-batch or batch is decided when its list of files has been written to `_commits`. Before that, its
files are only in `_staging`. After that, the next run moves the files that a crash has left there. So a micro-batch
that Spark repeats after a crash is either not in the table at all, or complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.spark.parquet.archive_directory import RUNS
from minikafka.spark.parquet.staging import STAGING, StagingDirectory, sync

_COMMITS: Final = "_commits"
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


class TableDirectory(StagingDirectory):
    """A table on a file system that the driver and all executors see under the same path."""

    kind = "Parquet table"

    def recover(self) -> None:
        """Complete the last micro-batch of each stream and an unfinished overwrite; undo an unfinished append.

        An append is undone because its command has not succeeded, so the user will repeat it.
        """
        for name, facts in self.facts(_COMMITS).items():
            commit = _Commit(facts["files"], facts["replaced"])
            if name != _BATCH or facts["overwrite"]:
                self._move(commit)
            else:
                self._undo(commit)
            if name == _BATCH:
                self._end_batch()

    def files(self, place: str = "") -> list[str]:
        """Return the paths of all files of the table, relative to its directory.

        `place`: return only the files below this path.
        """
        return sorted(str(file.relative_to(self.path)) for file in _visible(self.path / place))

    def is_empty(self) -> bool:
        """True if the table has no file."""
        return next(_visible(self.path), None) is None

    def check_format(self) -> None:
        """Raise `ConfigError` if the directory is an archive, or a table of Spark's own file sink."""
        if (self.path / RUNS).exists():
            raise ConfigError(f"{self.path} is an archive of topics: name another directory")
        if (self.path / _OF_SPARK).exists():
            raise ConfigError(
                f"{self.path} was written by Spark's own file sink: only Spark knows which of its files are"
                f" valid, from {_OF_SPARK}; name a new directory and a new checkpoint, or first copy the"
                " valid rows as docs/pipelines.md shows (Parquet files)"
            )

    def check_query(self, query: str | None) -> None:
        """Raise `OtherQuery` if another stream than `query` has added rows. `query`: None for a new stream."""
        for name, facts in self.facts(_COMMITS).items():
            if name not in (_BATCH, query):
                raise OtherQuery(
                    f"{self.path} holds the rows of another stream, whose checkpoint was {facts['checkpoint']}:"
                    " continue with this checkpoint, or name a new directory and a new checkpoint"
                )

    def holds(self, query: str, wanted: MicroBatch) -> bool:
        """True if the rows of a micro-batch are in the table. Raises `OtherQuery` for an older checkpoint."""
        last = self.facts(_COMMITS).get(query)
        if last is None or wanted.batch > last["batch"]:
            return False
        if (wanted.batch, wanted.plan) == (last["batch"], last["plan"]):
            return True
        raise OtherQuery(
            f"{self.path} holds the rows of the stream up to micro-batch {last['batch']}, and the checkpoint"
            f" {wanted.checkpoint} is an older copy, from which micro-batch {wanted.batch} differs: restore the"
            " newest checkpoint, or name a new directory and a new checkpoint"
        )

    def add_micro_batch(
        self, query: str, added: MicroBatch, staged: Sequence[StagedFile], prefix: str = ""
    ) -> None:
        """Add the files of a micro-batch. With a `prefix`, they replace the files of this directory."""
        replaced = self.files(prefix) if prefix else []
        label = f"batch-{added.batch:012d}-{query[:8]}"
        commit = self._commit(staged, label, prefix, replaced)
        self._decide(query, asdict(added) | asdict(commit))
        self._move(commit)

    def add_batch(self, staged: Sequence[StagedFile], *, overwrite: bool) -> None:
        """Add the files of a batch. With `overwrite`, they replace all files and the state of all streams."""
        replaced = self.files() if overwrite else []
        commit = self._commit(staged, f"part-{os.urandom(6).hex()}", "", replaced)
        self._decide(_BATCH, asdict(commit) | {"overwrite": overwrite})
        if overwrite:
            self._forget_streams()
        self._move(commit)
        self._end_batch()

    def _commit(
        self, staged: Sequence[StagedFile], label: str, prefix: str, replaced: list[str]
    ) -> _Commit:
        """Return the change that adds the files. Raises `ConfigError` if the driver does not see a file."""
        files = {}
        for number, one in enumerate(staged):
            self.check_staged(self.path / STAGING / one.name)
            files[one.name] = str(Path(prefix, one.place, f"{label}-{number:05d}.parquet"))
        return _Commit(files, replaced)

    def _decide(self, name: str, facts: Mapping[str, Any]) -> None:
        """Write the list of files. From now on, `recover` completes or undoes the change."""
        if (self.path / STAGING).exists():
            sync(self.path / STAGING)
        self.write_facts(_COMMITS, name, facts)

    def _move(self, commit: _Commit) -> None:
        """Remove the replaced files and move the staged files. Files that an earlier call has moved are skipped."""
        for replaced in commit.replaced:
            self._remove(replaced)
        for name, final in commit.files.items():
            staged = self.path / STAGING / name
            if staged.exists():
                self.publish(staged, self.path / final)

    def _undo(self, commit: _Commit) -> None:
        for final in commit.files.values():
            self._remove(final)

    def _end_batch(self) -> None:
        (self.path / _COMMITS / f"{_BATCH}.json").unlink()
        sync(self.path / _COMMITS)

    def _forget_streams(self) -> None:
        """Remove the state of all streams. A stream that continues then adds its rows to the new table."""
        for name in self.facts(_COMMITS):
            if name != _BATCH:
                (self.path / _COMMITS / f"{name}.json").unlink()
        shutil.rmtree(self.path / _OF_SPARK, ignore_errors=True)

    def _remove(self, name: str) -> None:
        """Remove a file, and the directories that are then empty."""
        file = self.path / name
        file.unlink(missing_ok=True)
        with suppress(OSError):
            for place in takewhile(self.path.__ne__, file.parents):
                place.rmdir()


def _visible(place: Path) -> Iterator[Path]:
    """Yield the files below a directory, without names that begin with `_` or `.` at the top."""
    for entry in sorted(place.glob("*")):
        if entry.name[0] not in "_.":
            yield from filter(Path.is_file, [entry, *entry.rglob("*")])
