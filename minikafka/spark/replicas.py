"""Reads the logs of replicas in Spark, from the files in log directories, without a broker.

`read_headers` reads whole segment files, memory-mapped, and decompresses no batch: the result has one row for each
batch, with its header and a digest. `read_states` finds which transactional batches are visible, aborted or open.
`read_records` reads the records of chosen batches, including control records and aborted records.

The column `fault` is set for an invalid batch. Invariant: every byte of a file belongs to exactly one row of
`read_headers`, except the zeros after the last batch of a preallocated file. A batch with an invalid length is the
last row of its file, and covers the remaining bytes of the file, at most `INFLATED_MAX` bytes.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minikafka.base.errors import CorruptBatch, MinikafkaError
from minikafka.base.open_transactions import OpenTransactions
from minikafka.kafka.records.header import CONTROL, CRC_START, HEADER, HEADER_BYTES, OVERHEAD
from minikafka.kafka.records.transactions import ABORT, ABORTED, OPEN, VISIBLE, marker_type_in
from minikafka.spark.records import checksum
from minikafka.spark.records.batches import Section, whole
from minikafka.spark.records.checksum import Checksum
from minikafka.spark.records.compression import INFLATED_MAX
from minikafka.spark.records.decode import decode

SEGMENTS: Final = "path string, broker int, topic string, partition int, base_offset long"
"""Columns of the table of segment files."""
BATCHES: Final = (
    "path string, broker int, topic string, partition int, position long, size int, base_offset long,"
    " last_offset long, leader_epoch int, attributes int, producer_id long, producer_epoch int,"
    " base_sequence int, record_count int, marker int, digest binary, fault string"
)
"""Columns of the table of batches, in the order of `_BATCH_ROWS`."""
_PIECE_BYTES: Final = 1 << 20
_MAGIC: Final = 2
_DIGEST_BYTES: Final = 16
_ROWS: Final = 10_000
_BATCH_ROWS: Final = pa.schema(
    [
        ("path", pa.string()),
        ("broker", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("attributes", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("base_sequence", pa.int32()),
        ("record_count", pa.int32()),
        ("marker", pa.int32()),
        ("digest", pa.binary()),
        ("fault", pa.string()),
    ]
)


class StoredBatch(NamedTuple):
    """One batch of a segment file. If `fault` is set, only position, size and base offset are reliable."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int = -1
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    record_count: int = 0
    marker: int | None = None
    digest: bytes | None = None
    fault: str | None = None


