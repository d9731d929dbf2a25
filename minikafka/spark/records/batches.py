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
from minikafka.spark.records.checksum import Checksum
from minikafka.spark.records.inflate import INFLATED_MAX, inflate

_HEADER: Final = Struct(">qiibIhiqqqhii")
_PREFIX: Final = Struct(">qi")
_PREFIX_BYTES: Final = 12
"""Size of the fields base offset and length. The length field counts the bytes after these two fields."""
_CRC_FROM: Final = 21
_MAGIC: Final = 2
_CODEC_BITS: Final = 0x07
_APPEND_TIME_BIT: Final = 0x08
_TRANSACTIONAL_BIT: Final = 0x10
_CONTROL_BIT: Final = 0x20


class _Header(NamedTuple):
    """The fields of a batch header, in the order of `_HEADER`."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class Aborted(NamedTuple):
    """An aborted transaction: its producer, and the offset of its first record."""

    producer_id: int
    first_offset: int


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
    while len(data) - position >= _PREFIX_BYTES:
        base, length = _PREFIX.unpack_from(data, position)
        end = position + _PREFIX_BYTES + _checked_length(base, length)
        needed = needed or end
        if end > len(data):
            break
        first_offset = base if next_offset < 0 else first_offset
        next_offset = base + int.from_bytes(data[position + 23 : position + 27], "big") + 1
        position = end
    return Extent(first_offset, next_offset, needed, position)


class _Transactions:
    """The aborted transactions that are open at the current batch of a response."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._open: set[int] = set()
        """Producer ids of the transactions that are open at the current batch."""

    def hides(self, header: _Header) -> bool:
        """True if the batch is a control batch or part of an aborted transaction.

        The method must be called for every batch of the response, in order.
        """
        last = header.base_offset + header.last_offset_delta
        while self._coming and self._coming[-1].first_offset <= last:
            self._open.add(self._coming.pop().producer_id)
        if header.attributes & _CONTROL_BIT:
            self._open.discard(header.producer_id)
            return True
        return bool(header.attributes & _TRANSACTIONAL_BIT) and header.producer_id in self._open


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
    transactions = _Transactions(aborted)
    position = 0
    while len(data) - position >= _HEADER.size:
        header = _Header._make(_HEADER.unpack_from(data, position))
        first = header.base_offset
        stop = position + _PREFIX_BYTES + _checked_length(first, header.length)
        if stop > len(data):
            return
        if header.magic != _MAGIC:
            raise CorruptBatch(
                f"offset {first}: message format {header.magic} is not supported, only 2 is"
            )
        if checksum is not None and checksum(data[position + _CRC_FROM : stop]) != header.crc:
            raise CorruptBatch(
                f"offset {first}: the CRC-32C differs from the one in the batch header"
            )
        is_inside = first < end and first + header.last_offset_delta >= start
        if not transactions.hides(header) and is_inside and header.record_count > 0:
            yield _section(header, data[position + _HEADER.size : stop])
        position = stop


def whole(data: memoryview) -> Section:
    """Return the records of one complete batch, also of a control batch. Raises `CorruptBatch`.

    The checksum is not verified.
    """
    return _section(_Header._make(_HEADER.unpack_from(data)), data[_HEADER.size :])


def _section(header: _Header, records: memoryview) -> Section:
    codec = header.attributes & _CODEC_BITS
    append_time = bool(header.attributes & _APPEND_TIME_BIT)
    return Section(
        header.base_offset,
        header.max_timestamp if append_time else header.base_timestamp,
        append_time,
        header.record_count,
        header.leader_epoch,
        inflate(codec, records) if codec else records,
    )


def _checked_length(base: int, length: int) -> int:
    if not _HEADER.size - _PREFIX_BYTES <= length <= INFLATED_MAX:
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
