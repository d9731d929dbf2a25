"""Encoded requests in which the test chooses the bytes of each string and the value of each integer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from minikafka.kafka.messages import table
from minikafka.kafka.messages.table import Field, Structure
from minikafka.kafka.records.varints import uvarint
from minikafka.kafka.wire.codec import is_flexible
from minikafka.kafka.wire.primitives import INT16, INT32

SIZES = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8}


@dataclass(frozen=True)
class Filling:
    """The values of a request's fields.

    `texts` and `numbers` are values of fields by name. Any other string is `text`, any other number `number`.
    """

    text: bytes = b"t"
    number: int = 0
    texts: Mapping[str, bytes] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)


def frame(api: int, version: int, filling: Filling, client_id: bytes = b"raw") -> bytes:
    """Return a request frame in which every array has one element."""
    flexible = is_flexible(api, version)
    head = INT16.pack(api) + INT16.pack(version) + INT32.pack(7)
    head += INT16.pack(len(client_id)) + client_id + (b"\0" if flexible else b"")
    data = head + structure(table.request(api).structure, version, flexible, filling)
    return INT32.pack(len(data)) + data


def structure(fields: Structure, version: int, flexible: bool, filling: Filling) -> bytes:
    """Return the encoded structure."""
    out = b""
    for item in fields.fields:
        if version not in item.versions or version in item.tagged:
            continue
        if item.is_array:
            out += uvarint(2) if flexible else INT32.pack(1)
        if item.structure is not None:
            out += structure(item.structure, version, flexible, filling)
        else:
            out += value(item, flexible, filling)
    return out + (b"\0" if flexible else b"")


def value(item: Field, flexible: bool, filling: Filling) -> bytes:
    """Return one encoded value of a field."""
    if item.type == "string":
        text = filling.texts.get(item.name, filling.text)
        return (uvarint(len(text) + 1) if flexible else INT16.pack(len(text))) + text
    if item.type in ("bytes", "records"):
        return b"\x01" if flexible else INT32.pack(0)
    if item.type == "uuid":
        return bytes(16)
    number = filling.numbers.get(item.name, filling.number)
    return number.to_bytes(SIZES[item.type], "big", signed=True)


def names_of(api: int, version: int, kind: str) -> set[str]:
    """Return the names of all fields of a type, in every structure of a request."""
    return set(_names_of(table.request(api).structure, version, kind))


def _names_of(fields: Structure, version: int, kind: str) -> Iterator[str]:
    for item in fields.fields:
        if version not in item.versions:
            continue
        if item.structure is not None:
            yield from _names_of(item.structure, version, kind)
        elif item.type == kind:
            yield item.name
