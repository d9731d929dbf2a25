"""One task of an archive in a table: writes the records of an offset range to files of the table."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from minikafka.base.model import TopicPartition
from minikafka.spark.lakehouse.stage import FileStage, LakeFile
from minikafka.spark.parquet.archive_directory import Tile
from minikafka.spark.parquet.archive_save import epochs
from minikafka.spark.records.decode import SCHEMA_WITH_HEADERS
from minikafka.spark.source.options import ReadOptions
from minikafka.spark.source.ranges import OffsetRange
from minikafka.spark.source.readers import decoded_groups

_FIRST: Final = ("topic", "partition", "offset", "timestamp", "timestampType")
_COLUMNS: Final = (*_FIRST, "key", "value", "headers")
SCHEMA: Final = pa.schema(
    [*(SCHEMA_WITH_HEADERS.field(name) for name in _COLUMNS), pa.field("leaderEpoch", pa.int32())]
)
"""The columns of an archive in a table. The first ones have statistics, by which readers skip files."""


@dataclass(frozen=True)
class SaveRecords:
    """The work of one task: write the records of an offset range (`tile`) to new files of a table."""

    options: ReadOptions
    tp: TopicPartition
    tile: Tile
    stage: FileStage


def save(work: SaveRecords) -> dict[str, Any]:
    """Write the records, and return the files and the number of timestamps that became null."""
    rows = _Rows(work)
    files = [_as_json(file) for file in work.stage.files(rows.batches())]
    return {"files": files, "nulled": rows.nulled + sum(file["nulled"] for file in files)}


class _Rows:
    """The rows of a task. `nulled`: the number of those whose timestamp does not fit into 64 bits of microseconds."""

    def __init__(self, work: SaveRecords) -> None:
        self._work = work
        self.nulled = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order of their offsets."""
        wanted = [OffsetRange(self._work.tp, *self._work.tile)]
        for group, batch in decoded_groups(self._work.options, wanted):
            self.nulled += batch.column("timestamp").null_count
            columns = [batch.column(name) for name in _COLUMNS]
            yield pa.RecordBatch.from_arrays([*columns, epochs(group, batch)], schema=SCHEMA)


def _as_json(file: LakeFile) -> dict[str, Any]:
    footer = base64.b64encode(file.footer).decode()
    return {**file._asdict(), "footer": footer, "key": json.dumps(file.key, default=str)}


def file_of(facts: Mapping[str, Any]) -> LakeFile:
    """Return a file from a result of `save`."""
    key = tuple(json.loads(facts["key"]))
    return LakeFile(**{**facts, "footer": base64.b64decode(facts["footer"]), "key": key})
