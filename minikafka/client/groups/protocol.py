"""The assignment that the leader of a consumer group sends to each member (Kafka's ConsumerProtocol).

Brokers store these bytes without reading them, so all clients use the same encoding. The bytes begin with a
version; versions 1 to 3 have the same fields as version 0. A reader ignores the bytes after the fields that it knows.
As in Kafka, bytes that are not UTF-8 become U+FFFD in names.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumers in JoinGroup; Kafka Connect, for example, uses another type."""
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class Assignment(NamedTuple):
    """The partitions of one member. `user_data` belongs to the assignor."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def decode_assignment(data: bytes) -> Assignment:
    """Return the assignment in `data`, of any version. Empty `data` means no partitions.

    Raises ProtocolViolation.
    """
    if not data:
        return Assignment(())
    reader = Reader(data)
    reader.int16()
    return Assignment(reader.partitions(), reader.data())


class Reader:
    """A reader of the fields of one message, in order. Every method raises ProtocolViolation at the end of the data."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """Number of bytes that were not read yet."""
        return len(self._data) - self._at

    def int16(self) -> int:
        """Return a signed number of two bytes."""
        return self._number(_INT16)

    def int32(self) -> int:
        """Return a signed number of four bytes."""
        return self._number(_INT32)

    def count(self) -> int:
        """Return the length of an array; -1 (null) counts as 0."""
        found = self.int32()
        if found > self.left:
            raise ProtocolViolation(f"an array declares {found} elements in {self.left} bytes")
        return max(found, 0)

    def text(self) -> str:
        """Return a string. Raises ProtocolViolation if the field is null."""
        return self._text(self.int16())

    def data(self) -> bytes | None:
        """Return a field of bytes; None if the field is null, or missing at the end of the data."""
        if not self.left:
            return None
        size = self.int32()
        return None if size < 0 else self._take(size)

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Read an array of topics, each with its partition numbers; return the partitions."""
        found = []
        for _ in range(self.count()):
            topic = self.text()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return tuple(found)

    def _number(self, layout: struct.Struct) -> int:
        try:
            (found,) = layout.unpack_from(self._data, self._at)
        except struct.error:
            raise ProtocolViolation("the message is cut off") from None
        self._at += layout.size
        return int(found)

    def _text(self, size: int) -> str:
        return self._take(size).decode(errors="replace")

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise ProtocolViolation(f"a field declares {size} bytes, but {self.left} are left")
        self._at += size
        return self._data[self._at - size : self._at]
