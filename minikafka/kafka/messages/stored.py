"""Stored messages: keys and values of the coordinators' records, and the data of consumers.

A stored message begins with its version, and its fields follow. Invariant: malformed bytes raise ValueError. Bytes
after the last field are ignored, as in Kafka.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Any, Final

from minikafka.base.errors import ProtocolViolation
from minikafka.kafka.messages.decoder import STRING_BYTES_MAX, Entity, decode
from minikafka.kafka.messages.encoder import encode
from minikafka.kafka.messages.table import record

_VERSION: Final = Struct(">h")


def version_of(data: bytes) -> int:
    """Return the version with which a stored message begins. Raises ValueError if the data is too short."""
    if len(data) < _VERSION.size:
        raise ValueError(f"a stored message must begin with a version, but has {len(data)} bytes")
    return int(_VERSION.unpack_from(data)[0])


def read_stored(name: str, data: bytes) -> Entity:
    """Return a stored message. `name`: the name of its definition in the table. Raises ValueError."""
    version, (low, high) = version_of(data), record(name).versions
    if not low <= version <= high:
        raise ValueError(
            f"the value has version {version}; Kafka 3.9 reads versions {low} to {high}"
        )
    return read_fields(name, version, data)


def read_fields(name: str, version: int, data: bytes) -> Entity:
    """Return the fields of this version, whatever version the stored message begins with. Raises ValueError."""
    try:
        return decode(record(name), version, data, _VERSION.size, len(data))
    except ProtocolViolation as violation:
        raise ValueError(str(violation)) from None


def stored(name: str, version: int, **values: Any) -> bytes:
    """Return an encoded message. Raises ValueError if a string is longer than 32,767 bytes."""
    try:
        return _VERSION.pack(version) + encode(record(name), version, values)
    except struct.error:
        raise ValueError(
            f"a string of the {name} is too long: at most {STRING_BYTES_MAX} bytes are allowed"
        ) from None
