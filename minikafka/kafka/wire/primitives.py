"""Kafka's primitive types as bytes, for the encoders that are written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from minikafka.kafka.records.varints import uvarint

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
NO_TAGS: Final = b"\x00"
"""An empty section of tagged fields (KIP-482)."""


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


def tags(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """Return a section of tagged fields: (tag, value), in ascending order of their tags."""
    values = [uvarint(tag) + uvarint(len(value)) + value for tag, value in fields]
    return uvarint(len(fields)) + b"".join(values)
