"""Fetch v12 between brokers in its most frequent form: one partition, no forgotten topics, no tagged fields.

While a producer has one produce request in flight, every fetch and nearly every response has this form, and both the
follower and the producer wait for the fetch. `kafka/wire/fetch.py` handles all other forms. Here, one `Struct` packs or
unpacks the whole frame. Per fetch, this saves 4.9 µs for the request and 1.5 µs for the response, of 14.4 µs at the
leader, and 2.4 of 3.9 µs at the follower.

Invariant: a frame is accepted only if its length and all its constant bytes match this form. This module and
`kafka/wire/fetch.py` therefore decode the frame to the same values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, TypeAlias

from minikafka.base.fetch_rows import PartitionData, RequestRow
from minikafka.base.ports import Slice
from minikafka.kafka.records.varints import read_uvarint, uvarint
from minikafka.kafka.wire.fetch import FOLLOWER_VERSION
from minikafka.kafka.wire.versions import FETCH

_ONE: Final = 2
"""An array of one element, as a compact length."""
_NAME_MAX: Final = 127
"""Largest length byte (name length + 1) of a topic name; `kafka/wire/fetch.py` handles longer names."""
_REQUEST_NAME: Final = 27
"""Position of the topic name's length in a request body, which begins after the client id."""
_RESPONSE_NAME: Final = 20
"""Position of the topic name's length in a response, counted from its length prefix."""
_REQUEST_TAIL: Final = b"\0\0\1\1\0"
"""End of a request: empty tags of partition and topic, no forgotten topics, no rack id, empty tags of the request."""
_RESPONSE_TAIL: Final = b"\0\0\0"
_JOIN_BELOW_BYTES: Final = 4096
_length: Final = lru_cache(1024)(uvarint)

SingleRequest: TypeAlias = tuple[tuple[int, int, int, int, int], bytes, RequestRow]
"""Fields: (replica id, max wait in ms, max bytes, session id, session epoch), topic, the row of the partition."""
_TAGS, _TOPICS, _PARTITIONS, _TAIL = 0, 6, 8, 15
"""Indexes of the constant fields in a request that is unpacked with `_REQUEST_LAYOUTS`."""
_HEAD: Final = slice(1, 6)
_TOPIC: Final = 7
_ROW: Final = slice(9, 15)
SingleResponse: TypeAlias = tuple[int, bytes, int, int, int, int, int]
"""Fields: session id, topic, partition, high watermark, log start offset, records start, records end."""


# `pack` writes pad bytes as zeros, which is the value of their fields. `unpack` skips pad bytes, because their fields
# are not used. The index of a layout is the length byte of the topic name: the length of the name plus one.
_REQUEST_LAYOUTS: Final = tuple(
    Struct(f">Bii4xi1xiiBx{max(name - 1, 0)}sBiiqiqi5s") for name in range(_NAME_MAX + 1)
)
_RESPONSE_LAYOUTS: Final = tuple(
    Struct(f">ii7xiBB{max(name - 1, 0)}sBi2xqqqxi") for name in range(_NAME_MAX + 1)
)
_RESPONSE_FIELDS: Final = tuple(
    Struct(f">8xB4xhiBx{max(name - 1, 0)}sBihq8xqB4x") for name in range(_NAME_MAX + 1)
)
"""The fields of `_RESPONSE_LAYOUTS` that a follower reads."""


def single_request(buf: bytearray, body: int, end: int) -> SingleRequest | None:
    """Decode the request with the body `buf[body:end]`; return None if `kafka/wire/fetch.py` must decode it.

    Only a request with exactly one partition is decoded.
    """
    if end - body <= _REQUEST_NAME:
        return None
    name = buf[body + _REQUEST_NAME]
    if not 1 < name <= _NAME_MAX:
        return None
    layout = _REQUEST_LAYOUTS[name]
    if end - body != layout.size:
        return None
    fields = layout.unpack_from(buf, body)
    if (
        fields[_TAGS]
        or fields[_TOPICS] != _ONE
        or fields[_PARTITIONS] != _ONE
        or fields[_TAIL] != _REQUEST_TAIL
    ):
        return None
    return fields[_HEAD], fields[_TOPIC], fields[_ROW]


