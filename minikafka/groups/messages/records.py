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

from minikafka.base.fields import NEVER_FLEXIBLE, Fields, encode_string
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


def confirmation_record(group: str) -> tuple[bytes, None]:
    """Return a record without meaning, whose append shows that no other broker has become the group's coordinator.

    It is the tombstone of the offset of a partition that cannot exist.
    """
    return offset_commit_key(group, TopicPartition("", -1)), None


def offset_commit_key(group: str, tp: TopicPartition) -> bytes:
    """Return the key of a committed offset. Raises ValueError if a name is longer than 32,767 bytes."""
    return b"".join(
        (
            _INT16.pack(_OFFSET_KEY),
            encode_string(group),
            encode_string(tp.topic),
            _INT32.pack(tp.partition),
        )
    )


def offset_commit_value(value: OffsetAndMetadata) -> bytes:
    """Return the value of a committed offset. Raises ValueError if the metadata is longer than 32,767 bytes.

    The value has version 1 if the offset has an expire timestamp, else version 3.
    """
    metadata = encode_string(value.metadata)
    if value.expire_timestamp != NO_TIMESTAMP:
        head = _OLD_OFFSET_HEAD.pack(_WITH_EXPIRY, value.offset)
        return head + metadata + _TWO_INT64.pack(value.commit_timestamp, value.expire_timestamp)
    head = _OFFSET_HEAD.pack(_WRITTEN, value.offset, value.leader_epoch)
    return head + metadata + _INT64.pack(value.commit_timestamp)


def group_metadata_key(group: str) -> bytes:
    """Return the key of a group. Raises ValueError if the name is longer than 32,767 bytes."""
    return _INT16.pack(_GROUP_KEY) + encode_string(group)


def group_metadata_value(value: GroupMetadataValue) -> bytes:
    """Return the value of a group in version 3. Raises ValueError if a string is longer than 32,767 bytes."""
    parts = [
        _INT16.pack(_WRITTEN),
        encode_string(value.protocol_type),
        _INT32.pack(value.generation),
        encode_string(value.protocol),
        encode_string(value.leader),
        _INT64.pack(value.current_state_timestamp),
        _INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            encode_string(member.member_id),
            encode_string(member.group_instance_id),
            encode_string(member.client_id),
            encode_string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _INT32.pack(len(member.subscription)),
            member.subscription,
            _INT32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


# Reading.


def read_key(data: bytes) -> Key:
    """Decode a key of an offset, a group, or an unknown version. Raises ValueError if the key is too short."""
    fields = Fields(data, _FLEXIBLE)
    version = fields.version
    if version in _OFFSET_KEYS:
        return OffsetKey(fields.string(), TopicPartition(fields.string(), fields.int32()))
    if version == _GROUP_KEY:
        return GroupKey(fields.string())
    return UnknownKey(version)


def read_offset(data: bytes) -> OffsetAndMetadata:
    """Decode the value of a committed offset, versions 0 to 4. Raises ValueError."""
    fields = Fields(data, _FLEXIBLE)
    version = fields.known_version(_FLEXIBLE)
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
    fields = Fields(data, _FLEXIBLE)
    version = fields.known_version(_FLEXIBLE)
    return GroupMetadataValue(
        protocol_type=fields.string(),
        generation=fields.int32(),
        protocol=fields.nullable_string(),
        leader=fields.nullable_string(),
        current_state_timestamp=fields.int64() if version >= 2 else NO_TIMESTAMP,
        members=tuple(_member(fields, version) for _ in range(fields.count())),
    )


def _member(fields: Fields, version: int) -> MemberMetadata:
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
    fields = Fields(subscription, NEVER_FLEXIBLE)
    if fields.version < 0:
        raise ValueError(f"the subscription has version {fields.version}; versions begin at 0")
    topics = frozenset(fields.string() for _ in range(fields.count()))
    fields.nullable_data()  # the user data
    return topics


def assigned_partitions(assignment: bytes) -> dict[str, list[int]]:
    """Return the partitions in a consumer's assignment (ConsumerProtocolAssignment). Raises ValueError.

    Every version begins with the fields of version 0. Only these fields are read.
    """
    fields = Fields(assignment, NEVER_FLEXIBLE)
    return {
        fields.string(): [fields.int32() for _ in range(fields.count())]
        for _ in range(fields.count())
    }