def read_headers(tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches (`BATCHES`) in the given segment files (`SEGMENTS`). Runs on executors."""
    check = checksum.find()
    for table in tables:
        for segment in table.to_pylist():
            place = [segment[name] for name in ("path", "broker", "topic", "partition")]
            found = _in_file(segment["path"], segment["base_offset"], check)
            while run := list(islice(found, _ROWS)):
                repeated = [[fact] * len(run) for fact in place]
                columns: list[Any] = [*repeated, *zip(*run, strict=True)]
                arrays = [pa.array(c, f.type) for c, f in zip(columns, _BATCH_ROWS, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=_BATCH_ROWS)


def _in_file(path: str, base_offset: int, check: Checksum | None) -> Iterator[StoredBatch]:
    with open(path, "rb") as file:
        if not file.seek(0, 2):
            return
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            yield from walk(data, base_offset, check)


def walk(data: memoryview, base_offset: int, check: Checksum | None) -> Iterator[StoredBatch]:
    """Yield the batches in the bytes of a segment file. The field `fault` is set for an invalid batch."""
    position, expected = 0, base_offset
    while position < len(data):
        fault, size = _broken_frame(data, position)
        if fault is not None:
            if not _is_zero(data, position):
                left = min(len(data) - position, INFLATED_MAX)
                yield StoredBatch(position, left, expected, expected, fault=fault)
            return
        with data[position : position + size] as bytes_:
            batch = _batch(bytes_, position, check)
        yield batch
        position += size
        expected = batch.last_offset + 1


def _is_zero(data: memoryview, position: int) -> bool:
    """True if every byte from the position to the end is zero."""
    pieces = (data[at : at + _PIECE_BYTES] for at in range(position, len(data), _PIECE_BYTES))
    return all(bytes(piece).count(0) == len(piece) for piece in pieces)


def _broken_frame(data: memoryview, position: int) -> tuple[str | None, int]:
    """Return the fault in the length of the batch (None if it is valid), and the batch's size (0 if it is invalid)."""
    left = len(data) - position
    if left < HEADER_BYTES:
        return f"the file ends within a batch header, {left} bytes after its start", 0
    length = int.from_bytes(data[position + 8 : position + OVERHEAD], "big", signed=True)
    size = length + OVERHEAD
    if not HEADER_BYTES <= size <= INFLATED_MAX:
        return f"invalid batch length {length}", 0
    if size > left:
        return f"the file ends within a batch of {size} bytes, {left} bytes after its start", 0
    return None, size


def _batch(data: memoryview, position: int, check: Checksum | None) -> StoredBatch:
    base, _, epoch, magic, crc, attributes, delta, _, _, *rest = HEADER.unpack_from(data)
    end = base + max(delta, 0)
    if magic != _MAGIC:
        fault = f"message format {magic} is not supported, only 2 is"
        return StoredBatch(position, len(data), base, base, fault=fault)
    with data[CRC_START:] as covered:
        if check is not None and check(covered) != crc:
            fault = "the CRC-32C differs from the one in the batch header"
            return StoredBatch(position, len(data), base, end, epoch, attributes, fault=fault)
    marker = marker_type_in(data[HEADER_BYTES:]) if attributes & CONTROL else None
    digest = blake2b(data, digest_size=_DIGEST_BYTES).digest()
    id_, producer_epoch, sequence, count = rest
    producer = (id_, producer_epoch, sequence)
    place = (position, len(data), base, end, epoch, attributes)
    return StoredBatch(*place, *producer, record_count=count, marker=marker, digest=digest)


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
        if hasattr(self, "_file"):  # else it could not be opened
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


STATES: Final = f"{BATCHES}, state int"
"""Columns of the table of batches with the outcome of each batch (`kafka/records/transactions.py`)."""
_LOG: Final = ("broker", "topic", "partition")
_Row: TypeAlias = tuple[pa.RecordBatch, int]
"""A table, and the number of a row in it."""


def read_states(tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the column `state` to tables of transactional batches and markers (`BATCHES`). Runs on executors.

    The batches of one replica's log must be together, and in rising order of their offsets. A batch is returned when
    the marker of its transaction has been read, so the rows change their order.
    """
    log, open_ = None, OpenTransactions[_Row]()
    for table in tables:
        decided = _Decided()
        columns = [table.column(name).to_pylist() for name in (*_LOG, "producer_id", "marker")]
        for row, (*place, producer_id, marker) in enumerate(zip(*columns, strict=True)):
            if place != log:
                decided.add(open_, OPEN)
                log, open_ = place, OpenTransactions()
            if marker is None:
                open_.add(producer_id, (table, row))
            else:
                rows = [*open_.end(producer_id), (table, row)]
                decided.add(rows, ABORTED if marker == ABORT else VISIBLE)
        yield from decided.tables()
    decided = _Decided()
    decided.add(open_, OPEN)
    yield from decided.tables()


class _Decided:
    """The rows whose state is known, by table."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[pa.RecordBatch, list[int], list[int]]] = {}

    def add(self, rows: Iterable[_Row], state: int) -> None:
        for table, row in rows:
            _, numbers, states = self._rows.setdefault(id(table), (table, [], []))
            numbers.append(row)
            states.append(state)

    def tables(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each table, with the column `state`."""
        for table, numbers, states in self._rows.values():
            chosen = table.take(pa.array(numbers, pa.int64()))
            columns = [*chosen.columns, pa.array(states, pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, [*table.schema.names, "state"])
