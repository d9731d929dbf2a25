"""The check that consumers can read every record of a produced batch: a walk over the records.

Kafka's LogValidator makes the same check at every append. An unreadable batch would stop a consumer for ever,
because the consumer's position cannot move beyond the batch. Records are inflated in chunks and walked in groups
of whole records by the compiled reader of aiokafka. Records that this reader refuses are walked again in
Python, because the reader also refuses header keys that are not UTF-8, which Kafka accepts. Records of more than
32 KiB are walked only in Python. Invariant: one step takes less than 5 ms, and a walk keeps at most `Walk.memory()`
bytes in memory. `Walk.restart` frees this memory.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from operator import attrgetter
from struct import Struct
from typing import Any, Final

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch

from minikafka.base.errors import CorruptBatch, ErrorCode
from minikafka.base.ports import Buffer
from minikafka.kafka.records.batch import DECOMPRESSED_LIMIT
from minikafka.kafka.records.codecs import Deflater, crc32c, deflater_memory
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    CODEC_MASK,
    COUNT,
    CRC,
    CRC_AT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    OVERHEAD,
    Header,
)
from minikafka.kafka.records.inflate import GZIP, LZ4, NONE, SNAPPY, ZSTD, inflate, memory_of
from minikafka.kafka.records.rules import KEEP, LISTED_MAX, RecordErrors, RecordRules, Span
from minikafka.kafka.records.varints import read_varint

AT_ONCE_BYTES: Final = 64 << 10
"""Maximum size of an uncompressed batch that is walked in one step. The step takes at most 1.6 ms."""
STEPS_AT_ONCE: Final = 4
"""Number of steps of a walk that are taken without a pause: enough for a small compressed batch. A batch of more than
`AT_ONCE_BYTES` needs more steps."""
_PIECE_BYTES: Final = 32 << 10
_STREAM_BYTES: Final = 4 * _PIECE_BYTES
"""Memory of a `_Stream`, and of the objects around it."""
_RATIOS_MAX: Final = {NONE: 1, GZIP: 1032, SNAPPY: 22, LZ4: 255}
"""Maximum compression ratio by codec; Zstandard has no such limit."""
_OVERREAD: Final = bytes(64)
"""The compiled reader may read up to this many bytes after the end of a batch before it checks a length."""
_VARINT_MAX: Final = 5
"""Maximum size of a varint for a length or offset delta in the Java client. A timestamp may have ten bytes."""
_LONG_VARINT: Final = bytes((0x80, 0x80, 0x00))
"""If a number below 2^20 is encoded in more than `_VARINT_MAX` bytes, its varint contains these bytes."""
_OFFSET_LIMIT: Final = 1 << 19
"""From this offset delta on, a varint may be too long without `_LONG_VARINT`; such records are walked in Python."""
_LEAST_BODY: Final = 6
"""Minimum size of a record after its length: attributes, two deltas, key length, value length, header count."""
_SPARE_MAX: Final = _LEAST_BODY + _VARINT_MAX - 1
"""If a record has at most this many bytes in addition to key, value and header data, every length in the record
has at most `_VARINT_MAX` bytes."""
_INVALID: Final = int(ErrorCode.INVALID_RECORD)
_CORRUPT: Final = int(ErrorCode.CORRUPT_MESSAGE)
_TOO_LARGE: Final = int(ErrorCode.MESSAGE_TOO_LARGE)
_unpack_header: Final = HEADER.unpack_from
_UINT32: Final = Struct(">I")
_group_head: Final = Struct(">57xi").pack
"""Packs a batch header that is zero except for the record count, which is enough for the compiled reader."""
_INVALID_TIMESTAMP: Final = int(ErrorCode.INVALID_TIMESTAMP)
_NOT_PLAIN: Final = CODEC_MASK | LOG_APPEND_TIME
"""Attribute bits of a batch that takes several steps: a codec, or the timestamp type that only brokers set."""
_key: Final = attrgetter("key")
_value: Final = attrgetter("value")
_headers: Final = attrgetter("headers")
_offset: Final = attrgetter("offset")
_timestamp: Final = attrgetter("timestamp")


def judge(
    view: memoryview,
    start: int,
    end: int,
    rules: RecordRules,
    room: int,
    wall_ms: int,
) -> int | Walk:
    """Return 0 if consumers can read the records of the produced batch [start, end), otherwise an error code.

    Return a `Walk` if the check takes several steps. A batch takes several steps if it is compressed, must get
    another codec or timestamp type, is larger than `room` or `AT_ONCE_BYTES`, or has a record that is refused. Also
    return 0 for an invalid header, which `check_produced` refuses. The CRC is checked here only if the header is
    replaced. `wall_ms`: current Unix time, with which timestamps are compared.
    """
    size = end - start
    size_max, needs_keys, wanted, _, _, distances, _ = rules
    if size > size_max:
        return _TOO_LARGE
    if size < HEADER_BYTES:
        return 0
    header = _unpack_header(view, start)
    _, length, _, magic, _, attributes, _, _, _, _, _, _, count = header
    codec = attributes & CODEC_MASK
    if magic != 2 or length != size - OVERHEAD or count <= 0 or codec > ZSTD:
        return 0
    span = None
    if distances is not None:
        span = wall_ms - distances[0], wall_ms + distances[1]
    if not attributes & _NOT_PLAIN and wanted <= NONE and size <= room and size <= AT_ONCE_BYTES:
        is_padded = end + len(_OVERREAD) <= len(view)
        batch = view[start:end] if is_padded else _padded(view, start, end)
        is_timely = span is None or _header_is_within(header, span)
        if is_timely and _reads_well(batch, needs_keys, span, 0):
            return 0
    return Walk(view[start:end], header, rules, span)


def _header_is_within(header: Header, span: Span) -> bool:
    """True if the header's first timestamp is not before the allowed `span`, and its largest is not after the span.

    A first timestamp of NO_TIMESTAMP is also allowed.
    """
    base = header[BASE_TIMESTAMP]
    return bool(header[MAX_TIMESTAMP] <= span[1] and (base >= span[0] or base == NO_TIMESTAMP))


def _is_within(timestamps: Iterable[int], span: Span, base: int) -> bool:
    """True if every timestamp is NO_TIMESTAMP or within the span. The timestamps are relative to `base`."""
    found = set(timestamps)
    found.discard(NO_TIMESTAMP - base)
    return not found or (span[0] - base <= min(found) and max(found) <= span[1] - base)


def _padded(view: memoryview, start: int, end: int) -> memoryview:
    """Return a copy of the bytes [start, end). In memory, the copy is followed by zero bytes (`_OVERREAD`)."""
    return memoryview(bytes(view[start:end]) + _OVERREAD)[: end - start]


def _reads_well(batch: memoryview, needs_keys: bool, span: Span | None, base: int) -> bool:
    """Return True if the compiled reader can read every record of an uncompressed batch.

    Return False if `needs_keys` is set and a record has no key, or if a timestamp, relative to `base`, is outside of
    the span. Return False if a varint may be too long for the Java client, because the compiled reader accepts such a
    varint.
    """
    data = bytes(batch)
    if _LONG_VARINT in data:
        return False
    first = int.from_bytes(batch[:8], "big", signed=True)
    try:
        found = list(DefaultRecordBatch(batch))
        offsets = list(map(_offset, found))
        if not -_OFFSET_LIMIT < min(offsets) - first <= max(offsets) - first < _OFFSET_LIMIT:
            return False
        if span is not None and not _is_within(map(_timestamp, found), span, base):
            return False
        if needs_keys and None in map(_key, found):
            return False
        return _has_short_nulls(data, found)
    except (CorruptRecordException, ValueError, MemoryError, OverflowError):
        return False


def _has_short_nulls(data: bytes, found: Sequence[Any]) -> bool:
    """Return False if the length of a null key, value or header value may take more than `_VARINT_MAX` bytes.

    The compiled reader reads any negative length as null. The varint of a negative length can have up to ten
    bytes. It need not contain the byte pattern `_LONG_VARINT`, by which other long varints are found.
    """
    keys, values = list(map(_key, found)), list(map(_value, found))
    if None not in keys and None not in values and not any(map(_headers, found)):
        return True
    position = HEADER_BYTES
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        size = data[position]
        if size < 128:
            size >>= 1
            position += 1
        elif data[position + 1] < 128:
            size = (size & 127 | data[position + 1] << 7) >> 1
            position += 2
        else:
            size, position = read_varint(data, position)
        position += size
        spare = size - (len(key) if key else 0) - (len(value) if value else 0)
        if spare > _SPARE_MAX and spare - _header_bytes(found[number]) > _SPARE_MAX:
            return False
    return True


def _header_bytes(record: Any) -> int:
    """Return the size of a record's headers, assuming one byte for each length."""
    return sum(2 + len(name) + len(value or b"") for name, value in record.headers)