def encode_single_response(
    correlation: int,
    session_id: int,
    topic: bytes,
    row: PartitionData,
) -> Sequence[Slice] | None:
    """Return the response for one partition as a list of buffers, length prefix included.

    Return None for a partition with an error, a divergence or a list of aborted transactions, and for a long
    topic name.
    """
    name = len(topic) + 1
    (
        partition,
        error,
        high_watermark,
        stable,
        log_start_offset,
        slices,
        count,
        diverging,
        aborted,
        _,
    ) = row
    if error or diverging is not None or aborted is not None or name > _NAME_MAX:
        return None
    layout = _RESPONSE_LAYOUTS[name]
    length = _length(count + 1)
    size = layout.size + len(length) + count - 1
    head = layout.pack(
        size,
        correlation,
        session_id,
        _ONE,
        name,
        topic,
        _ONE,
        partition,
        high_watermark,
        stable,
        log_start_offset,
        -1,
    )
    if size < _JOIN_BELOW_BYTES:
        return (b"".join((head, length, *slices, _RESPONSE_TAIL)),)  # type: ignore[arg-type]  # small ones are read
    return (head + length, *slices, _RESPONSE_TAIL)


def single_response(buf: bytearray, start: int, stop: int) -> SingleResponse | None:
    """Return the fields of the response in `buf[start:stop]`; None if `kafka/wire/fetch.py` must decode the response.

    The fields are returned only for a response with exactly one partition, no error and no divergence.
    """
    if stop - start <= _RESPONSE_NAME:
        return None
    name = buf[start + _RESPONSE_NAME]
    if not 1 < name <= _NAME_MAX:
        return None
    layout = _RESPONSE_FIELDS[name]
    records = start + layout.size
    if records + 1 >= stop:
        return None
    (
        tags,
        error,
        session_id,
        topics,
        topic,
        partitions,
        number,
        refused,
        high_watermark,
        log_start,
        aborted,
    ) = layout.unpack_from(buf, start)
    if tags or topics != _ONE or partitions != _ONE or error or refused or aborted:
        return None
    size = buf[records]
    if size < 128:
        records += 1
    elif buf[records + 1] < 128:
        size += (buf[records + 1] << 7) - 128
        records += 2
    else:
        size, records = read_uvarint(buf, records)
    end = records + size - 1 if size else records
    if end + len(_RESPONSE_TAIL) != stop or buf[end:stop] != _RESPONSE_TAIL:
        return None
    return session_id, topic, number, high_watermark, log_start, records, end


class SingleFetch:
    """Encodes one follower's requests for one partition. `limits` is (max wait ms, min bytes, max bytes)."""

    __slots__ = ("_client", "_head", "_layouts")

    def __init__(self, client_id: bytes, replica_id: int, limits: tuple[int, int, int]) -> None:
        self._client = len(client_id)
        self._head = client_id + Struct(">Biiiib").pack(0, replica_id, *limits, 0)
        self._layouts: dict[bytes, tuple[Struct, bytes]] = {}

    def encode(
        self,
        correlation: int,
        session: tuple[int, int],
        topic: bytes,
        row: RequestRow,
    ) -> bytes:
        """Return the whole request, length prefix included. `session` is (id, epoch)."""
        known = self._layouts.get(topic)
        if known is None:
            known = self._remember(topic)
        layout, names = known
        return layout.pack(
            layout.size - 4,
            FETCH,
            FOLLOWER_VERSION,
            correlation,
            self._client,
            self._head,
            *session,
            names,
            *row,
            _REQUEST_TAIL,
        )

    def _remember(self, topic: bytes) -> tuple[Struct, bytes]:
        names = uvarint(_ONE) + uvarint(len(topic) + 1) + topic + uvarint(_ONE)
        if len(self._layouts) >= 1024:
            self._layouts.clear()
        layout = Struct(f">ihhih{len(self._head)}sii{len(names)}siiqiqi5s")
        self._layouts[topic] = layout, names
        return layout, names
