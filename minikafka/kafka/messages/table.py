"""The table of Kafka's messages: the fields of every request, response and record, with types, versions and defaults.

A message is a text (`requests.py`, `responses.py`, `records.py`). Its first line is `Name versions, flexible versions`.
Every other line is a field: `name: type versions`, followed by `tag N versions`, `null versions` and `= default`
where Kafka's definition has them. `[type]` is an array. The lines below a structure, two columns to the right, are
the structure's fields. Versions are written as `3`, `0-4`, `3+` or `none`. Field names are Kafka's, in snake case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from minikafka.kafka.messages.own import OWN_REQUESTS, OWN_RESPONSES
from minikafka.kafka.messages.records import RECORDS
from minikafka.kafka.messages.requests import REQUESTS
from minikafka.kafka.messages.responses import RESPONSES

NULL_UUID: Final = bytes(16)
"""Value of an id that is not set."""
_ALWAYS: Final = 0x7FFF
_FIELD: Final = re.compile(
    r"( *)(\w+): (\[?)(\w+)\]? (\S+)(?: tag (\d+) (\S+))?(?: null (\S+))?(?: = (.*))?"
)


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high


_NONE: Final = Versions(0, -1)


class Field(NamedTuple):
    """A field of a structure. `type`: the type of the field, or of its elements if it `is_array`.

    `structure`: the structure that `type` names, None for a primitive type. `tag`: the number of the field in the
    versions in which it is a tagged field. `default`: the text of Kafka's default, "" if the definition has none.
    """

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int
    tagged: Versions
    default: str
    structure: Structure | None

    def default_in(self, version: int) -> Any:
        """Return the value of a field that is not given, or that this version lacks.

        It is Kafka's default, else null if the field may be null, else zero, "" or an empty array.
        """
        if self.default == "null":
            is_null = version in self.nullable or version not in self.versions
        else:
            is_null = not self.default and version in self.nullable
        if is_null:
            return None
        if self.is_array:
            return ()
        if self.structure is not None:
            return self.structure.defaults(version)
        text = "" if self.default == "null" else self.default
        if self.type == "string":
            return text
        if self.type == "bool":
            return text == "true"
        if self.type == "uuid":
            return NULL_UUID
        if self.type in ("bytes", "records"):
            return b""
        return float(text or 0) if self.type == "float64" else int(text or "0", 0)


class Structure:
    """The fields of a message, or of a structure in it, in the order of the bytes.

    `entity`: the type of the decoded structures, a named tuple with the fields of all versions.
    """

    def __init__(self, name: str, fields: tuple[Field, ...]) -> None:
        self.name = name
        self.fields = fields
        self.names: Final = frozenset(field.name for field in fields)
        self.entity: Any = NamedTuple(name, [(field.name, Any) for field in fields])  # type: ignore[misc]

    def defaults(self, version: int) -> Any:
        """Return the structure in which every field has its default."""
        return self.entity(*(field.default_in(version) for field in self.fields))


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A message: the structure of its body, its versions, and those of them that are flexible (KIP-482)."""

    structure: Structure
    versions: Versions
    flexible: Versions


@cache
def request(api: int) -> Message:
    """Return the request of an API that brokers serve."""
    return _message(OWN_REQUESTS.get(api) or REQUESTS[api])


@cache
def response(api: int) -> Message:
    """Return the response of an API that brokers serve."""
    return _message(OWN_RESPONSES.get(api) or RESPONSES[api])


@cache
def record(name: str) -> Message:
    """Return the key or value of a record, by Kafka's name of the definition, such as `OffsetCommitKey`."""
    return _message(RECORDS[name])


def _message(text: str) -> Message:
    head, *lines = text.split("\n")
    name, versions, flexible = re.split(r",? (?:flexible )?", head)
    return Message(
        Structure(name, tuple(_fields(lines, 0, len(lines)))),
        _versions(versions),
        _versions(flexible),
    )


def _fields(lines: list[str], start: int, end: int) -> Iterator[Field]:
    """Yield the fields of one structure, which are in the lines from `start` to `end`."""
    while start < end:
        found = _FIELD.fullmatch(lines[start])
        assert found, lines[start]
        indent, name, array, kind, versions, tag, tagged, null, default = found.groups()
        inner = start + 1
        start = inner
        while start < end and lines[start].startswith(indent + " "):
            start += 1
        yield Field(
            name,
            kind,
            bool(array),
            _versions(versions),
            _versions(null or "none"),
            int(tag or -1),
            _versions(tagged or "none"),
            default or "",
            Structure(kind, tuple(_fields(lines, inner, start))) if start > inner else None,
        )


def _versions(text: str) -> Versions:
    if text == "none":
        return _NONE
    low, _, high = text.partition("-")
    if low.endswith("+"):
        return Versions(int(low[:-1]), _ALWAYS)
    return Versions(int(low), int(high or low))