class Walk:
    """The walk over the records of one batch, step by step.

    When `is_done` is True, `verdict` is the result: 0 if consumers can read the records, an error code if not, or
    the records in a new batch with the topic's codec and timestamp type. `errors`: the records for which the batch is
    refused; None if there are none, or if the records cannot be read.
    """

    __slots__ = (
        "_at",
        "_batch",
        "_deflater",
        "_header",
        "_rules",
        "_span",
        "_steps",
        "errors",
        "inflated",
        "is_done",
        "verdict",
    )

    def __init__(
        self, batch: memoryview, header: Header, rules: RecordRules, span: Span | None = None
    ) -> None:
        self._batch = batch
        self._span = span
        self._header = header
        self._rules = rules
        self._deflater: Deflater | None = None
        self.verdict: int | bytearray = 0
        self.is_done = False
        self.restart()

    def restart(self) -> None:
        """Begin from the first record again; free the memory of the steps so far."""
        self._deflater = None
        self._steps = self._walk()
        self._at = 0
        """Index of the next record in the batch."""
        self.errors: RecordErrors | None = None
        self.inflated = 0
        """Number of decompressed bytes so far."""

    def memory(self) -> int:
        """Return the largest number of bytes that the walk and its verdict take, without the batch itself."""
        rules, codec = self._rules, self._header[ATTRIBUTES] & CODEC_MASK
        size = _STREAM_BYTES + memory_of(codec, self._batch[HEADER_BYTES:])
        if self._header[ATTRIBUTES] & LOG_APPEND_TIME:
            size += len(self._batch)
        if self._is_recompressed():
            ratio = _RATIOS_MAX.get(codec, rules.size_max)
            size += deflater_memory(rules.codec, rules.level)
            size += 2 * min(rules.size_max, ratio * len(self._batch))
        return size

    def _is_recompressed(self) -> bool:
        """True if the topic has a codec of its own, with which the batch is not compressed yet."""
        return self._rules.codec not in (KEEP, self._header[ATTRIBUTES] & CODEC_MASK)

    def step(self) -> bool:
        """Take one step; return False if this was the last step."""
        try:
            next(self._steps)
        except StopIteration as end:
            self.end(end.value)
            return False
        return True

    def end(self, verdict: int | bytearray) -> None:
        """Set the verdict and `is_done`."""
        self.verdict = verdict
        self.is_done = True

    def _walk(self) -> Generator[None, None, int | bytearray]:
        """Read the records in steps; return the verdict."""
        is_dated = self._header[ATTRIBUTES] & LOG_APPEND_TIME
        if is_dated and (
            self._rules.log_append_time or self._header[MAX_TIMESTAMP] == NO_TIMESTAMP
        ):
            return self._refuse_timestamp_type()
        if self._is_recompressed():
            self._deflater = Deflater(self._rules.codec, self._rules.level)
        if (is_dated or self._deflater is not None) and not self._has_right_crc():
            return _CORRUPT
        try:
            verdict = yield from self._read_all()
        except CorruptBatch:
            self.errors = None
            return _INVALID
        if verdict or self.errors is not None:
            return verdict if self.errors is None else self.errors.code
        if self._span is not None and not _header_is_within(self._header, self._span):
            return _INVALID_TIMESTAMP
        return self._rewritten() if is_dated or self._deflater is not None else 0

    def _read_all(self) -> Generator[None, None, int]:
        """Read the records in steps, until the last one or until enough bad records are found.

        Return 0 if they can be read, otherwise an error code. Raises CorruptBatch.
        """
        stream = _Stream(self._chunks())
        while left := self._header[COUNT] - self._at:
            count, stop = _whole_records(stream.data, stream.position, left)
            if count:
                if self._read_group(stream.data[stream.position : stop], count):
                    self._at += count
                else:
                    yield
                    yield from self._read_each(stream.data[stream.position : stop], count)
                stream.position = stop
            elif _is_large(stream):
                yield from self._read_record(stream)
            elif not stream.more():
                return _INVALID
            if self.errors is not None and self.errors.is_full:
                return self.errors.code
            if self._deflater is not None and self._deflater.size > self._rules.size_max:
                return _TOO_LARGE
            yield
        while stream.position == len(stream.data):
            if not stream.more():
                return 0
            yield
        raise CorruptBatch("bytes follow the last record")

    def _has_right_crc(self) -> bool:
        """True if the batch has the CRC in its header. A new header would hide that the records were damaged."""
        return crc32c(self._batch[CRC_START:]) == self._header[CRC]

    def _refuse_timestamp_type(self) -> int:
        """Refuse every record, because only a broker may set the timestamp type LogAppendTime."""
        self.errors = RecordErrors(None)
        for index in range(min(self._header[COUNT], LISTED_MAX)):
            self.errors.add_timestamp(index)
        return self.errors.code

    def _refused(self) -> RecordErrors:
        """Return the list of bad records. The batch is not stored, so its records are no longer compressed."""
        self._deflater = None
        if self.errors is None:
            self.errors = RecordErrors(self._span)
        return self.errors

    def _chunks(self) -> Iterator[Buffer]:
        """Yield the decompressed records in pieces of at most 32 KiB. Raises CorruptBatch.

        If the topic has another codec than the batch, each piece is also compressed with the topic's codec.
        """
        codec = self._header[ATTRIBUTES] & CODEC_MASK
        for chunk in inflate(codec, self._batch[HEADER_BYTES:]):
            self.inflated += len(chunk)
            if self.inflated > DECOMPRESSED_LIMIT:
                raise CorruptBatch(f"records inflate to more than {DECOMPRESSED_LIMIT} bytes")
            view = memoryview(chunk)
            for start in range(0, len(view) or 1, _PIECE_BYTES):
                piece = view[start : start + _PIECE_BYTES]
                if self._deflater is not None:
                    self._deflater.add(piece)
                yield piece

    def _rewritten(self) -> bytearray:
        """Return the batch with the codec and timestamp type of the topic, and a header that fits."""
        header = list(self._header)
        batch = bytearray(self._batch[:HEADER_BYTES])
        if self._deflater is None:
            batch += self._batch[HEADER_BYTES:]
        else:
            batch += self._deflater.finish()
            self._deflater = None
            header[BATCH_LENGTH] = len(batch) - OVERHEAD
            header[ATTRIBUTES] = header[ATTRIBUTES] & ~CODEC_MASK | self._rules.codec
        header[ATTRIBUTES] &= ~LOG_APPEND_TIME
        HEADER.pack_into(batch, 0, *header)
        _UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
        return batch

    def _read_group(self, records: bytes, count: int) -> bool:
        group = memoryview(b"".join((_group_head(count), records, _OVERREAD)))
        base = self._header[BASE_TIMESTAMP]
        return _reads_well(
            group[: HEADER_BYTES + len(records)], self._rules.needs_keys, self._span, base
        )

    def _read_each(self, records: bytes, count: int) -> Generator[None, None, None]:
        """Walk, in Python, whole records that the compiled reader refused. Raises CorruptBatch."""
        stream = _Stream(iter(()), records)
        for _ in range(count):
            yield from self._read_record(stream)
            if self.errors is not None and self.errors.is_full:
                return
            yield

    def _read_record(self, stream: _Stream) -> Generator[None, None, None]:
        """Walk one record by the rules of Kafka's DefaultRecord. Raises CorruptBatch."""
        size, stream.position = _varint(stream.data, stream.position)
        end = stream.passed + stream.position + size
        yield from stream.skip(1, end)  # attributes
        yield from stream.fill()
        timestamp, stream.position = read_varint(stream.data, stream.position)
        _, stream.position = _varint(stream.data, stream.position)  # offset
        key, stream.position = _varint(stream.data, stream.position)
        base = self._header[BASE_TIMESTAMP]
        if key < 0 and self._rules.needs_keys:
            self._refused().add_without_key(self._at)
        elif self._span is not None and not _is_within((timestamp,), self._span, base):
            self._refused().add_timestamp(self._at, base + timestamp)
        self._at += 1
        yield from stream.skip(key, end)
        yield from stream.fill()
        value, stream.position = _varint(stream.data, stream.position)
        yield from stream.skip(value, end)
        yield from stream.fill()
        headers, stream.position = _varint(stream.data, stream.position)
        if headers < 0:
            raise CorruptBatch("a record has a negative number of headers")
        yield from _read_headers(stream, headers, end)
        if stream.passed + stream.position != end:
            raise CorruptBatch("the fields of a record do not end where the record ends")


