"""The fields of a coordinator's records, which are keys and values in the format of Kafka's messages.

A key or value begins with a version. Invariant: a reader checks every length, never reads beyond the end of the
bytes, and raises ValueError for malformed bytes. Bytes after the last field are ignored, as in Kafka.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

NEVER_FLEXIBLE: Final = 0x8000
"""A version greater than every version, for messages whose first fields are not flexible in any version."""
STRING_MAX: Final = 0x7FFF
_INT16: Final = Struct(">h")


def encode_string(text: str | None) -> bytes:
    """Encode a nullable string: its length as int16, then its bytes. Raises ValueError if it is too long."""
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    if len(data) > STRING_MAX:
        raise ValueError(
            f"a string of {len(data)} bytes is too long: at most {STRING_MAX} are allowed"
        )
    return _INT16.pack(len(data)) + data


class Fields:
    """A decoder of bytes that begin with a version, followed by fields.

    From version `flexible_from`, lengths are varints and structs end with tagged fields. Raises ValueError if a
    field ends after the last byte.
    """

    __slots__ = ("_at", "_data", "is_flexible", "version")

    def __init__(self, data: bytes, flexible_from: int) -> None:
        self._data, self._at = data, 0
        self.version = int.from_bytes(self._take(2), "big", signed=True)
        self.is_flexible = self.version >= flexible_from

    def known_version(self, highest: int) -> int:
        """Return the version of a value. Raises ValueError if it is not in 0 to `highest`."""
        if not 0 <= self.version <= highest:
            raise ValueError(
                f"the value has version {self.version}; Kafka 3.9 reads versions 0 to {highest}"
            )
        return self.version

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError(f"a field ends at byte {end}, the data at {len(self._data)}")
        found = self._data[self._at : end]
        self._at = end
        return found

    def int8(self) -> int:
        """Read an int8."""
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        """Read an int16."""
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        """Read an int32."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        """Read an int64."""
        return int.from_bytes(self._take(8), "big", signed=True)

    def string(self) -> str:
        """Read a string that must not be null."""
        found = self.nullable_string()
        if found is None:
            raise ValueError("a string that must not be null is null")
        return found

    def nullable_string(self) -> str | None:
        """Read a nullable string. Malformed UTF-8 becomes U+FFFD, as in Java."""
        size = self._size(2)
        return None if size < 0 else self._take(size).decode(errors="replace")

    def data(self) -> bytes:
        """Read bytes that must not be null."""
        found = self.nullable_data()
        if found is None:
            raise ValueError("bytes that must not be null are null")
        return found

    def nullable_data(self) -> bytes | None:
        """Read nullable bytes."""
        size = self._size(4)
        return None if size < 0 else self._take(size)

    def count(self) -> int:
        """Read the length of an array. Raises ValueError if it is negative or exceeds the number of bytes."""
        return self._check_count(self._size(4))

    def nullable_count(self) -> int:
        """Read the length of a nullable array, 0 for null. Raises ValueError as `count` does."""
        return self._check_count(max(self._size(4), 0))

    def _check_count(self, count: int) -> int:
        if not 0 <= count <= len(self._data):
            raise ValueError(f"an array declares {count} elements in {len(self._data)} bytes")
        return count

    def _size(self, width: int) -> int:
        """Read a length: an integer of `width` bytes, or in a flexible version a varint with the length plus 1."""
        if self.is_flexible:
            return self._uvarint() - 1
        return int.from_bytes(self._take(width), "big", signed=True)

    def _uvarint(self) -> int:
        number = 0
        for shift in range(0, 35, 7):
            (byte,) = self._take(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a varint of more than 5 bytes")

    def skip_tags(self) -> None:
        """Skip the tagged fields of a struct. Only flexible versions have tagged fields."""
        for _ in range(self._uvarint() if self.is_flexible else 0):
            self._uvarint()
            self._take(self._uvarint())
