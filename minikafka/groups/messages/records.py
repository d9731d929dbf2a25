"""The records of `__consumer_offsets`, byte for byte as Kafka 3.9 writes and reads them.

A key begins with a version. Versions 0 and 1 are keys of committed offsets (`OffsetCommitKey`), version 2 is the
key of a group (`GroupMetadataKey`). A value begins with a separate version. A null value is a tombstone. Source:
the schemas in Kafka's group coordinator, and `GroupMetadataManager`. Like Kafka, this module also reads values of
version 4, the first version with tagged fields. Invariant: a reader checks every length, never reads beyond the
end of the bytes, and raises ValueError for malformed bytes. Bytes after the last field are ignored, as in Kafka.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.model import NO_EPOCH, TopicPartition

NO_TIMESTAMP: Final = -1
TIMESTAMP_MAX: Final = 2**63 - 1

_OFFSET_KEYS: Final = (0, 1)
_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_WITH_EXPIRY: Final = 1
_WRITTEN: Final = 3
"""Version of the values that Kafka 3.9 writes, except for offsets with an expire timestamp."""
_FLEXIBLE: Final = 4
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_STRING_MAX: Final = 0x7FFF
_OFFSET_HEAD: Final = Struct(">hqi")
"""Version, offset and leader epoch of an offset value of version 3."""
_OLD_OFFSET_HEAD: Final = Struct(">hq")
_INT64: Final = Struct(">q")
_TWO_INT64: Final = Struct(">qq")


class OffsetKey(NamedTuple):
    """The key of a committed offset (`OffsetCommitKey`)."""

    group: str
    tp: TopicPartition


class GroupKey(NamedTuple):
    """The key of a group (`GroupMetadataKey`)."""

    group: str


class UnknownKey(NamedTuple):
    """A key of a version that Kafka 3.9 does not know. Kafka skips such a record with a warning."""

    version: int


Key: TypeAlias = OffsetKey | GroupKey | UnknownKey


class OffsetAndMetadata(NamedTuple):
    """A committed offset (`OffsetCommitValue`). Timestamps are Unix milliseconds."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp: int = NO_TIMESTAMP
    expire_timestamp: int = NO_TIMESTAMP
    """Time at which the offset expires. NO_TIMESTAMP: `offsets.retention.minutes` determines this time."""


class MemberMetadata(NamedTuple):
    """A member of a stored generation (`GroupMetadataValue.MemberMetadata`)."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """The metadata that the member sent for the group's protocol."""
    assignment: bytes


class GroupMetadataValue(NamedTuple):
    """A stored generation of a group (`GroupMetadataValue`)."""

    protocol_type: str
    """The protocol type, "" if the group has none."""
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int = NO_TIMESTAMP
    """Time (Unix ms) at which the group entered its state. NO_TIMESTAMP in versions 0 and 1."""
    members: tuple[MemberMetadata, ...] = ()


# Writing.


def offset_commit_key(group: str, tp: TopicPartition) -> bytes:
    """Return the key of a committed offset. Raises ValueError if a name is longer than 32,767 bytes."""
    return b"".join(
        (
            _INT16.pack(_OFFSET_KEY),
            _string(group),
            _string(tp.topic),
            _INT32.pack(tp.partition),
        )
    )


def offset_commit_value(value: OffsetAndMetadata) -> bytes:
    """Return the value of a committed offset. Raises ValueError if the metadata is longer than 32,767 bytes.

    The value has version 1 if the offset has an expire timestamp, else version 3.
    """
    metadata = _string(value.metadata)
    if value.expire_timestamp != NO_TIMESTAMP:
        head = _OLD_OFFSET_HEAD.pack(_WITH_EXPIRY, value.offset)
        return head + metadata + _TWO_INT64.pack(value.commit_timestamp, value.expire_timestamp)
    head = _OFFSET_HEAD.pack(_WRITTEN, value.offset, value.leader_epoch)
    return head + metadata + _INT64.pack(value.commit_timestamp)


def group_metadata_key(group: str) -> bytes:
    """Return the key of a group. Raises ValueError if the name is longer than 32,767 bytes."""
    return _INT16.pack(_GROUP_KEY) + _string(group)


