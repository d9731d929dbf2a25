"""The bytes that members of a consumer group exchange through the coordinator (Kafka's ConsumerProtocol).

A *subscription* is a member's metadata in JoinGroup; an *assignment* is what the leader sends to each member
in SyncGroup. Brokers store these bytes without reading them, so all clients must use the same encoding. The
bytes begin with a version. Version 1 of subscriptions added the owned partitions, version 2 the generation,
version 3 the rack; versions 1 to 3 of assignments have the same fields as version 0. A reader ignores the
bytes after the fields that it knows. As in Kafka, bytes that are not UTF-8 become U+FFFD in names.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumers in JoinGroup; Kafka Connect, for example, uses another type."""
SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 3
NO_GENERATION: Final = -1
_WITH_OWNED: Final = 1
_WITH_GENERATION: Final = 2
_WITH_RACK: Final = 3
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class Subscription(NamedTuple):
    """The metadata that a member sends to the leader: its topics, and the partitions that it owned in `generation`.

    `user_data` belongs to the assignor. `owned` is empty below version 1, `generation` is -1 below version 2.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None


class Assignment(NamedTuple):
    """The partitions of one member. `user_data` belongs to the assignor."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """Return the bytes of a subscription, in version 3."""
    topics = sorted(subscription.topics)
    return b"".join(
        (
            _INT16.pack(SUBSCRIPTION_VERSION),
            _INT32.pack(len(topics)),
            *map(_string, topics),
            _bytes(subscription.user_data),
            encode_partitions(subscription.owned),
            _INT32.pack(subscription.generation),
            _string(subscription.rack),
        )
    )


def decode_subscription(data: bytes) -> Subscription:
    """Return the subscription in `data`, of any version. Raises ProtocolViolation."""
    reader = Reader(data)
    version = reader.int16()
    topics = tuple(reader.text() for _ in range(reader.count()))
    user_data = reader.data()
    owned = reader.partitions() if version >= _WITH_OWNED else ()
    generation = reader.int32() if version >= _WITH_GENERATION else NO_GENERATION
    rack = reader.string() if version >= _WITH_RACK else None
    return Subscription(topics, user_data, owned, generation, rack)


def encode_assignment(assignment: Assignment) -> bytes:
    """Return the bytes of an assignment, in version 3."""
    head = _INT16.pack(ASSIGNMENT_VERSION)
    return head + encode_partitions(assignment.partitions) + _bytes(assignment.user_data)


def decode_assignment(data: bytes) -> Assignment:
    """Return the assignment in `data`, of any version. Empty `data` means no partitions.

    Raises ProtocolViolation.
    """
    if not data:
        return Assignment(())
    reader = Reader(data)
    reader.int16()
    return Assignment(reader.partitions(), reader.data())


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Return partitions encoded as a sorted array of topics, each with a sorted array of partition numbers."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        by_topic[topic].append(number)
    parts = [_INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += (_string(topic), _INT32.pack(len(numbers)), *map(_INT32.pack, numbers))
    return b"".join(parts)


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

    def string(self) -> str | None:
        """Return a string; None if the field is null."""
        size = self.int16()
        return None if size < 0 else self._text(size)

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


def _string(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _bytes(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data
