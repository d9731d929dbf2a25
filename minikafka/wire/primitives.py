"""Kafka's primitive types as bytes, for encoders and checks that do not use kio.

Invariant: a reader never reads beyond the end of its buffer and never trusts a length. A field that does not fit
into the buffer raises `ProtocolViolation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from minikafka.base.errors import ProtocolViolation
from minikafka.base.ports import Buffer

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
NO_TAGS: Final = b"\x00"
"""An empty section of tagged fields (KIP-482)."""
NULL_UUID: Final = bytes(16)

_SHIFTS: Final = (7, 14, 21, 28)
_UINT32_MAX: Final = 2**32 - 1
_ONE_BYTE: Final = tuple(bytes((n,)) for n in range(128))


def uvarint(n: int) -> bytes:
    """Return a number from 0 to 2**32-1, encoded as an unsigned varint."""
    if n < 128:
        return _ONE_BYTE[n]
    out = bytearray()
    while n > 127:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read a varint: return its value and the position after the varint.

    Raises ProtocolViolation if the varint is cut off or exceeds 32 bits.
    """
    try:
        byte = buf[pos]
        pos += 1
        if byte < 128:
            return byte, pos
        value = byte & 0x7F
        for shift in _SHIFTS:
            byte = buf[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 128 and value <= _UINT32_MAX:
                return value, pos
    except IndexError:
        pass
    raise ProtocolViolation("a varint is cut off or exceeds 32 bits")


def string(text: str | None) -> bytes:
    """Return the bytes of a nullable string: int16 length, then UTF-8."""
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return INT16.pack(len(data)) + data


def compact_string(text: str | None) -> bytes:
    """Return the bytes of a nullable string: length + 1 as a varint, then UTF-8."""
    if text is None:
        return b"\x00"
    data = text.encode()
    return uvarint(len(data) + 1) + data


def array(count: int) -> bytes:
    """Return the length field of a non-null array of `count` elements."""
    return INT32.pack(count)


def compact_array(count: int) -> bytes:
    """Return the length field of a non-null array of `count` elements in flexible versions."""
    return uvarint(count + 1)


def int32_array(numbers: Sequence[int]) -> bytes:
    """Return the bytes of an array of int32, length included."""
    return Struct(f">i{len(numbers)}i").pack(len(numbers), *numbers)


def compact_int32_array(numbers: Sequence[int]) -> bytes:
    """Return the bytes of an array of int32 in flexible versions, length included."""
    return uvarint(len(numbers) + 1) + Struct(f">{len(numbers)}i").pack(*numbers)


def skip_tags(buf: Buffer, pos: int) -> int:
    """Return the position after a section of tagged fields. Raises ProtocolViolation if the section is cut off."""
    count, pos = read_uvarint(buf, pos)
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > len(buf):
            raise ProtocolViolation("a tagged field is cut off")
    return pos