def group_metadata_value(value: GroupMetadataValue) -> bytes:
    """Return the value of a group in version 3. Raises ValueError if a string is longer than 32,767 bytes."""
    parts = [
        _INT16.pack(_WRITTEN),
        _string(value.protocol_type),
        _INT32.pack(value.generation),
        _string(value.protocol),
        _string(value.leader),
        _INT64.pack(value.current_state_timestamp),
        _INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.member_id),
            _string(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _INT32.pack(len(member.subscription)),
            member.subscription,
            _INT32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def _string(text: str | None) -> bytes:
    """Encode a nullable string: its length as int16, then its bytes. Raises ValueError if it is too long."""
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    if len(data) > _STRING_MAX:
        raise ValueError(
            f"a string of {len(data)} bytes is too long: at most {_STRING_MAX} are allowed"
        )
    return _INT16.pack(len(data)) + data


# Reading.


def read_key(data: bytes) -> Key:
    """Decode a key of an offset, a group, or an unknown version. Raises ValueError if the key is too short."""
    fields = _Fields(data)
    version = fields.version
    if version in _OFFSET_KEYS:
        return OffsetKey(fields.string(), TopicPartition(fields.string(), fields.int32()))
    if version == _GROUP_KEY:
        return GroupKey(fields.string())
    return UnknownKey(version)


def read_offset(data: bytes) -> OffsetAndMetadata:
    """Decode the value of a committed offset, versions 0 to 4. Raises ValueError."""
    fields = _Fields(data)
    version = fields.known_version()
    offset = fields.int64()
    leader_epoch = fields.int32() if version >= 3 else NO_EPOCH
    metadata = fields.string()
    commit_timestamp = fields.int64()
    expire_timestamp = fields.int64() if version == _WITH_EXPIRY else NO_TIMESTAMP
    return OffsetAndMetadata(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp)


def read_group(data: bytes) -> GroupMetadataValue:
    """Decode the value of a group, versions 0 to 4. Raises ValueError.

    Version 0 has no rebalance timeout. As in Kafka, the session timeout is used instead.
    """
    fields = _Fields(data)
    version = fields.known_version()
    return GroupMetadataValue(
        protocol_type=fields.string(),
        generation=fields.int32(),
        protocol=fields.nullable_string(),
        leader=fields.nullable_string(),
        current_state_timestamp=fields.int64() if version >= 2 else NO_TIMESTAMP,
        members=tuple(_member(fields, version) for _ in range(fields.count())),
    )


def _member(fields: _Fields, version: int) -> MemberMetadata:
    member_id = fields.string()
    group_instance_id = fields.nullable_string() if version >= 3 else None
    client_id, client_host = fields.string(), fields.string()
    rebalance_timeout_ms = fields.int32() if version >= 1 else None
    session_timeout_ms = fields.int32()
    member = MemberMetadata(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
        session_timeout_ms,
        subscription=fields.data(),
        assignment=fields.data(),
    )
    fields.skip_tags()
    return member


def subscribed_topics(subscription: bytes) -> frozenset[str]:
    """Return the topics in a consumer's subscription (ConsumerProtocolSubscription). Raises ValueError.

    Every version begins with the fields of version 0. Only these fields are read.
    """
    fields = _Fields(subscription)
    if fields.version < 0:
        raise ValueError(f"the subscription has version {fields.version}; versions begin at 0")
    fields.is_flexible = False
    topics = frozenset(fields.string() for _ in range(fields.count()))
    fields.nullable_data()  # the user data
    return topics


def assigned_partitions(assignment: bytes) -> dict[str, list[int]]:
    """Return the partitions in a consumer's assignment (ConsumerProtocolAssignment). Raises ValueError.

    Every version begins with the fields of version 0. Only these fields are read.
    """
    fields = _Fields(assignment)
    fields.is_flexible = False
    return {
        fields.string(): [fields.int32() for _ in range(fields.count())]
        for _ in range(fields.count())
    }


class _Fields:
    """A decoder of bytes that begin with a version, followed by fields.

    Raises ValueError if a field ends after the last byte.
    """

    __slots__ = ("_at", "_data", "is_flexible", "version")

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self.version = int.from_bytes(self._take(2), "big", signed=True)
        self.is_flexible = self.version >= _FLEXIBLE

    def known_version(self) -> int:
        """Return the version of a value. Raises ValueError if it is not in 0 to 4."""
        if not 0 <= self.version <= _FLEXIBLE:
            raise ValueError(
                f"the value has version {self.version}; Kafka 3.9 reads versions 0 to 4"
            )
        return self.version

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError(f"a field ends at byte {end}, the data at {len(self._data)}")
        found = self._data[self._at : end]
        self._at = end
        return found

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def string(self) -> str:
        found = self.nullable_string()
        if found is None:
            raise ValueError("a string that must not be null is null")
        return found

    def nullable_string(self) -> str | None:
        """Read a nullable string. Malformed UTF-8 becomes U+FFFD, as in Java."""
        size = self._size(2)
        return None if size < 0 else self._take(size).decode(errors="replace")

    def data(self) -> bytes:
        found = self.nullable_data()
        if found is None:
            raise ValueError("bytes that must not be null are null")
        return found

    def nullable_data(self) -> bytes | None:
        size = self._size(4)
        return None if size < 0 else self._take(size)

    def count(self) -> int:
        """Read the length of an array. Raises ValueError if it is negative or exceeds the number of bytes."""
        count = self._size(4)
        if not 0 <= count <= len(self._data):
            raise ValueError(f"an array declares {count} elements in {len(self._data)} bytes")
        return count

    def _size(self, width: int) -> int:
        """Read a length: an integer of `width` bytes, or in version 4 a varint with the length plus 1."""
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
        """Skip the tagged fields of a struct. Only values of version 4 have tagged fields."""
        for _ in range(self._uvarint() if self.is_flexible else 0):
            self._uvarint()
            self._take(self._uvarint())
