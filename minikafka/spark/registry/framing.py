"""The bytes that Confluent's serializers write before the data of a record.

A zero byte, the id of the schema in four bytes and, for Protobuf, the place of the message's type in its file. Source:
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/ ("Wire format").
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minikafka.base.errors import MinikafkaError

MAGIC: Final = 0
HEADER_BYTES: Final = 5
_HEADER: Final = struct.Struct(">bI")
PADDING: Final = 16
"""Number of bytes after the last record of `Frames`, so that a read behind it stays within the array."""
_NO_ID: Final = -1
_INDEXES_MAX: Final = 100
"""Maximum depth of a message type in its file. A larger number is no depth, but other bytes."""
_VARINT_BYTES_MAX: Final = 5


class Undecodable(MinikafkaError):
    """A record whose bytes cannot be decoded; the text says why."""


class Frames(NamedTuple):
    """A column of records: the bytes of all records, and where each one starts and ends in them."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


def frames(values: pa.Array) -> Frames:
    """Return the records of a binary column. Records that are null have no bytes."""
    wide = values.cast(pa.large_binary())
    _, borders, data = wide.buffers()
    places = np.frombuffer(borders, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    content = np.frombuffer(data or b"", np.uint8)[places[0] : places[-1]]
    padded = np.concatenate((content, np.zeros(PADDING, dtype=np.uint8)))
    starts, ends = places[:-1] - places[0], places[1:] - places[0]
    return Frames(padded, starts, np.where(values.is_null(), starts, ends))


def schema_ids(found: Frames) -> npt.NDArray[np.int64]:
    """Return the id of the schema of each record; -1 for a record without one, which `schema_id` refuses, or null."""
    with_id = (found.ends - found.starts >= HEADER_BYTES) & (found.data[found.starts] == MAGIC)
    every = np.ndarray((len(found.data) - HEADER_BYTES,), ">u4", found.data, offset=1, strides=(1,))
    return np.where(with_id, every[found.starts], np.int64(_NO_ID))


def schema_id(data: bytes) -> int:
    """Return the id of the schema with which a record was written. Raises Undecodable."""
    if data and data[0] != MAGIC:
        raise Undecodable(
            f"its first byte is {data[0]}, not 0: it was written without a schema registry"
        )
    if len(data) < HEADER_BYTES:
        raise Undecodable(f"its {len(data)} bytes are too few for the id of a schema")
    return int(_HEADER.unpack_from(data)[1])


def header(schema: int) -> bytes:
    """Return the bytes before the data of a record that is written with this schema."""
    return _HEADER.pack(MAGIC, schema)


def message_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the place of a Protobuf message's type in its file, and the position of the message in `data`.

    The place is the index of the message among those of the file, and then of each nested message. Raises Undecodable.
    """
    count, position = _varint(data, HEADER_BYTES)
    if count == 0:
        return (0,), position
    if not 0 < count <= _INDEXES_MAX:
        raise Undecodable("the indexes of its message type are damaged")
    found = []
    for _ in range(count):
        index, position = _varint(data, position)
        found.append(index)
    return tuple(found), position


def encoded_indexes(indexes: Sequence[int]) -> bytes:
    """Return the bytes that name a Protobuf message's type. The first message of a file is a single zero byte."""
    if tuple(indexes) == (0,):
        return b"\x00"
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a signed number in zigzag encoding, and the position after it."""
    number = 0
    for shift in range(_VARINT_BYTES_MAX):
        if position >= len(data):
            raise Undecodable("it ends within the indexes of its message type")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise Undecodable("the indexes of its message type are damaged")


def _zigzag(number: int) -> bytes:
    left, found = number << 1, bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)
