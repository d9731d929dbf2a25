"""Adds the rows of batches and micro-batches to a table, each micro-batch once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.spark.frames import map_in_arrow
from minikafka.spark.lakehouse.columns import arrow_schema
from minikafka.spark.lakehouse.opening import open_table
from minikafka.spark.lakehouse.stage import STAGED, FileStage, LakeFile
from minikafka.spark.lakehouse.tables import LakeSettings, LakeTable, Marks, number_of

_QUERY: Final = "minikafka.stream.query"
_BATCH: Final = "minikafka.stream.batch"
_PLAN: Final = "minikafka.stream.plan"
_NAMES: Final = (_QUERY, _BATCH, _PLAN)
_NONE: Final = -1
"""The value of the marks of a table whose rows were replaced by a batch."""


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


class Appended(NamedTuple):
    """The numbers of added rows, and of timestamps that became null."""

    rows: int = 0
    nulled: int = 0


class LakeWriter:
    """Adds rows to one table."""

    def __init__(self, settings: LakeSettings) -> None:
        self.settings = settings
        self.table: LakeTable = open_table(settings)

    def check_query(self, query: str | None, checkpoint: str) -> None:
        """Raise `OtherStream` if another stream than `query` has added rows. `query`: None for a new stream."""
        found = self.table.marks(_NAMES).get(_QUERY, _NONE)
        if found != _NONE and (query is None or found != number_of(query)):
            raise OtherStream(
                f"{self.settings.shown} holds the rows of another stream, and {checkpoint} is not its checkpoint:"
                " continue with that checkpoint, or name a new table and a new checkpoint"
            )

    def add_micro_batch(self, frame: DataFrame, found: StreamBatch) -> Appended:
        """Add the rows of a micro-batch, unless an earlier run has added them.

        A micro-batch that is in the table is computed again, so that Spark's state and watermark stay correct.
        """
        self.check_query(found.query, found.checkpoint)
        before = self.table.marks(_NAMES)
        if self._holds(before, found):
            frame.write.format("noop").mode("overwrite").save()
            return Appended()
        files = self._stage(frame, f"{found.batch:012d}-{found.query[:8]}")
        if files:
            notes = {"minikafka.query": found.query, "minikafka.plan": found.plan}
            self.table.commit(files, found.marks(), before, notes)
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

    def add_batch(self, frame: DataFrame, mode: str, instead: str = "") -> Appended:
        """Add the rows of a batch in one step. `mode`: append, overwrite, or error if the table exists."""
        if mode == "error" and self.table.exists():
            raise ConfigError(f"{self.settings.shown} already exists: name another table{instead}")
        files = self._stage(frame, "batch")
        is_new = mode == "overwrite"
        if files or is_new:
            marks = dict.fromkeys(_NAMES, _NONE) if is_new and self.table.marks(_NAMES) else {}
            self.table.commit(files, marks, self.table.marks(list(marks)), {}, overwrite=is_new)
        return _total(files)

    def _stage(self, frame: DataFrame, label: str) -> list[LakeFile]:
        layout = self.table.prepare(arrow_schema(frame.schema))
        stage = FileStage(
            layout.schema,
            layout.rules,
            layout.directory,
            label,
            self.settings.timestamps,
            self.settings.compression,
        )
        rows = map_in_arrow(frame.toDF(*layout.names), stage.write, STAGED).collect()
        return [staged_file(row.asDict()) for row in rows]


def staged_file(row: Mapping[str, Any]) -> LakeFile:
    """Return a file from a row with the columns of `STAGED`."""
    return LakeFile(**{**row, "key": tuple(json.loads(row["key"])), "footer": bytes(row["footer"])})


def _total(files: Sequence[LakeFile]) -> Appended:
    return Appended(sum(one.rows for one in files), sum(one.nulled for one in files))
