"""Checks of a message's bytes against its schema, made before kio decodes them.

Invariant: a check allocates nothing for counts and lengths in the bytes. Every count and length is compared with the
remaining bytes, and the elements of a message are counted against a limit. Unknown tagged fields, which KIP-482 lets a
newer peer send, are cut out. As in Kafka, U+FFFD replaces the bytes of a string that are not UTF-8.

Without this module, kio's native reader would allocate as many elements as an array claims, and a failed
allocation ends the process. The reader would also fail on unknown tagged fields and on strings that are not UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, TypeAlias, get_args, get_origin

from minikafka.base.errors import ProtocolViolation
from minikafka.base.ports import Buffer
from minikafka.record.varints import read_uvarint, uvarint
from minikafka.wire.primitives import INT16, INT32

STRING_BYTES_MAX: Final = 0x7FFF
"""Longest string that Kafka accepts, in both encodings."""

_SIZES: Final[dict[str, int]] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint16": 2,
    "uint32": 4,
    "float64": 8,
    "uuid": 16,
    "error_code": 2,
}


class Cursor:
    """A position in a message. `elements_left`: the number of array elements that may still follow.

    `cuts`: (start, end, replacement) of each byte range that must be replaced before kio decodes the message.
    """

    __slots__ = ("cuts", "data", "elements_left", "pos")

    def __init__(self, data: Buffer, pos: int, elements_max: int) -> None:
        self.data = data
        self.pos = pos
        self.elements_left = elements_max
        self.cuts: list[tuple[int, int, bytes]] = []

    def skip(self, count: int) -> None:
        """Move `count` bytes ahead. Raises ProtocolViolation beyond the end."""
        pos = self.pos + count
        if pos > len(self.data):
            raise ProtocolViolation("the message is cut off")
        self.pos = pos

    def varint(self) -> int:
        """Read an unsigned varint. Raises ProtocolViolation."""
        value, self.pos = read_uvarint(self.data, self.pos)
        return value

    def int16(self) -> int:
        """Read an int16. Raises ProtocolViolation beyond the end."""
        at = self.pos
        self.skip(2)
        return int(INT16.unpack_from(self.data, at)[0])

    def int32(self) -> int:
        """Read an int32. Raises ProtocolViolation beyond the end."""
        at = self.pos
        self.skip(4)
        return int(INT32.unpack_from(self.data, at)[0])

    def expect(self, count: int, smallest: int) -> None:
        """Subtract `count` elements from `elements_left`. Raises ProtocolViolation if too few elements are left.

        Also raises ProtocolViolation if the remaining bytes cannot hold `count` elements of at least `smallest` bytes.
        """
        self.elements_left -= count
        if count * smallest > len(self.data) - self.pos:
            raise ProtocolViolation(f"an array of {count} elements exceeds the message")
        if self.elements_left < 0:
            raise ProtocolViolation("the message has too many elements")


Walk: TypeAlias = Callable[[Cursor], None]


class Shape(NamedTuple):
    """The check for the bytes of one type of value.

    `walk`: checks the value at a cursor, and moves the cursor past the value. `smallest`: the minimum size of a
    value in bytes. `fixed`: True if every value has this size.
    """

    walk: Walk
    smallest: int
    fixed: bool = False


def checked(shape: Shape, data: Buffer, pos: int, elements_max: int) -> tuple[Buffer, int]:
    """Check the value at `pos`. Return the buffer and the position from which kio can decode the value.

    Raises ProtocolViolation.
    """
    return checked_next(shape, Cursor(data, pos, elements_max))


def checked_next(shape: Shape, cursor: Cursor) -> tuple[Buffer, int]:
    """Check the next value and move the cursor past it; return (buffer, position) from which kio may decode it.

    Raises ProtocolViolation.
    """
    data, pos = cursor.data, cursor.pos
    shape.walk(cursor)
    if not cursor.cuts:
        return data, pos
    parts: list[Buffer] = []
    for start, end, replacement in cursor.cuts:
        parts += [data[pos:start], replacement]
        pos = end
    parts.append(data[pos : cursor.pos])
    cursor.cuts = []
    return b"".join(parts), 0


@cache
def shape_of(entity_type: Any) -> Shape:
    """Return the check (`Shape`) for a kio entity, derived from the entity's dataclass fields."""
    flexible: bool = entity_type.__flexible__
    plain: list[Shape] = []
    tagged: dict[int, Walk] = {}
    for field in fields(entity_type):
        shape = field_shape(field, flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = shape.walk
        else:
            plain.append(shape)
    smallest = sum(shape.smallest for shape in plain)
    if flexible:
        return Shape(_sequence([*(shape.walk for shape in plain), _tags(tagged)]), smallest + 1)
    if all(shape.fixed for shape in plain):
        return _fixed(smallest)
    return Shape(_sequence([shape.walk for shape in plain]), smallest)


def array_element(field_type: Any) -> Any | None:
    """Return the element type of an array type, None for another type."""
    inner = without_none(field_type)[0]
    return get_args(inner)[0] if get_origin(inner) is tuple else None


def without_none(field_type: Any) -> tuple[Any, bool]:
    """Return the type without `None`, and True if the type allows `None`."""
    if get_origin(field_type) is not UnionType:
        return field_type, False
    args = [arg for arg in get_args(field_type) if arg is not NoneType]
    return args[0], True


def array_count(cursor: Cursor, flexible: bool, nullable: bool, smallest: int) -> int:
    """Read the length of an array whose elements have at least `smallest` bytes; -1 for null.

    Raises ProtocolViolation for any other negative length, for null if the array is not `nullable`, and for
    a length that exceeds the message.
    """
    count = cursor.varint() - 1 if flexible else cursor.int32()
    if count < 0:
        if count == -1 and nullable:
            return -1
        raise ProtocolViolation(f"the length of an array is {count}")
    cursor.expect(count, smallest)
    return count


def field_shape(field: Field[Any], flexible: bool) -> Shape:
    """Return the check (`Shape`) for one field of an entity."""
    inner, nullable = without_none(field.type)
    element = array_element(inner)
    if element is None:
        return value_shape(inner, field.metadata, flexible)
    return _array(value_shape(element, field.metadata, flexible), flexible, nullable)


def value_shape(value_type: Any, metadata: Any, flexible: bool) -> Shape:
    """Return the check (`Shape`) for a type that is not an array. `metadata`: the metadata of the dataclass field."""
    if is_dataclass(value_type):
        entity: Any = value_type
        return shape_of(entity)
    kafka_type = metadata["kafka_type"]
    if kafka_type == "string":
        return _COMPACT_STRING if flexible else _STRING
    if kafka_type in ("bytes", "records"):
        return _COMPACT_BYTES if flexible else _BYTES
    return _fixed(_SIZES[kafka_type])


@cache
def _fixed(size: int) -> Shape:
    return Shape(lambda cursor: cursor.skip(size), size, True)


def _sequence(walks: list[Walk]) -> Walk:
    def walk(cursor: Cursor) -> None:
        for step in walks:
            step(cursor)

    return walk


def _array(element: Shape, flexible: bool, nullable: bool) -> Shape:
    step, smallest, fixed = element

    def walk(cursor: Cursor) -> None:
        count = array_count(cursor, flexible, nullable, smallest)
        if fixed:
            cursor.skip(max(count, 0) * smallest)
            return
        for _ in range(count):
            step(cursor)

    return Shape(walk, 1 if flexible else 4)


def _tags(known: dict[int, Walk]) -> Walk:
    def walk(cursor: Cursor) -> None:
        start = cursor.pos
        count = cursor.varint()
        if not count:
            return
        cursor.expect(count, 2)
        kept = [_kept_tag(cursor, known) for _ in range(count)]
        if b"" in kept:
            section = b"".join(kept)
            replacement = uvarint(len(kept) - kept.count(b"")) + section
            cursor.cuts.append((start, cursor.pos, replacement))

    return walk


def _kept_tag(cursor: Cursor, known: dict[int, Walk]) -> bytes:
    """Read a tagged field; return its bytes, or b"" if the schema does not have the field."""
    start = cursor.pos
    step = known.get(cursor.varint())
    size = cursor.varint()
    end = cursor.pos + size
    if step is None:
        cursor.skip(size)
        return b""
    cuts = len(cursor.cuts)
    step(cursor)
    if cursor.pos != end or len(cursor.cuts) != cuts:
        raise ProtocolViolation("a tagged field does not have the size that it claims")
    return bytes(cursor.data[start:end])


skip_unknown_tags: Final = _tags({})
"""Function that skips a section of unknown tagged fields. Raises ProtocolViolation."""


def _walk_string(cursor: Cursor) -> None:
    start = cursor.pos
    size = cursor.int16()
    if size < -1:
        raise ProtocolViolation(f"the length of a string is {size}")
    if text := _repaired(cursor, size):
        cursor.cuts.append((start, cursor.pos, INT16.pack(len(text)) + text))


def _walk_compact_string(cursor: Cursor) -> None:
    start = cursor.pos
    size = cursor.varint() - 1
    if size > STRING_BYTES_MAX:
        raise ProtocolViolation(f"the length of a string is {size}")
    if text := _repaired(cursor, size):
        cursor.cuts.append((start, cursor.pos, uvarint(len(text) + 1) + text))


def _repaired(cursor: Cursor, size: int) -> bytes | None:
    """Move past a string of `size` bytes. If it is not UTF-8, return the UTF-8 that Kafka reads instead of it.

    As in Kafka, U+FFFD replaces bytes that are not UTF-8. Such a string ends where it would no longer fit into
    Kafka's limit.
    """
    if size <= 0:
        return None
    start = cursor.pos
    cursor.skip(size)
    data = cursor.data[start : cursor.pos]
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        text = str(data, "utf-8", "replace").encode()[:STRING_BYTES_MAX]
        return text.decode("utf-8", "ignore").encode()
    return None


def _walk_bytes(cursor: Cursor) -> None:
    size = cursor.int32()
    if size < -1:
        raise ProtocolViolation(f"the length of a bytes field is {size}")
    cursor.skip(max(size, 0))


def _walk_compact_bytes(cursor: Cursor) -> None:
    cursor.skip(max(cursor.varint() - 1, 0))


_STRING: Final = Shape(_walk_string, 2)
_COMPACT_STRING: Final = Shape(_walk_compact_string, 1)
_BYTES: Final = Shape(_walk_bytes, 4)
_COMPACT_BYTES: Final = Shape(_walk_compact_bytes, 1)
