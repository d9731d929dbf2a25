"""The decoder of messages: one generated function for each message and version, which checks while it reads.

Invariant: any input results in an entity or in ProtocolViolation. Nothing is allocated for a false count or length:
every count is compared with the remaining bytes before the elements are read, and the elements of a message are
counted against a limit. A string or bytes field cannot be larger than the message, because slices end with it. Each
function compares its position with the end of the message after the last field. A partition of an OffsetCommit request
takes 0.39 µs, instead of 1.28 µs with a general decoder and a check before it.

Unknown tagged fields, which KIP-482 lets a newer peer send, are skipped. As in Kafka, U+FFFD replaces the bytes of a
string that are not UTF-8. Bytes after the last field are ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from minikafka.base.errors import ProtocolViolation
from minikafka.base.ports import Buffer
from minikafka.kafka.messages.source import FEW, FORMATS, GeneratedFunction, few_numbers
from minikafka.kafka.messages.steps import finished
from minikafka.kafka.messages.table import Field, Message, Structure
from minikafka.kafka.records.varints import read_uvarint

STEP_BYTES: Final = 1 << 10
"""A step ends with the first array element after this many bytes, in at most 0.3 ms."""
STRING_BYTES_MAX: Final = 0x7FFF
"""Longest string that Kafka accepts, in both encodings."""

Entity: TypeAlias = Any
"""A decoded structure: a named tuple with Kafka's field names in snake case.

It has the fields of all versions. A field that the message's version lacks has Kafka's default. Times are integers
of milliseconds, ids are 16 bytes, arrays are tuples, error codes are integers.
"""
Decoding: TypeAlias = Generator[None, None, tuple[Entity, int, int]]
Decode: TypeAlias = Callable[[Buffer, int, int], Decoding]
"""(message, position, elements left) -> generator that yields between steps and returns the entity, the position
after it, and the number of elements left."""

_SHORT: Final = STRING_BYTES_MAX // 3
"""Strings of at most this many bytes stay below Kafka's limit if U+FFFD (3 bytes) replaces each of their bytes."""
_STEP_NUMBERS: Final = 8 << 10
_STEP_TAGS: Final = 256


@cache
def decoder(message: Message, version: int) -> Decode:
    """Return the generated decoder of a message in this version."""
    return _compiled(message.structure, version, version in message.flexible)


def decode(message: Message, version: int, data: Buffer, pos: int, elements_max: int) -> Entity:
    """Return the message that begins at `pos`. `elements_max`: limit of array elements and tagged fields.

    Raises ProtocolViolation for malformed bytes.
    """
    try:
        return finished(decoder(message, version)(data, pos, elements_max))[0]
    except (struct.error, IndexError):
        raise _cut_off(message, version) from None
    except ProtocolViolation as error:
        raise _named(message, version, error) from None


def decode_in_steps(
    message: Message, version: int, data: Buffer, pos: int, elements_max: int
) -> Generator[None, None, Entity]:
    """Do what `decode` does, as a generator that yields between steps of at most 0.3 ms and returns the entity."""
    try:
        return (yield from decoder(message, version)(data, pos, elements_max))[0]
    except (struct.error, IndexError):
        raise _cut_off(message, version) from None
    except ProtocolViolation as error:
        raise _named(message, version, error) from None


def _cut_off(message: Message, version: int) -> ProtocolViolation:
    return _named(message, version, "the message is cut off")


def _named(message: Message, version: int, reason: object) -> ProtocolViolation:
    return ProtocolViolation(f"{message.structure.name} v{version}: {reason}")


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


# ---- the generated function


def _compiled(structure: Structure, version: int, flexible: bool) -> Decode:
    made = _Decoder(version, flexible)
    return made.finished(made.structure(structure, 0), structure.name)


def _compiled_tag(field: Field, version: int) -> Decode:
    """Return the decoder of a tagged field."""
    made = _Decoder(version, True)
    return made.finished(made.present(field, 0), field.name)


