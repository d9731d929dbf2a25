"""The encoder of messages: one generated function for each message and version, which makes bytes from plain values.

A structure is a mapping of field names to values. Times are integers of milliseconds, ids are 16 bytes or None. A
missing field gets its default. A field that only other versions have is ignored. An array is any iterable. An array of
structures may be a generator, which runs while the message is encoded, and may yield `PAUSE` to end a step. So a
handler that makes its rows in a generator needs no steps of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from minikafka.kafka.messages.source import FEW, FORMATS, GeneratedFunction, few_numbers
from minikafka.kafka.messages.steps import STEP_ROWS, finished
from minikafka.kafka.messages.table import NULL_UUID, Field, Message, Structure
from minikafka.kafka.records.varints import uvarint

STEP_BYTES: Final = 8 << 10
"""A step ends after `STEP_ROWS` structures of an array, after each one that contains such an array, and after this many
bytes, so that rows with long names take more steps."""
PAUSE: Final = None
"""Yielded by a generator of rows to end the step. It adds no row."""

Row: TypeAlias = Mapping[str, Any]
Encoding: TypeAlias = Generator[int, None, bytearray]
Encode: TypeAlias = Callable[[Row], Encoding]
"""(values) -> generator that yields the number of encoded bytes between steps, and returns the bytes."""


@cache
def encoder(message: Message, version: int) -> Encode:
    """Return the generated encoder of a message in this version."""
    made = _Encoder(version, version in message.flexible)
    made.structure(message.structure, "values", 0)
    return made.finished(message.structure.name)


def encode(message: Message, version: int, values: Row) -> bytes:
    """Return the encoded message. Raises TypeError for a field that no version has."""
    return bytes(finished(encoder(message, version)(values)))


def encode_in_steps(message: Message, version: int, values: Row) -> Generator[int, None, bytes]:
    """Do what `encode` does, as a generator that yields the number of encoded bytes between steps."""
    return bytes((yield from encoder(message, version)(values)))


class _Encoder:
    """Generates the encoder of one structure. Fields of fixed size are gathered, and written by one call of `pack`.

    The generated function has the variables `out` and `due` (the number of bytes at which the step ends). The row at
    depth 2 is `row_2`, and `get_2` is its method.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        self.version, self.flexible = version, flexible
        self.source = GeneratedFunction(
            "values",
            {
                "uvarint": uvarint,
                "pack": struct.pack,
                "pack_into": struct.pack_into,
                "unknown": _unknown,
                "tagged": _tagged,
                "NULL_UUID": NULL_UUID,
            },
        )
        self._gathered: list[tuple[str, str]] = []
        self.source.line("out = bytearray()")
        self.source.line(f"due = {STEP_BYTES}")

    def finished(self, name: str) -> Encode:
        """Return the compiled function."""
        self.flush()
        self.source.line("return out")
        self.source.line("yield")  # makes the function a generator, also without an array
        compiled: Encode = self.source.compiled(f"encoder of {name} v{self.version}")
        return compiled

    def gather(self, character: str, expression: str) -> None:
        """Write a value of fixed size with the next `flush`."""
        self._gathered.append((character, expression))

    def flush(self) -> None:
        """Write the gathered values."""
        if not self._gathered:
            return
        pack = self.source.layout("".join(character for character, _ in self._gathered), "pack")
        values = ", ".join(expression for _, expression in self._gathered if expression)
        self._gathered.clear()
        self.source.line(f"out += {pack}({values})")

    def structure(self, structure: Structure, row: str, depth: int) -> None:
        """Write a structure, which is the mapping in the variable `row`."""
        names = self.source.constant("names_", structure.names)
        with self.source.block(f"if not {names}.issuperset({row}):"):
            self.source.line(f"raise unknown({structure.name!r}, {names}, {row})")
        self.source.line(f"get_{depth} = {row}.get")
        for field in structure.fields:
            if self.version in field.versions and self.version not in field.tagged:
                self.field(field, depth)
        if self.flexible:
            self.tags(structure, depth)

    def given(self, field: Field, depth: int) -> str:
        """Return the expression for the value of a field."""
        default = field.default_in(self.version)
        if isinstance(default, tuple | float):
            return f"get_{depth}({field.name!r}, {self.source.constant('default_', default)})"
        return f"get_{depth}({field.name!r}, {default!r})"

    def field(self, field: Field, depth: int) -> None:
        given, nullable = self.given(field, depth), self.version in field.nullable
        if field.is_array:
            self.array(field, given, nullable, depth)
        elif field.structure is not None:
            self.source.line(f"row_{depth + 1} = {given}")
            self.structure(field.structure, f"row_{depth + 1}", depth + 1)
        else:
            self.value(field, given, nullable)

    def value(self, field: Field, given: str, nullable: bool) -> None:
        """Write a value of a primitive type."""
        if field.type == "uuid":
            self.gather("16s", f"{given} or NULL_UUID")
        elif field.type in FORMATS:
            self.gather(FORMATS[field.type], given)
        else:
            self.sized(field, given, nullable)

    def sized(self, field: Field, given: str, nullable: bool) -> None:
        """Write a string or bytes."""
        is_text = field.type == "string"
        if not nullable:
            self.source.line(f"data = {given}.encode()" if is_text else f"data = {given}")
            self.size("len(data)", "h" if is_text else "i")
            self.source.line("out += data")
            return
        self.flush()
        self.source.line(f"data = {given}")
        with self.source.block("if data is None:"):
            self.null("h" if is_text else "i")
        with self.source.block("else:"):
            if is_text:
                self.source.line("data = data.encode()")
            self.size("len(data)", "h" if is_text else "i")
            self.source.line("out += data")

    def null(self, character: str) -> None:
        """Write the size of a value that is null."""
        null = b"\0" if self.flexible else struct.pack(f">{character}", -1)
        self.source.line(f"out += {null!r}")

    def size(self, size: str, character: str) -> None:
        """Write the gathered values, and then a size. `character`: its format in versions that are not flexible."""
        if not self.flexible:
            self.gather(character, size)
            self.flush()
            return
        self.flush()
        self.source.line(f"n = {size} + 1")
        with self.source.block("if n < 128:"):
            self.source.line("out.append(n)")
        with self.source.block("else:"):
            self.source.line("out += uvarint(n)")

    def array(self, field: Field, given: str, nullable: bool, depth: int) -> None:
        self.flush()
        self.source.line(f"rows_{depth} = {given}")
        if not nullable:
            self.elements(field, depth)
            return
        with self.source.block(f"if rows_{depth} is None:"):
            self.null("i")
        with self.source.block("else:"):
            self.elements(field, depth)

    def elements(self, field: Field, depth: int) -> None:
        """Write an array that is not null."""
        if field.structure is not None:
            self.rows(field.structure, depth)
            return
        self.source.line(f"rows_{depth} = tuple(rows_{depth})")
        self.size(f"len(rows_{depth})", "i")
        if field.type in FORMATS and field.type != "uuid":
            self.numbers(FORMATS[field.type], f"rows_{depth}")
            return
        with self.source.block(f"for value in rows_{depth}:"):
            self.value(field, "value", False)
            self.flush()

    def numbers(self, character: str, rows: str) -> None:
        """Write the numbers of an array, without their count."""
        few = self.source.constant("few_", few_numbers(character, "pack"))
        with self.source.block(f"if len({rows}) < {FEW}:"):
            self.source.line(f"out += {few}[len({rows})](*{rows})")
        with self.source.block("else:"):
            self.source.line(f"out += pack(f'>{{len({rows})}}{character}', *{rows})")

    def rows(self, structure: Structure, depth: int) -> None:
        """Write an array of structures. Their number is known, and written, after the last one."""
        row = f"row_{depth + 1}"
        self.source.line(f"start_{depth}, count_{depth} = len(out), 0")
        self.source.line(f"out += {bytes(1 if self.flexible else 4)!r}")
        with self.source.block(f"for {row} in rows_{depth}:"):
            with self.source.block(f"if {row} is None:"):
                self.source.line("yield len(out)")
                self.source.line("continue")
            self.source.line(f"count_{depth} += 1")
            self.structure(structure, row, depth + 1)
            self.flush()
            self.step(structure, depth)
        if self.flexible:
            self.source.line(f"out[start_{depth}:start_{depth} + 1] = uvarint(count_{depth} + 1)")
        else:
            self.source.line(f"pack_into('>i', out, start_{depth}, count_{depth})")

    def step(self, structure: Structure, depth: int) -> None:
        """End the step after a row, if it is long enough."""
        if any(field.structure is not None and field.is_array for field in structure.fields):
            self.source.line("yield len(out)")
            return
        with self.source.block(f"if not count_{depth} % {STEP_ROWS} or len(out) > due:"):
            self.source.line(f"due = len(out) + {STEP_BYTES}")
            self.source.line("yield len(out)")

    def tags(self, structure: Structure, depth: int) -> None:
        """Write the section of tagged fields: those whose value is not the default, in the order of their tags."""
        known = sorted(
            (field for field in structure.fields if self.version in field.tagged),
            key=lambda field: field.tag,
        )
        if not known:
            self.gather("x", "")
            return
        self.flush()
        values = ", ".join(f"get_{depth}({field.name!r})" for field in known)
        fields = tuple((field, _tag_encoder(field, self.version)) for field in known)
        self.source.line(f"out += tagged({self.source.constant('tags_', fields)}, ({values},))")


def _tag_encoder(field: Field, version: int) -> tuple[Any, Encode]:
    """Return the default of a tagged field, and the encoder of a mapping that contains the field."""
    made = _Encoder(version, True)
    made.source.line("get_0 = values.get")
    made.field(field, 0)
    return field.default_in(version), made.finished(field.name)


def _tagged(known: Iterable[tuple[Field, tuple[Any, Encode]]], values: Iterable[Any]) -> bytes:
    """Return a section of tagged fields, without those that have their default."""
    found = []
    for (field, (default, encode_field)), value in zip(known, values, strict=True):
        if value is None or _is_default(value, default):
            continue
        data = finished(encode_field({field.name: value}))
        found.append(uvarint(field.tag) + uvarint(len(data)) + data)
    return uvarint(len(found)) + b"".join(found)


def _is_default(value: Any, default: Any) -> bool:
    if isinstance(value, Mapping):
        fields = default._asdict()
        return bool({**fields, **value} == fields)
    return not value if default == () else bool(value == default)


def _unknown(name: str, names: frozenset[str], row: Row) -> TypeError:
    return TypeError(f"{name} has no {sorted(row.keys() - names)} in any version")
