"""Reads the records of chosen batches in segment files, including control records and aborted records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minikafka.base.errors import CorruptBatch, MinikafkaError
from minikafka.spark.records.batches import Section, whole
from minikafka.spark.records.decode import decode

_CARRIED: Final = [
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("leader_epoch", pa.int32()),
    ("attributes", pa.int32()),
    ("producer_id", pa.int64()),
    ("producer_epoch", pa.int32()),
    ("base_offset", pa.int64()),
    ("base_sequence", pa.int32()),
    ("state", pa.int32()),
    ("brokers", pa.list_(pa.int32())),
]
"""Columns that are copied from the row of a batch to the row of each record in the batch."""
_DECODED: Final = [
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
]
_ARROW: Final = pa.schema([*_CARRIED, *_DECODED, ("fault", pa.string())])
CHOSEN: Final = ("path", "position", "size", "last_offset", *(name for name, _ in _CARRIED))
"""Columns of the table of chosen batches, sorted by path and position within a task."""
RECORDS: Final = (
    "topic string, partition int, leader_epoch int, attributes int, producer_id long, producer_epoch int,"
    " base_offset long, base_sequence int, state int, brokers array<int>, offset long, timestamp timestamp,"
    " key binary, value binary, headers array<struct<key:string,value:binary>>, fault string"
)
"""Columns of the table of records. A batch that cannot be decoded is one row with a `fault`."""
_RUN_BYTES: Final = 4 << 20
"""Approximate number of bytes of records to decode together."""
_FILES_MAX: Final = 16


class _Place(NamedTuple):
    """The row number, file, position and offsets of one batch in the table `CHOSEN`."""

    row: int
    path: str
    position: int
    size: int
    topic: str
    partition: int
    base_offset: int
    last_offset: int

    def follows(self, before: _Place) -> bool:
        """True if this batch can be decoded together with the batch before it (`before`)."""
        is_same = (self.topic, self.partition) == (before.topic, before.partition)
        return is_same and before.last_offset < self.base_offset


_Run = list[tuple[_Place, Section]]
"""Batches of one partition with increasing offsets."""


def read_records(tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield tables of the records (`RECORDS`) in the given batches (`CHOSEN`). Runs on executors.

    Each batch must have at least one record.
    """
    open_file = lru_cache(maxsize=_FILES_MAX)(_Opened)
    for table in tables:
        for run in _runs(_places(table), open_file):
            yield from _decoded_or_faults(table, run)


def read_faults(tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield only the rows of `read_records` with a fault: one row for each batch that cannot be decoded."""
    for found in read_records(tables):
        if len(found.column("fault")) > found.column("fault").null_count:
            yield found.filter(found.column("fault").is_valid())


def _places(table: pa.RecordBatch) -> Iterator[_Place]:
    columns = [table.column(name).to_pylist() for name in _Place._fields[1:]]
    return map(_Place, range(table.num_rows), *columns)


class _Opened:
    """An open file for reads at any position. The file is closed when this object is garbage collected."""

    def __init__(self, path: str) -> None:
        self._file: BinaryIO = open(path, "rb", buffering=0)  # noqa: SIM115 - closed in __del__

    def __del__(self) -> None:
        self._file.close()

    def read(self, place: _Place) -> bytes:
        self._file.seek(place.position)
        return self._file.read(place.size)


def _runs(places: Iterable[_Place], open_file: Callable[[str], _Opened]) -> Iterator[_Run]:
    run: _Run = []
    held = 0
    for place in places:
        section = _section(open_file(place.path).read(place))
        if run and (held > _RUN_BYTES or not place.follows(run[-1][0])):
            yield run
            run, held = [], 0
        run.append((place, section))
        held += len(section.records)
    if run:
        yield run


def _section(data: bytes) -> Section:
    """Return the decompressed records of a batch.

    If decompression fails, return a section without bytes: decoding then fails and reports the batch.
    """
    try:
        return whole(memoryview(data))
    except CorruptBatch:
        empty = memoryview(b"")
        return Section(0, 0, append_time=False, record_count=1, leader_epoch=-1, records=empty)


def _decoded_or_faults(table: pa.RecordBatch, run: _Run) -> Iterator[pa.RecordBatch]:
    """Yield the records of a run of batches, and one fault for each batch that cannot be decoded."""
    try:
        yield _decoded(table, run)
    except MinikafkaError as error:
        if len(run) > 1:
            for one in run:
                yield from _decoded_or_faults(table, [one])
        else:
            yield _fault(table, run[0][0], str(error))


def _decoded(table: pa.RecordBatch, run: _Run) -> pa.RecordBatch:
    first, last = run[0][0], run[-1][0]
    found = [section for _, section in run]
    span = (first.topic, first.partition, first.base_offset, last.last_offset + 1)
    decoded = decode(found, *span, with_headers=True)
    counts = [section.record_count for section in found]
    if decoded.num_rows != sum(counts):
        raise CorruptBatch("a record has an offset outside of its batch")
    rows = np.repeat([place.row for place, _ in run], counts)
    columns = [decoded.column(name) for name, _ in _DECODED]
    fault = pa.nulls(decoded.num_rows, pa.string())
    return pa.RecordBatch.from_arrays([*_carried(table, rows), *columns, fault], schema=_ARROW)


def _fault(table: pa.RecordBatch, place: _Place, text: str) -> pa.RecordBatch:
    columns = [pa.array([place.base_offset], pa.int64())]
    columns += [pa.nulls(1, kind) for _, kind in _DECODED[1:]]
    carried = _carried(table, np.array([place.row]))
    return pa.RecordBatch.from_arrays([*carried, *columns, pa.array([text])], schema=_ARROW)


def _carried(table: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> list[pa.Array]:
    picks = pa.array(rows)
    return [table.column(name).take(picks).cast(kind) for name, kind in _CARRIED]
