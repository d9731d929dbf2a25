"""The complete batches of one Fetch response and the next offset to fetch, found by reading the batch headers.

The work is proportional to the number of batches, not of records. Invariant: `sections` yields batches only if all
their bytes are present and, if a checksum function is given, the CRC-32C of every batch of the response is right. A
batch that is truncated at the end of the response is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from minikafka.base.errors import CorruptBatch
from minikafka.kafka.records.header import (
    BASE_OFFSET,
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    OVERHEAD,
)
from minikafka.kafka.records.transactions import Aborted, AbortedBatches
from minikafka.spark.records.checksum import Checksum
from minikafka.spark.records.compression import INFLATED_MAX, inflate
from minikafka.spark.records.starts import Positions

_HEADERS: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
"""The fields of `HEADER`, for the headers of many batches."""
_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_LENGTH_MIN: Final = HEADER_BYTES - OVERHEAD
_MAGIC: Final = 2


class Extent(NamedTuple):
    """The complete batches in a Fetch response, and the size of the first batch."""

    first_offset: int
    """Offset of the first record of the first batch; -1 if no batch is complete."""
    next_offset: int
    """Offset after the last complete batch; -1 if no batch is complete."""
    needed_bytes: int
    """Size of the first batch. A batch larger than the response is fetched again with this size."""
    whole_bytes: int
    """Size of all complete batches."""


class Section(NamedTuple):
    """The decompressed records of one data batch."""

    base_offset: int
    timestamp: int
    """Base timestamp of the batch, or the broker's append time for all records; Unix milliseconds."""
    append_time: bool
    record_count: int
    leader_epoch: int
    records: memoryview


def extent(data: memoryview) -> Extent:
    """Return the offsets and the sizes of the complete batches. Reads only headers. Raises `CorruptBatch`."""
    positions, end = _complete(data)
    needed = OVERHEAD + _LENGTH.unpack_from(data, _LENGTH_AT)[0] if len(data) >= OVERHEAD else 0
    if not positions:
        return Extent(-1, -1, needed, 0)
    last = HEADER.unpack_from(data, positions[-1])
    first_offset = HEADER.unpack_from(data)[BASE_OFFSET]
    return Extent(first_offset, last[BASE_OFFSET] + last[LAST_OFFSET_DELTA] + 1, needed, end)


def _complete(data: memoryview) -> tuple[list[int], int]:
    """Return the position of each complete batch, and the end of the last one. Raises `CorruptBatch`."""
    positions: list[int] = []
    position, size, unpack = 0, len(data), _LENGTH.unpack_from
    while size - position >= OVERHEAD:
        (length,) = unpack(data, position + _LENGTH_AT)
        if not _LENGTH_MIN <= length <= INFLATED_MAX:
            base = int.from_bytes(data[position : position + _LENGTH_AT], "big", signed=True)
            raise CorruptBatch(f"offset {base}: invalid batch length {length}")
        end = position + OVERHEAD + length
        if end > size:
            break
        positions.append(position)
        position = end
    return positions, position


def sections(
    data: memoryview,
    start: int,
    end: int,
    checksum: Checksum | None,
    aborted: Sequence[Aborted] = (),
) -> Iterator[Section]:
    """Return the data batches that overlap [start, end), in order. Raises `CorruptBatch`.

    Control batches and batches of `aborted` transactions are skipped. A batch that is partly outside the
    range is returned with all its records. `data` and `aborted` must be from the same Fetch response.

    The headers of all batches are read together, because a topic may have one record in each batch.
    """
    positions = np.array(_complete(data)[0], dtype=np.int64)
    if not positions.size:
        return iter(())
    headers = np.ndarray(len(data) - HEADER_BYTES + 1, _HEADERS, data, strides=(1,))[positions]
    stops = positions + OVERHEAD + headers["length"]
    _check_formats(headers)
    if checksum is not None:
        _check_checksums(data, headers, positions + CRC_START, stops, checksum)
    last_offsets = headers["base_offset"] + headers["last_offset_delta"]
    wanted = (headers["base_offset"] < end) & (last_offsets >= start) & (headers["count"] > 0)
    wanted &= headers["attributes"] & CONTROL == 0
    if aborted:
        hidden = AbortedBatches(aborted)
        wanted &= [not hidden.is_aborted(header) for header in headers.tolist()]
    return _sections(data, headers[wanted], (positions + HEADER_BYTES)[wanted], stops[wanted])


def _check_formats(headers: npt.NDArray[np.void]) -> None:
    others = np.flatnonzero(headers["magic"] != _MAGIC)
    if others.size:
        first = headers[others[0]]
        raise CorruptBatch(
            f"offset {first['base_offset']}: message format {first['magic']} is not supported, only 2 is"
        )


def _check_checksums(
    data: memoryview,
    headers: npt.NDArray[np.void],
    starts: Positions,
    stops: Positions,
    checksum: Checksum,
) -> None:
    """Compare the CRC in each header with the one of the bytes from `starts` to `stops`."""
    places = zip(starts.tolist(), stops.tolist(), strict=True)
    found = [checksum(data[start:stop]) for start, stop in places]
    wrong = np.flatnonzero(headers["crc"] != found)
    if wrong.size:
        offset = headers["base_offset"][wrong[0]]
        raise CorruptBatch(f"offset {offset}: the CRC-32C differs from the one in the batch header")


def _sections(
    data: memoryview, headers: npt.NDArray[np.void], starts: Positions, stops: Positions
) -> Iterator[Section]:
    """Return the batches with these headers, whose records are between `starts` and `stops`."""
    attributes = headers["attributes"]
    append_times = attributes & LOG_APPEND_TIME != 0
    facts = (
        headers["base_offset"],
        np.where(append_times, headers["max_timestamp"], headers["base_timestamp"]),
        append_times,
        headers["count"],
        headers["leader_epoch"],
    )
    places = zip((attributes & CODEC_MASK).tolist(), starts.tolist(), stops.tolist(), strict=True)
    records = (
        inflate(codec, data[start:stop]) if codec else data[start:stop]
        for codec, start, stop in places
    )
    return map(Section._make, zip(*(column.tolist() for column in facts), records, strict=True))


def whole(data: memoryview) -> Section:
    """Return the records of one complete batch, also of a control batch. Raises `CorruptBatch`.

    The checksum is not verified.
    """
    headers = np.frombuffer(data, _HEADERS, 1)
    (section,) = _sections(data, headers, np.array([HEADER_BYTES]), np.array([len(data)]))
    return section


def grouped(stream: Iterator[Section], limit: int) -> Iterator[list[Section]]:
    """Yield lists of consecutive sections with at most `limit` bytes. A larger section is alone in its list."""
    group: list[Section] = []
    size = 0
    for section in stream:
        if group and size + len(section.records) > limit:
            yield group
            group, size = [], 0
        group.append(section)
        size += len(section.records)
    if group:
        yield group