_HEADERS_AT_ONCE: Final = 500


def _read_headers(stream: _Stream, count: int, end: int) -> Generator[None, None, None]:
    for number in range(count):
        yield from stream.fill()
        key, stream.position = _varint(stream.data, stream.position)
        if key < 0:
            raise CorruptBatch("a record header has no key")
        yield from stream.skip(key, end)
        yield from stream.fill()
        value, stream.position = _varint(stream.data, stream.position)
        yield from stream.skip(value, end)
        if not number % _HEADERS_AT_ONCE:
            yield


class _Stream:
    """The inflated records of a batch; the next record begins at `position` in `data`.

    `passed` counts the bytes before `data`.
    """

    __slots__ = ("_chunks", "data", "passed", "position")

    def __init__(self, chunks: Iterator[Buffer], data: bytes = b"") -> None:
        self._chunks = chunks
        self.data = data
        self.position = self.passed = 0

    def more(self) -> bool:
        """Drop the walked bytes and add the next chunk; return False if no chunk is left. Raises CorruptBatch."""
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self.passed += self.position
        self.data = b"".join((self.data[self.position :], chunk))
        self.position = 0
        return True

    def fill(self) -> Generator[None, None, None]:
        """Add chunks until `data` has all bytes of the next fields or no chunk is left.

        Raises CorruptBatch.
        """
        while len(self.data) - self.position < len(_OVERREAD) and self.more():
            yield

    def skip(self, size: int, end: int) -> Generator[None, None, None]:
        """Skip `size` bytes; a negative `size` counts as 0. Raises CorruptBatch beyond the record's `end`."""
        if size <= 0:
            return
        target = self.passed + self.position + size
        if target > end:
            raise CorruptBatch("a field of a record is cut off")
        while target > self.passed + len(self.data):
            self.position = len(self.data)
            if not self.more():
                raise CorruptBatch("a record is cut off")
            yield
        self.position = target - self.passed


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return (number, position after it) of a varint of at most 32 bits. Raises CorruptBatch."""
    number, after = read_varint(data, position)
    if after - position > _VARINT_MAX:
        raise CorruptBatch("a varint of a record is too long")
    return number, after


def _is_large(stream: _Stream) -> bool:
    """Return True if the next record exceeds `_PIECE_BYTES`. Raises CorruptBatch for an impossible length."""
    if stream.position == len(stream.data):
        return False
    try:
        size, _ = _varint(stream.data, stream.position)
    except CorruptBatch:
        if len(stream.data) - stream.position >= _VARINT_MAX:
            raise
        return False
    if size < _LEAST_BODY:
        raise CorruptBatch(f"a record declares {size} bytes, at least {_LEAST_BODY} are needed")
    return size > _PIECE_BYTES


def _whole_records(data: bytes, position: int, most: int) -> tuple[int, int]:
    """Return the number of whole records from `position` on, and the position where they end.

    The search ends after `most` records, after `_PIECE_BYTES`, or before a record with an impossible length.
    """
    end = len(data)
    limit = position + _PIECE_BYTES
    count = 0
    while count < most and position < end and position < limit:
        size = data[position]
        at = position + 1
        if size > 127:
            if at < end and data[at] < 128:
                size = size & 127 | data[at] << 7
                at += 1
            else:
                try:
                    number, at = _varint(data, position)
                except CorruptBatch:
                    break
                size = number << 1 if number >= 0 else 1
        at += size >> 1
        if size & 1 or at > end:
            break
        position = at
        count += 1
    return count, position
