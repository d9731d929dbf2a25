"""The complete batches of one Fetch response and the next offset to fetch, found by reading the batch headers.

The work is proportional to the number of batches, not of records. Invariant: `sections` yields a batch only
if all its bytes are present and, if a checksum function is given, its CRC-32C is right. A batch that is
truncated at the end of the response is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from minikafka.base.errors import CorruptBatch
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    CODEC_MASK,
    COUNT,
    CRC,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_TIMESTAMP,
    OVERHEAD,
    Header,
)
from minikafka.kafka.records.transactions import Aborted, AbortedBatches, is_control
from minikafka.spark.records.checksum import Checksum
from minikafka.spark.records.compression import INFLATED_MAX, inflate

_PREFIX: Final = Struct(">qi")
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
    """Return the offsets and the sizes of the complete batches. Reads only headers."""
    position, first_offset, next_offset, needed = 0, -1, -1, 0
    while len(data) - position >= OVERHEAD:
        base, length = _PREFIX.unpack_from(data, position)
        end = position + OVERHEAD + _checked_length(base, length)
        needed = needed or end
        if end > len(data):
            break
        first_offset = base if next_offset < 0 else first_offset
        next_offset = base + int.from_bytes(data[position + 23 : position + 27], "big") + 1
        position = end
    return Extent(first_offset, next_offset, needed, position)


def sections(
    data: memoryview,
    start: int,
    end: int,
    checksum: Checksum | None,
    aborted: Sequence[Aborted] = (),
) -> Iterator[Section]:
    """Yield the data batches that overlap [start, end), in order. Raises `CorruptBatch`.

    Control batches and batches of `aborted` transactions are skipped. A batch that is partly outside the
    range is returned with all its records. `data` and `aborted` must be from the same Fetch response.
    """
    hidden = AbortedBatches(aborted)
    position = 0
    while len(data) - position >= HEADER_BYTES:
        header = HEADER.unpack_from(data, position)
        first = header[BASE_OFFSET]
        stop = position + OVERHEAD + _checked_length(first, header[BATCH_LENGTH])
        if stop > len(data):
            return
        if header[MAGIC] != _MAGIC:
            raise CorruptBatch(
                f"offset {first}: message format {header[MAGIC]} is not supported, only 2 is"
            )
        if checksum is not None and checksum(data[position + CRC_START : stop]) != header[CRC]:
            raise CorruptBatch(
                f"offset {first}: the CRC-32C differs from the one in the batch header"
            )
        is_inside = first < end and first + header[LAST_OFFSET_DELTA] >= start
        is_hidden = hidden.is_aborted(header) or is_control(header)
        if not is_hidden and is_inside and header[COUNT] > 0:
            yield _section(header, data[position + HEADER_BYTES : stop])
        position = stop


def whole(data: memoryview) -> Section:
    """Return the records of one complete batch, also of a control batch. Raises `CorruptBatch`.

    The checksum is not verified.
    """
    return _section(HEADER.unpack_from(data), data[HEADER_BYTES:])


def _section(header: Header, records: memoryview) -> Section:
    codec = header[ATTRIBUTES] & CODEC_MASK
    append_time = bool(header[ATTRIBUTES] & LOG_APPEND_TIME)
    return Section(
        header[BASE_OFFSET],
        header[MAX_TIMESTAMP] if append_time else header[BASE_TIMESTAMP],
        append_time,
        header[COUNT],
        header[LEADER_EPOCH],
        inflate(codec, records) if codec else records,
    )


def _checked_length(base: int, length: int) -> int:
    if not HEADER_BYTES - OVERHEAD <= length <= INFLATED_MAX:
        raise CorruptBatch(f"offset {base}: invalid batch length {length}")
    return length


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
