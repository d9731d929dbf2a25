"""One task of a table: writes its rows to Parquet files, which readers do not see before the driver commits them.

A task keeps at most `_HELD_BYTES` of rows in memory, also if it writes many partitions.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from minikafka.base.errors import MinikafkaError
from minikafka.spark.lakehouse.places import NO_OPTIONS, DataFiles, StoreOptions, data_files
from minikafka.spark.lakehouse.rules import Key, PartitionRule, out_of_range, split
from minikafka.spark.storage.local import writing
from minikafka.spark.workers import one_line_errors

STAGED: Final = "path string, footer binary, key string, rows long, bytes long, nulled long"
"""The columns of `LakeFile`, with the key as JSON."""
REFUSE: Final = "refuse"
NULL: Final = "null"
KEEP: Final = "keep"
"""The rule for rows that are in the table already."""
_HELD_BYTES: Final = 64 << 20
_GROUP_BYTES: Final = 32 << 20
"""Approximate size of a row group in memory, which a reader must hold."""
_OPEN_MAX: Final = 64
"""Maximum number of files that a task writes at the same time."""


class LakeFile(NamedTuple):
    """A finished file of a task: its path or URI, its Parquet footer, and the values of the partition rules.

    `nulled`: the number of timestamps that became null because they were out of range.
    """

    path: str
    footer: bytes
    key: Key
    rows: int
    bytes: int
    nulled: int


class NullRefused(MinikafkaError):
    """A value is null in a column of the table that must not be null."""


class TimeNotShown(MinikafkaError):
    """A timestamp is outside of the years 1 to 9999."""


@dataclass(frozen=True)
class FileStage:
    """The settings of the tasks that write a table.

    `schema`: the columns of the files, in their order. `rules`: how rows are divided among files.
    `directory`: the path or URI of the table's files. `label`: the beginning of the files' names.
    `timestamps`: `refuse`, `null` or `keep`, for timestamps outside of the years 1 to 9999.
    """

    schema: pa.Schema
    rules: tuple[PartitionRule, ...]
    directory: str
    label: str
    timestamps: str = REFUSE
    compression: str = "zstd"
    storage: StoreOptions = NO_OPTIONS
    """The options of the store, if `directory` is a URI. They may be secrets."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task, and yield a row for each file, with the columns of `STAGED`."""
        with one_line_errors():
            for staged in self.files(batches):
                yield pa.RecordBatch.from_pylist(
                    [{**staged._asdict(), "key": json.dumps(staged.key, default=str)}]
                )

    def files(self, batches: Iterable[pa.RecordBatch]) -> Iterator[LakeFile]:
        """Write the rows, and yield each file when it is complete."""
        files = _Writing(self)
        try:
            for batch in batches:
                checked, nulled = self._in_range(batch)
                files.nulled += nulled
                for key, rows in split(checked, self.rules):
                    yield from files.add(key, self._columns(rows))
            yield from files.finish()
        finally:
            files.abandon()

    def _in_range(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Return the rows with only times that every reader can show, and the number of those that became null."""
        nulled = 0
        if self.timestamps == KEEP:
            return batch, 0
        for index, name in enumerate(batch.schema.names):
            column = batch.column(index)
            far = out_of_range(column)
            if far is None:
                continue
            if self.timestamps == REFUSE:
                raise TimeNotShown(_refusal(batch, name, far))
            nulled += pc.sum(far).as_py()
            cleared = pc.if_else(far, pa.scalar(None, column.type), column)
            field = batch.schema.field(index).with_nullable(True)
            batch = batch.set_column(index, field, cleared)
        return batch, nulled

    def _columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for one in self.schema:
            column = batch.column(one.name)
            if not one.nullable and column.null_count:
                of_record = _of_record(batch, pc.index(column.is_null(), True).as_py())
                raise NullRefused(
                    f"column {one.name}{of_record} is null, which the table does not allow: replace null in the"
                    " query, or leave out the rows"
                )
        columns = [batch.column(one.name).cast(one.type) for one in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


_PLACE: Final = ("topic", "partition", "offset")
"""The columns that name a record, if a table has them."""


def _refusal(batch: pa.RecordBatch, name: str, far: pa.Array) -> str:
    row = pc.index(far, True).as_py()
    kind = batch.column(name).type
    number = batch.column(name)[row].cast(pa.int64() if kind != pa.date32() else pa.int32())
    unit = "days" if kind == pa.date32() else kind.unit
    return (
        f"column {name}{_of_record(batch, row)} is {number} {unit} since 1970, outside of the years 1 to 9999, which"
        ' readers of the table cannot show: set timestamps to "null" to write such values as null and count'
        " them, or leave out the rows"
    )


def _of_record(batch: pa.RecordBatch, row: int) -> str:
    known = [
        f"{one} {batch.column(one)[row].as_py()}" for one in _PLACE if one in batch.schema.names
    ]
    return f" of {', '.join(known)}" if known else ""


class _Writing:
    """The files that a task is writing, one for each key."""

    def __init__(self, stage: FileStage) -> None:
        self._stage = stage
        self._files = data_files(stage.directory, stage.storage)
        self._open: dict[Key, _File] = {}
        self.nulled = 0
        """The number of nulled times that no finished file reports yet."""

    def add(self, key: Key, rows: pa.RecordBatch) -> Iterator[LakeFile]:
        """Add rows to the file of a key, and yield a file that had to be finished to open another one."""
        if key not in self._open:
            if len(self._open) >= _OPEN_MAX:
                yield self._finished(max(self._open, key=lambda one: self._open[one].rows))
            self._open[key] = _File(self._stage, self._files, key)
        self._open[key].add(rows)
        if sum(file.held for file in self._open.values()) > _HELD_BYTES:
            max(self._open.values(), key=lambda file: file.held).flush()

    def finish(self) -> Iterator[LakeFile]:
        """Finish and yield all files."""
        for key in list(self._open):
            yield self._finished(key)

    def _finished(self, key: Key) -> LakeFile:
        nulled, self.nulled = self.nulled, 0
        found = self._open[key].finish(nulled)
        del self._open[key]
        return found

    def abandon(self) -> None:
        """Remove the files that are not finished, after an error."""
        for file in self._open.values():
            file.remove()
        self._open.clear()


class _File:
    """A file that a task is writing. `held`: the size of the rows in memory; `rows`: the number of all rows."""

    def __init__(self, stage: FileStage, files: DataFiles, key: Key) -> None:
        name = f"{stage.label}-{os.urandom(8).hex()}.parquet"
        self.path = f"{stage.directory}/{name}"
        self._key = key
        self._open = ExitStack()
        self._sink = self._open.enter_context(files.open_output(name))
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._sink,
            stage.schema,
            compression=stage.compression,
            write_page_checksum=True,
            metadata_collector=self._footers,
        )
        self._batches: list[pa.RecordBatch] = []
        self.held = 0
        self.rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows, and write a row group if there are enough."""
        self._batches.append(rows)
        self.held += rows.nbytes
        self.rows += rows.num_rows
        if self.held >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows in memory as a row group."""
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            with writing(Path(self.path)):
                self._writer.write_table(table, row_group_size=max(len(table), 1))
        self._batches, self.held = [], 0

    def finish(self, nulled: int) -> LakeFile:
        """Write the rest and close the file."""
        self.flush()
        with writing(Path(self.path)):
            self._writer.close()
        size = self._sink.tell()
        self._open.close()
        footer = io.BytesIO()
        self._footers[0].write_metadata_file(footer)
        return LakeFile(self.path, footer.getvalue(), self._key, self.rows, size, nulled)

    def remove(self) -> None:
        """Give up the file, which readers have not seen."""
        with suppress(Exception):
            self._writer.close()
        self._writer.is_open = (
            False  # otherwise its destructor closes it again, and prints a traceback
        )
        error = _GivenUp()
        self._open.__exit__(type(error), error, None)


class _GivenUp(Exception):
    """Tells an open file that it is not complete."""
