"""Fetch v12 between brokers in its commonest shape: one partition, nothing forgotten, no tagged fields.

With one produce in flight every fetch and nearly every response has this shape, and both the follower and the
producer wait for it. One `Struct` packs or unpacks the whole frame, which saves 4.2 of 8.5 µs at the leader and
2.4 of 3.9 µs at the follower per fetch, compared with `wire/fetch.py`, which handles every other shape.
Invariant: a frame is accepted only if its length and each of its constant bytes have this shape, so that both
decoders agree on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from minikafka.base.ports import Buffer
from minikafka.wire.fetch import FOLLOWER_VERSION, FetchPartition, PartitionRow
from minikafka.wire.primitives import read_uvarint, uvarint

_ONE: Final = 2
"""An array of one element, as a compact length."""
_NAME_MAX: Final = 127
"""Longest topic name + 1 whose length takes one byte; Kafka allows 249 bytes, and the others go the general way."""
_REQUEST_NAME: Final = 27
"""Where a request body (after the client id) has the topic name's length: tags, limits, session, count."""
_RESPONSE_NAME: Final = 20
"""The same of a response, from its length prefix: correlation, tags, throttle time, error, session, count."""
_REQUEST_TAIL: Final = b"\0\0\1\1\0"
"""No tags of the partition and of the topic, nothing forgotten, no rack, no tags."""
_RESPONSE_TAIL: Final = b"\0\0\0"
_JOIN_BELOW_BYTES: Final = 4096
_length: Final = lru_cache(1024)(uvarint)

SingleRequest = tuple[Any, ...]
"""See `single_request`."""
SingleResponse = tuple[int, bytes, int, int, int, int, int]
"""session id, topic, partition, high watermark, log start offset, records start, records end."""


# Pad bytes are zeros when packed, which is the value of their fields, and skip unused fields when unpacked.
# The layouts are indexed by the length byte of the topic name, which is one more than the name's length.
_REQUEST_LAYOUTS: Final = tuple(
    Struct(f">Bii4xi1xiiBx{max(name - 1, 0)}sBiiqi8xi5s") for name in range(_NAME_MAX + 1)
)
_RESPONSE_LAYOUTS: Final = tuple(
    Struct(f">ii7xiBB{max(name - 1, 0)}sBi2xqqqxi") for name in range(_NAME_MAX + 1)
)
_RESPONSE_FIELDS: Final = tuple(
    Struct(f">8xB4xhiBx{max(name - 1, 0)}sBihq8xqB4x") for name in range(_NAME_MAX + 1)
)
"""The fields of `_RESPONSE_LAYOUTS` that a follower reads."""


def single_request(buf: bytearray, body: int, end: int) -> SingleRequest | None:
    """The fields of a request for one partition whose body begins after the client id, else None.

    1 replica id, 2 max wait ms, 3 max bytes, 4 session id, 5 session epoch, 7 topic, 9 partition,
    10 current leader epoch, 11 fetch offset, 12 last fetched epoch, 13 partition max bytes.
    """
    if end - body <= _REQUEST_NAME:
        return None
    name = buf[body + _REQUEST_NAME]
    if not 1 < name <= _NAME_MAX:
        return None
    layout = _REQUEST_LAYOUTS[name]
    if end - body != layout.size:
        return None
    found = layout.unpack_from(buf, body)
    if found[0] or found[6] != _ONE or found[8] != _ONE or found[14] != _REQUEST_TAIL:
        return None
    return found


def encode_single_response(
    correlation: int,
    session_id: int,
    topic: bytes,
    rows: Sequence[PartitionRow],
) -> Sequence[Buffer] | None:
    """The answer of one topic as slices, length prefix included; None unless it is one partition with no error."""
    name = len(topic) + 1
    partition, error, high_watermark, stable, log_start_offset, slices, count, diverging = rows[0]
    if len(rows) != 1 or error or diverging is not None or name > _NAME_MAX:
        return None
    layout = _RESPONSE_LAYOUTS[name]
    length = _length(count + 1)
    size = layout.size + len(length) + count - 1
    head = layout.pack(
        size, correlation, session_id, _ONE, name, topic, _ONE,
        partition, high_watermark, stable, log_start_offset, -1,
    )  # fmt: skip
    if size < _JOIN_BELOW_BYTES:
        return (b"".join((head, length, *slices, _RESPONSE_TAIL)),)
    return (head + length, *slices, _RESPONSE_TAIL)


def single_response(buf: bytearray, start: int, stop: int) -> SingleResponse | None:
    """A response with one partition that has no error and no divergence, [start, stop) with its prefix, else None."""
    if stop - start <= _RESPONSE_NAME:
        return None
    name = buf[start + _RESPONSE_NAME]
    if not 1 < name <= _NAME_MAX:
        return None
    layout = _RESPONSE_FIELDS[name]
    records = start + layout.size
    if records + 1 >= stop:
        return None
    (tags, error, session_id, topics, topic, partitions, number, refused, high_watermark, log_start,
     aborted) = layout.unpack_from(buf, start)  # fmt: skip
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
    end = records + max(size - 1, 0)
    if end + len(_RESPONSE_TAIL) != stop or buf[end:stop] != _RESPONSE_TAIL:
        return None
    return session_id, topic, number, high_watermark, log_start, records, end


class SingleFetch:
    """Encodes the requests of one follower for one partition; limits: (max wait ms, min bytes, max bytes)."""

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
        row: FetchPartition,
    ) -> bytes:
        """The whole request, length prefix included. session: (id, epoch)."""
        known = self._layouts.get(topic)
        if known is None:
            known = self._remember(topic)
        layout, names = known
        return layout.pack(
            layout.size - 4, 1, FOLLOWER_VERSION, correlation, self._client, self._head,
            *session, names, *row, _REQUEST_TAIL,
        )  # fmt: skip

    def _remember(self, topic: bytes) -> tuple[Struct, bytes]:
        names = uvarint(_ONE) + uvarint(len(topic) + 1) + topic + uvarint(_ONE)
        if len(self._layouts) >= 1024:
            self._layouts.clear()
        layout = Struct(f">ihhih{len(self._head)}sii{len(names)}siiqiqi5s")
        self._layouts[topic] = layout, names
        return layout, names
