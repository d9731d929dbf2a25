"""One task of a Parquet sink: writes its rows to staged files, one file for each directory of the table.

The directories are named by the values of the partition columns, as Spark and Hive name them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from minikafka.spark.parquet.archive_save import row_groups
from minikafka.spark.parquet.table_directory import StagedFile, TableDirectory
from minikafka.spark.storage.files import OutputFiles
from minikafka.spark.workers import one_line_errors

PLACE: Final = "__place"
"""The column with the values of the partition columns, as a JSON array of texts. The rows are sorted by it."""
_NO_PLACE: Final = "[]"
STAGED: Final = "name string, place string, rows long"
"""The columns of `StagedFile`."""


@dataclass(frozen=True)
class TableStage:
    """The settings of the tasks that write a table. `columns`: the names of the partition columns."""

    directory: str
    columns: tuple[str, ...]
    compression: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options of the store, which may be secrets."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task to staged files, and yield a row for each file, with the columns of `STAGED`.

        A task without rows writes no file.
        """
        with one_line_errors():
            files = TableDirectory(self.directory, self.storage).files
            for values, runs in groupby(_runs(batches), itemgetter(0)):
                staged = self._write_file(files, values, map(itemgetter(1), runs))
                yield pa.RecordBatch.from_pylist([staged._asdict()])

    def _write_file(
        self, files: OutputFiles, values: str, batches: Iterator[pa.RecordBatch]
    ) -> StagedFile:
        tables = row_groups(batches)
        first = next(tables)
        rows = 0
        with (
            files.stage("rows") as staged,
            pq.ParquetWriter(staged.file, first.schema, compression=self.compression) as writer,
        ):
            for table in chain([first], tables):
                writer.write_table(table, row_group_size=len(table))
                rows += len(table)
        return StagedFile(staged.name, place_of(self.columns, json.loads(values)), rows)


def write_empty(directory: TableDirectory, schema: pa.Schema, compression: str) -> StagedFile:
    """Write a staged file without rows, so that readers of a table without rows find its columns."""
    with directory.files.stage("rows") as staged:
        pq.write_table(nullable(schema).empty_table(), staged.file, compression=compression)
    return StagedFile(staged.name, "", 0)


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return the schema with columns that may all be null, as in files that Spark writes."""
    return pa.schema([field.with_nullable(True) for field in schema])


def _runs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the parts of the batches in which all rows have the same place, without the column `PLACE`."""
    for batch in batches:
        names = [name for name in batch.schema.names if name != PLACE]
        schema = nullable(pa.schema([batch.schema.field(name) for name in names]))
        rows = pa.RecordBatch.from_arrays([batch.column(name) for name in names], schema=schema)
        start = 0
        for values, end in _borders(batch):
            yield values, rows.slice(start, end - start)
            start = end


def _borders(batch: pa.RecordBatch) -> list[tuple[str, int]]:
    """Return each run of equal places in a batch with the index after its last row."""
    if not batch.num_rows:
        return []
    if PLACE not in batch.schema.names:
        return [(_NO_PLACE, batch.num_rows)]
    runs = pc.run_end_encode(batch.column(PLACE))
    return list(zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True))


_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = frozenset([*map(chr, range(0x20)), *"\"#%'*/:=?\\{[]^\x7f"])


def place_of(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """Return the directory for the values of partition columns, such as `user=ann/day=2026-03-01`."""
    pairs = zip(columns, values, strict=True)
    return "/".join(
        f"{_escaped(name)}={_escaped(value) if value else _NULL}" for name, value in pairs
    )


def _escaped(text: str) -> str:
    return "".join(f"%{ord(sign):02X}" if sign in _ESCAPED else sign for sign in text)
