"""One task of the archive pipeline: writes an offset range to a staged Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from minikafka.base.model import TopicPartition
from minikafka.spark.parquet.archive_directory import ArchiveDirectory, Tile
from minikafka.spark.records.batches import Section
from minikafka.spark.records.decode import SCHEMA_WITH_HEADERS
from minikafka.spark.source.options import ReadOptions
from minikafka.spark.source.ranges import OffsetRange
from minikafka.spark.source.readers import decoded_groups
from minikafka.spark.wire.leaders import Position

EPOCH_KEY: Final = b"minikafka.leader.epoch"
"""Key in a file's metadata for the maximum leader epoch of the records in this file and in earlier files."""
TOPIC_ID_KEY: Final = b"minikafka.topic.id"
"""Key in a file's metadata for the id of the archived topic. The id is empty if the topic had no id."""
_ROW_GROUP_BYTES: Final = 32 << 20
_IN_THE_PATH: Final = ("topic", "partition")
"""Columns that are not stored in the files, because readers take them from the directory names."""
_EPOCH: Final = pa.field("leaderEpoch", pa.int32())
_COLUMNS: Final = [field for field in SCHEMA_WITH_HEADERS if field.name not in _IN_THE_PATH]
SCHEMA: Final = pa.schema([*_COLUMNS, _EPOCH])


@dataclass(frozen=True)
class Save:
    """The work of one task: write the records of an offset range (`tile`) to a staged file of an archive."""

    options: ReadOptions
    tp: TopicPartition
    tile: Tile
    end: Position
    """The end of the partition's log when the task was planned."""
    directory: str
    """The path or URI of the archive."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options of the store, which may be secrets."""


def save(work: Save) -> dict[str, Any]:
    """Write the records of an offset range to a new staged file. Return its name, record count and size.

    Each attempt of a task writes its own file: Spark may still run an attempt after it has used the result of
    another attempt.
    """
    files = ArchiveDirectory(work.directory, work.storage).files
    facts = {EPOCH_KEY: str(work.end.leader_epoch), TOPIC_ID_KEY: work.end.topic_id}
    schema = SCHEMA.with_metadata(facts)
    records = 0
    with files.stage(work.tile.file_name) as staged:
        with pq.ParquetWriter(
            staged.file, schema, compression="zstd", write_page_checksum=True
        ) as writer:
            for table in row_groups(_rows(work)):
                writer.write_table(table, row_group_size=max(len(table), 1))
                records += len(table)
        size = staged.file.tell()
    return {"staged": staged.name, "records": records, "bytes": size}


def _rows(work: Save) -> Iterator[pa.RecordBatch]:
    for group, batch in decoded_groups(work.options, [OffsetRange(work.tp, *work.tile)]):
        columns = [batch.column(name) for name in SCHEMA.names[:-1]]
        yield pa.RecordBatch.from_arrays([*columns, epochs(group, batch)], schema=SCHEMA)


def epochs(group: list[Section], batch: pa.RecordBatch) -> pa.Array:
    """Return the leader epoch of each row, taken from the record batch that contains the row."""
    bases = np.array([section.base_offset for section in group], dtype=np.int64)
    epochs = np.array([section.leader_epoch for section in group], dtype=np.int32)
    found = np.searchsorted(bases, np.asarray(batch.column("offset")), side="right") - 1
    return pa.array(epochs[found])


def row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables of about `_ROW_GROUP_BYTES`. Each becomes one row group, which a reader must hold in memory."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def end_of(file: pa.NativeFile, offset: int) -> Position:
    """Return `offset`, the end offset of an archive file, as a position. Closes the file.

    The leader epoch and the topic id of the position are read from the metadata of the file.
    """
    with file:
        metadata = pq.read_schema(file).metadata or {}
    topic_id = metadata.get(TOPIC_ID_KEY, b"").decode()
    return Position(offset, int(metadata[EPOCH_KEY]), topic_id)