class _Decoder:
    """Generates the decoder of one structure. Fields of fixed size are gathered, and read by one call of `unpack`.

    The generated function has the variables `data`, `pos`, `end`, `left` (elements that may follow) and `due` (the
    position at which the step ends). `n` is a count or length. A field `name` at depth 2 is `name_2`.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        self.version, self.flexible = version, flexible
        self.source = GeneratedFunction(
            "data, pos, left",
            {
                "new": tuple.__new__,
                "uvarint": read_uvarint,
                "text": _text,
                "nullable_text": _nullable_text,
                "tags": _tags,
                "numbers": _numbers,
                "cut_off": lambda: ProtocolViolation("the message is cut off"),
                "bad_count": _bad_count,
                "bad_length": _bad_length,
            },
        )
        self._gathered: list[tuple[str, str]] = []
        self.source.line("end = len(data)")
        self.source.line(f"due = pos + {STEP_BYTES}")

    def finished(self, value: str, name: str) -> Decode:
        """Return the compiled function. `value`: the expression of its result."""
        self.flush()
        with self.source.block("if pos > end:"):
            self.source.line("raise cut_off()")
        self.source.line(f"return {value}, pos, left")
        self.source.line("yield")  # makes the function a generator, also without an array
        compiled: Decode = self.source.compiled(f"decoder of {name} v{self.version}")
        return compiled

    def gather(self, character: str, variable: str) -> None:
        """Read a value of fixed size into a variable, with the next `flush`."""
        self._gathered.append((character, variable))

    def flush(self) -> None:
        """Read the gathered values."""
        if not self._gathered:
            return
        characters = "".join(character for character, _ in self._gathered)
        variables = ", ".join(variable for _, variable in self._gathered)
        self._gathered.clear()
        if characters == "B":
            self.source.line(f"{variables} = data[pos]")
        else:
            unpack = self.source.layout(characters, "unpack_from")
            self.source.line(f"({variables},) = {unpack}(data, pos)")
        self.source.line(f"pos += {struct.calcsize('>' + characters)}")

    def field(self, field: Field, depth: int) -> str:
        """Read a field, or return its default if the version lacks it or has it as a tagged field."""
        if self.version not in field.versions or self.version in field.tagged:
            return self.default(field)
        return self.present(field, depth)

    def present(self, field: Field, depth: int) -> str:
        """Read a field; return its variable."""
        variable = f"{field.name}_{depth}"
        if field.is_array:
            self.array(field, depth, variable)
        elif field.structure is not None:
            self.nested(field, depth, variable)
        else:
            self.value(field, variable, self.version in field.nullable)
        return variable

    def nested(self, field: Field, depth: int, variable: str) -> None:
        """Read a structure that is no element of an array."""
        assert field.structure is not None
        assert self.version not in field.nullable, f"{field.name}: a structure must not be null"
        self.flush()
        self.source.line(f"{variable} = {self.structure(field.structure, depth + 1)}")

    def structure(self, structure: Structure, depth: int) -> str:
        """Read a structure; return the expression that makes the entity."""
        values = {field.name: self.field(field, depth) for field in structure.fields}
        if self.flexible:
            values |= self.tags(structure, depth)
        self.flush()
        entity = self.source.constant("entity_", structure.entity)
        return f"new({entity}, ({', '.join(values.values())},))"

    def default(self, field: Field) -> str:
        """Return an expression for the default of a field."""
        value = field.default_in(self.version)
        if isinstance(value, tuple | float):
            return self.source.constant("default_", value)
        return repr(value)

    def value(self, field: Field, variable: str, nullable: bool) -> None:
        """Read a value of a primitive type."""
        if field.type in FORMATS:
            self.gather(FORMATS[field.type], variable)
        elif field.type == "string":
            self.size("h")
            with self.source.block(f"if 0 <= n <= {_SHORT}:"):
                self.source.line(f'{variable} = str(data[pos:pos + n], "utf-8", "replace")')
                self.source.line("pos += n")
            with self.source.block("else:"):
                read = "nullable_text" if nullable else "text"
                self.source.line(f"{variable}, pos = {read}(data, pos, n)")
        else:
            self.size("i")
            found = "data[pos:pos + n]"  # records stay a view, if the message is a view
            found = f"bytes({found})" if field.type == "bytes" else found
            with self.source.block("if n >= 0:"):
                self.source.line(f"{variable} = {found}")
                self.source.line("pos += n")
            self.null(variable, nullable, "bad_length")

    def null(self, variable: str, nullable: bool, error: str) -> None:
        """Handle a negative size."""
        if nullable:
            with self.source.block("elif n == -1:"):
                self.source.line(f"{variable} = None")
        with self.source.block("else:"):
            self.source.line(f"raise {error}(n)")

    def size(self, character: str) -> None:
        """Read the size of a string, of bytes or of an array into `n`; -1 for null."""
        if not self.flexible:
            self.gather(character, "n")
            self.flush()
            return
        self.gather("B", "n")
        self.flush()
        with self.source.block("if n > 127:"):
            self.source.line("n, pos = uvarint(data, pos - 1)")
        self.source.line("n -= 1")

    def array(self, field: Field, depth: int, variable: str) -> None:
        self.size("i")
        with self.source.block("if n >= 0:"):
            self.source.line("left -= n")
            smallest = self.smallest(field)
            with self.source.block(f"if left < 0 or n * {smallest} > end - pos:"):
                self.source.line("raise bad_count(n)")
            if field.type in FORMATS and field.type not in ("uuid", "bool"):
                self.numbers(FORMATS[field.type], variable)
            else:
                self.elements(field, depth, variable)
        self.null(variable, self.version in field.nullable, "bad_count")

    def numbers(self, character: str, variable: str) -> None:
        """Read an array of numbers."""
        size = struct.calcsize(character)
        few = self.source.constant("few_", few_numbers(character, "unpack_from"))
        with self.source.block(f"if n < {FEW}:"):
            self.source.line(f"{variable} = {few}[n](data, pos)")
        with self.source.block("else:"):
            self.source.line(
                f"{variable} = yield from numbers(data, pos, n, {character!r}, {size})"
            )
        self.source.line(f"pos += n * {size}")

    def smallest(self, field: Field) -> int:
        """Return the minimum number of bytes of a field, or of one element if it is an array."""
        if field.type in FORMATS:
            return struct.calcsize(f">{FORMATS[field.type]}")
        if field.structure is None:
            return 1 if self.flexible else 2 if field.type == "string" else 4
        present = [
            item
            for item in field.structure.fields
            if self.version in item.versions and self.version not in item.tagged
        ]
        size = sum(
            (1 if self.flexible else 4) if item.is_array else self.smallest(item)
            for item in present
        )
        return size + self.flexible

    def elements(self, field: Field, depth: int, variable: str) -> None:
        """Read the elements of an array, one by one."""
        self.source.line(f"rows_{depth} = []")
        self.source.line(f"append_{depth} = rows_{depth}.append")
        with self.source.block("for _ in range(n):"):
            if field.structure is None:
                self.value(field, "value", False)
                self.flush()
                self.source.line(f"append_{depth}(value)")
            else:
                self.source.line(f"append_{depth}({self.structure(field.structure, depth + 1)})")
            with self.source.block("if pos > due:"):
                self.source.line(f"due = pos + {STEP_BYTES}")
                self.source.line("yield")
        self.source.line(f"{variable} = tuple(rows_{depth})")

    def tags(self, structure: Structure, depth: int) -> dict[str, str]:
        """Read the section of tagged fields. Return the variables of those that the version knows, by field."""
        known = {
            f"{field.name}_{depth}": field
            for field in structure.fields
            if self.version in field.tagged
        }
        readers = {field.tag: _compiled_tag(field, self.version) for field in known.values()}
        self.gather("B", "n")
        for variable, field in known.items():
            self.source.line(f"{variable} = {self.default(field)}")
        self.flush()
        with self.source.block("if n:"):
            readers_name = self.source.constant("readers_", readers)
            self.source.line(
                f"found, pos, left = yield from tags(data, pos - 1, end, left, {readers_name})"
            )
            for variable, field in known.items():
                self.source.line(f"{variable} = found.get({field.tag}, {variable})")
        return {field.name: variable for variable, field in known.items()}


# ---- called by the generated functions, for what is rare


def _text(data: Buffer, pos: int, size: int) -> tuple[str, int]:
    """Return a string of `size` bytes and the position after it."""
    if not 0 <= size <= STRING_BYTES_MAX:
        raise _bad_length(size)
    found = str(data[pos : pos + size], "utf-8", "replace")
    if len(found) * 3 > STRING_BYTES_MAX:  # only then it may be longer in UTF-8
        found = found.encode()[:STRING_BYTES_MAX].decode("utf-8", "ignore")
    return found, pos + size


def _nullable_text(data: Buffer, pos: int, size: int) -> tuple[str | None, int]:
    return (None, pos) if size == -1 else _text(data, pos, size)


def _numbers(
    data: Buffer, pos: int, count: int, character: str, size: int
) -> Generator[None, None, tuple[int, ...]]:
    """Return an array of numbers of `size` bytes each, in steps."""
    found: list[int] = []
    for start in range(0, count, _STEP_NUMBERS):
        part = min(count - start, _STEP_NUMBERS)
        found += struct.unpack_from(f">{part}{character}", data, pos + start * size)
        if start + part < count:
            yield
    return tuple(found)


def _tags(
    data: Buffer, pos: int, end: int, left: int, readers: Mapping[int, Decode]
) -> Generator[None, None, tuple[dict[int, Any], int, int]]:
    """Return the tagged fields that have a reader, the position after their section, and the rest of `left`."""
    count, pos = read_uvarint(data, pos)
    left -= count
    if left < 0 or count * 2 > end - pos:
        raise _bad_count(count)
    found: dict[int, Any] = {}
    for number in range(count):
        tag, pos = read_uvarint(data, pos)
        size, pos = read_uvarint(data, pos)
        if tag in readers:
            found[tag], stop, left = yield from readers[tag](data[pos : pos + size], 0, left)
            if stop != size:
                raise ProtocolViolation("a tagged field does not have the size that it claims")
        pos += size
        if number % _STEP_TAGS == _STEP_TAGS - 1:
            yield
    return found, pos, left


def _bad_count(count: int) -> ProtocolViolation:
    return ProtocolViolation(
        f"an array of {count} elements is null, too long, or exceeds the message"
    )


def _bad_length(length: int) -> ProtocolViolation:
    return ProtocolViolation(f"a string or bytes field has a length of {length}")
