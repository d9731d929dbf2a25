"""Encoded requests in which the test chooses the bytes of each string and the value of each integer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from minikafka.record.varints import uvarint
from minikafka.wire.primitives import INT16, INT32
from minikafka.wire.schemas import request_schema
from minikafka.wire.shapes import array_element, without_none
from minikafka.wire.versions import is_flexible

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
    data = head + entity(request_schema(api, version), filling)
    return INT32.pack(len(data)) + data


def entity(entity_type: Any, filling: Filling) -> bytes:
    """Return the encoded structure."""
    flexible = entity_type.__flexible__
    out = b""
    for item in fields(entity_type):
        if "tag" in item.metadata:
            continue
        inner = without_none(item.type)[0]
        element = array_element(inner)
        if element is not None:
            out += uvarint(2) if flexible else INT32.pack(1)
            inner = element
        out += entity(inner, filling) if is_dataclass(inner) else value(item, flexible, filling)
    return out + (b"\0" if flexible else b"")


def value(item: Any, flexible: bool, filling: Filling) -> bytes:
    """Return one encoded value of a field."""
    kafka_type = item.metadata["kafka_type"]
    if kafka_type == "string":
        text = filling.texts.get(item.name, filling.text)
        return (uvarint(len(text) + 1) if flexible else INT16.pack(len(text))) + text
    if kafka_type in ("bytes", "records"):
        return b"\x01" if flexible else INT32.pack(0)
    if kafka_type == "uuid":
        return bytes(16)
    number = filling.numbers.get(item.name, filling.number)
    return number.to_bytes(SIZES[kafka_type], "big", signed=True)


def names_of(entity_type: Any, kafka_type: str) -> set[str]:
    """Return the names of all fields of a type, in every structure of a request."""
    found = set()
    for item in fields(entity_type):
        inner = without_none(item.type)[0]
        inner = array_element(inner) or inner
        if is_dataclass(inner):
            found |= names_of(inner, kafka_type)
        elif item.metadata["kafka_type"] == kafka_type:
            found.add(item.name)
    return found
