"""ZooKeeper's encoding of values: big-endian numbers, and buffers, strings and lists with their length in front.

The length -1 means null. Java encodes a character above U+FFFF as two halves of 3 bytes each (CESU-8); names of
nodes cannot contain such characters, so that only an echoed path shows this.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, TypeVar

from minikafka.base.ports import Stat

T = TypeVar("T")

Entry: TypeAlias = tuple[int, str, str]
"""One entry of an access control list: (permission bits, scheme, id)."""
Acl: TypeAlias = tuple[Entry, ...]
Identity: TypeAlias = tuple[str, str]
"""(scheme, id) of a connection, such as ("digest", "user:hash")."""
ANYONE: Final[Acl] = ((31, "world", "anyone"),)
"""The list that nearly every node has. The reader returns this object, so that one comparison by identity suffices."""

INT: Final = struct.Struct("!i")
LONG: Final = struct.Struct("!q")
STAT: Final = struct.Struct("!qqqqiiiqiiq")
NULL: Final = INT.pack(-1)
"""The length of a value that is null."""
PART: Final = struct.Struct("!i?i")
"""In front of each operation of a multi, and of each result: type, whether this is the end, error."""
END_OF_PARTS: Final = PART.pack(-1, True, -1)
_ABOVE_BMP: Final = re.compile("[\U00010000-\U0010ffff]")
_ENTRY_BYTES_MIN: Final = 4 + 4 + 4


class Malformed(ValueError):
    """The bytes are not a record of ZooKeeper."""


class JuteReader:
    """A reader of consecutive values. Each method raises Malformed if the bytes end too early.

    Strings may be null: callers decide what null means.
    """

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def int32(self) -> int:
        """Read a number of 4 bytes."""
        position = self.position
        self.position = position + 4
        try:
            return INT.unpack_from(self.data, position)[0]  # type: ignore[no-any-return]
        except struct.error:
            raise Malformed(f"no number at byte {position}") from None

    def int64(self) -> int:
        """Read a number of 8 bytes."""
        position = self.position
        self.position = position + 8
        try:
            return LONG.unpack_from(self.data, position)[0]  # type: ignore[no-any-return]
        except struct.error:
            raise Malformed(f"no number at byte {position}") from None

    def boolean(self) -> bool:
        """Read one byte; every value but 0 is true."""
        position = self.position
        self.position = position + 1
        if position >= len(self.data):
            raise Malformed(f"no byte at {position}")
        return self.data[position] != 0

    def buffer(self) -> bytes | None:
        """Read bytes with their length in front; None for null."""
        size = self.int32()
        if size == -1:
            return None
        start = self.position
        if size < 0:
            raise Malformed(f"a buffer of {size} bytes at byte {start}")
        self.position = end = start + size
        if end > len(self.data):
            raise Malformed(f"a buffer of {size} bytes at byte {start} is cut")
        return self.data[start:end]

    def string(self) -> str | None:
        """Read a string; None for null. Bytes that are not UTF-8 become U+FFFD, which no name of a node can have."""
        data = self.buffer()
        return None if data is None else data.decode(errors="replace")

    def items(self, read: Callable[[], T]) -> list[T]:
        """Read a list; a null list is read as an empty one."""
        count = self.int32()
        if count > len(self.data):  # each element has at least one byte
            raise Malformed(f"a list of {count} elements in {len(self.data)} bytes")
        return [read() for _ in range(count)]

    def acl(self) -> Acl | None:
        """Read an access control list; None for null, the object ANYONE if it is this list."""
        if self.data.startswith(ANYONE_BYTES, self.position):
            self.position += len(ANYONE_BYTES)
            return ANYONE
        count = self.int32()
        if count < 0:
            return None
        if count * _ENTRY_BYTES_MIN > len(self.data):
            raise Malformed(f"an access control list of {count} entries is cut")
        return tuple((self.int32(), self.string() or "", self.string() or "") for _ in range(count))


def buffer(data: bytes | None) -> bytes:
    """Encode bytes with their length in front; None becomes null."""
    return NULL if data is None else INT.pack(len(data)) + data


def string(text: str | None) -> bytes:
    """Encode a string; None becomes null."""
    if text is None:
        return NULL
    data = text.encode() if text.isascii() else _cesu8(text)
    return INT.pack(len(data)) + data


def _cesu8(text: str) -> bytes:
    return _ABOVE_BMP.sub(_halves, text).encode("utf-8", "surrogatepass")


def _halves(match: re.Match[str]) -> str:
    high, low = struct.unpack("!HH", match[0].encode("utf-16-be"))
    return chr(high) + chr(low)


def strings(texts: Iterable[str]) -> bytes:
    """Encode a list of strings."""
    encoded = [string(text) for text in texts]
    return INT.pack(len(encoded)) + b"".join(encoded)


def acl(entries: Acl) -> bytes:
    """Encode an access control list."""
    if entries is ANYONE:
        return ANYONE_BYTES
    return INT.pack(len(entries)) + b"".join(
        INT.pack(bits) + string(scheme) + string(name) for bits, scheme, name in entries
    )


def stat(value: Stat) -> bytes:
    """Encode a Stat."""
    return STAT.pack(*value)


ANYONE_BYTES: Final = INT.pack(1) + INT.pack(31) + string("world") + string("anyone")
