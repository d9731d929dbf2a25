"""Adds the rows of batches and micro-batches to a table, each micro-batch once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.spark.frames import map_in_arrow
from minikafka.spark.lakehouse.columns import arrow_schema
from minikafka.spark.lakehouse.opening import open_table
from minikafka.spark.lakehouse.stage import STAGED, LakeFile
from minikafka.spark.lakehouse.tables import (
    NO_MARK,
    LakeSettings,
    LakeTable,
    Marks,
    TableChange,
    number_of,
    patiently,
)

_QUERY: Final = "minikafka.stream.query"
_BATCH: Final = "minikafka.stream.batch"
_PLAN: Final = "minikafka.stream.plan"
_NAMES: Final = (_QUERY, _BATCH, _PLAN)
_OVERWRITTEN: Final = "minikafka.overwritten"
"""The mark of the last overwrite, a random number, without which the marks of earlier batches would stay valid."""


class OtherStream(MinikafkaError):
    """The table holds the rows of another stream, or of a newer state of this stream."""


class StreamBatch(NamedTuple):
    """A micro-batch of a stream. `plan`: a digest of the offsets that Spark has planned for it."""

    query: str
    batch: int
    plan: str
    checkpoint: str

    def marks(self) -> dict[str, int]:
        """Return the marks of the micro-batch."""
        numbers = (number_of(self.query), self.batch, number_of(self.plan))
        return dict(zip(_NAMES, numbers, strict=True))


@dataclass(frozen=True)
class SingleBatch:
    """A batch. `name`: the name of the pipeline. `plan`: a digest of the offsets that are read, and of the query."""

    name: str
    plan: str

    @property
    def mark(self) -> str:
        """The name of the mark with the last batch of the pipeline.

        The mark is `NO_MARK` if the pipeline has created the table and has added no batch since.
        """
        return f"minikafka.batch.{self.name}"

    def has_created(self, marks: Marks) -> bool:
        """True if the pipeline has created a table with these marks, and was killed before it has added a batch."""
        return marks.get(self.mark) == NO_MARK and _OVERWRITTEN not in marks

    def number(self, overwritten: int) -> int:
        """Return the mark of the batch in a table with this mark of its last overwrite."""
        return number_of(f"{overwritten} {self.plan}")


class Appended(NamedTuple):
    """The numbers of added rows, and of timestamps that became null. `is_repeated`: an earlier run added the rows."""

    rows: int = 0
    nulled: int = 0
    is_repeated: bool = False


class LakeWriter:
    """Adds rows to one table."""

    def __init__(self, settings: LakeSettings) -> None:
        self.settings = settings
        self.table: LakeTable = open_table(settings)

    def check_query(self, query: str | None, checkpoint: str) -> None:
        """Raise `OtherStream` if another stream than `query` has added rows. `query`: None for a new stream."""
        found = self.table.marks(_NAMES).get(_QUERY, NO_MARK)
        if found != NO_MARK and (query is None or found != number_of(query)):
            raise OtherStream(
                f"{self.settings.shown} holds the rows of another stream, and {checkpoint} is not its checkpoint:"
                " continue with that checkpoint, or name a new table and a new checkpoint"
            )

    def add_micro_batch(self, frame: DataFrame, found: StreamBatch) -> Appended:
        """Add the rows of a micro-batch, unless an earlier run has added them.

        A micro-batch that is in the table is computed again, so that Spark's state and watermark stay correct.
        """
        patiently(partial(self.check_query, found.query, found.checkpoint))
        before = patiently(partial(self.table.marks, _NAMES))
        if self._holds(before, found):
            frame.write.format("noop").mode("overwrite").save()
            return Appended()
        files = self._stage(frame, f"{found.batch:012d}-{found.query[:8]}")
        if files:
            notes = {"minikafka.query": found.query, "minikafka.plan": found.plan}
            self.table.commit(TableChange(files, found.marks(), before, notes))
        return _total(files)

    def _holds(self, before: Marks, found: StreamBatch) -> bool:
        last = before.get(_BATCH)
        if last is None or found.batch > last:
            return False
        if (found.batch, number_of(found.plan)) == (last, before.get(_PLAN)):
            return True
        raise OtherStream(
            f"{self.settings.shown} holds the rows of the stream up to micro-batch {last}, and the checkpoint"
            f" {found.checkpoint} is an older copy, from which micro-batch {found.batch} differs: restore the newest"
            " checkpoint, or name a new table and a new checkpoint"
        )

    def add_batch(
        self, frame: DataFrame, found: SingleBatch, mode: str, instead: str = ""
    ) -> Appended:
        """Add the rows of a batch in one step, unless an earlier run has added them.

        `mode`: append, overwrite, or error if the table exists. `instead`: what the user may do instead of naming
        another table, for the text of the error.
        """
        before = self.table.marks([*_NAMES, _OVERWRITTEN, found.mark])
        if mode == "overwrite":
            return self._overwrite(frame, found, before)
        number = found.number(before.get(_OVERWRITTEN, NO_MARK))
        if before.get(found.mark) == number:
            return Appended(is_repeated=True)
        if mode == "error" and self.table.exists() and not found.has_created(before):
            raise ConfigError(f"{self.settings.shown} already exists: name another table{instead}")
        files = self._stage(frame, "batch", {found.mark: NO_MARK})
        if files:
            notes = {"minikafka.batch": found.name, "minikafka.plan": found.plan}
            self.table.commit(TableChange(files, {found.mark: number}, before, notes))
        return _total(files)

    def _overwrite(self, frame: DataFrame, found: SingleBatch, before: Marks) -> Appended:
        files = self._stage(frame, "batch")
        now = number_of(os.urandom(8).hex())
        marks = {_OVERWRITTEN: now, found.mark: found.number(now)}
        marks |= {name: NO_MARK for name in _NAMES if name in before}
        self.table.commit(TableChange(files, marks, before, overwrite=True))
        return _total(files)

    def _stage(self, frame: DataFrame, label: str, marks: Marks | None = None) -> list[LakeFile]:
        """Write the rows to files. `marks`: those of a new table."""
        layout = self.table.prepare(arrow_schema(frame.schema), marks)
        stage = layout.stage(label, self.settings)
        rows = map_in_arrow(frame.toDF(*layout.names), stage.write, STAGED).collect()
        return [staged_file(row.asDict()) for row in rows]


def staged_file(row: Mapping[str, Any]) -> LakeFile:
    """Return a file from a row with the columns of `STAGED`."""
    return LakeFile(**{**row, "key": tuple(json.loads(row["key"])), "footer": bytes(row["footer"])})


def _total(files: Sequence[LakeFile]) -> Appended:
    return Appended(sum(one.rows for one in files), sum(one.nulled for one in files))
