"""The records of `__consumer_offsets`, byte for byte as Kafka 3.9 writes and reads them.

A key begins with a version. Versions 0 and 1 are keys of committed offsets (`OffsetCommitKey`), version 2 is the
key of a group (`GroupMetadataKey`). A value begins with a separate version. A null value is a tombstone. Source:
the schemas in Kafka's group coordinator, and `GroupMetadataManager`. Like Kafka, this module also reads values of
version 4, the first version with tagged fields. The readers raise ValueError for malformed bytes. Only committed
offsets are encoded by hand, because every commit encodes them: this takes a third of the time.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.model import NO_EPOCH, TopicPartition
from minikafka.kafka.messages.decoder import STRING_BYTES_MAX
from minikafka.kafka.messages.stored import read_fields, read_stored, stored, version_of

NO_TIMESTAMP: Final = -1
TIMESTAMP_MAX: Final = 2**63 - 1

_OFFSET_KEYS: Final = (0, 1)
_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_WITH_EXPIRY: Final = 1
_WRITTEN: Final = 3
"""Version of the values that Kafka 3.9 writes, except for offsets with an expire timestamp."""
_REBALANCE_TIMEOUT_SINCE: Final = 1
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
        (_INT16.pack(_OFFSET_KEY), _string(group), _string(tp.topic), _INT32.pack(tp.partition))
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


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > STRING_BYTES_MAX:
        raise ValueError(
            f"a string of {len(data)} bytes is too long: at most {STRING_BYTES_MAX} are allowed"
        )
    return _INT16.pack(len(data)) + data


def group_metadata_key(group: str) -> bytes:
    """Return the key of a group. Raises ValueError if the name is longer than 32,767 bytes."""
    return stored("GroupMetadataKey", _GROUP_KEY, group=group)


def group_metadata_value(value: GroupMetadataValue) -> bytes:
    """Return the value of a group in version 3. Raises ValueError if a string is longer than 32,767 bytes."""
    members = [
        {
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "rebalance_timeout": member.rebalance_timeout_ms,
            "session_timeout": member.session_timeout_ms,
            "subscription": member.subscription,
            "assignment": member.assignment,
        }
        for member in value.members
    ]
    return stored("GroupMetadataValue", _WRITTEN, **{**value._asdict(), "members": members})


# Reading.


def read_key(data: bytes) -> Key:
    """Decode a key of an offset, a group, or an unknown version. Raises ValueError if the key is too short."""
    version = version_of(data)
    if version in _OFFSET_KEYS:
        key = read_stored("OffsetCommitKey", data)
        return OffsetKey(key.group, TopicPartition(key.topic, key.partition))
    if version == _GROUP_KEY:
        return GroupKey(read_stored("GroupMetadataKey", data).group)
    return UnknownKey(version)


def read_offset(data: bytes) -> OffsetAndMetadata:
    """Decode the value of a committed offset, versions 0 to 4. Raises ValueError."""
    return OffsetAndMetadata(*read_stored("OffsetCommitValue", data))


def read_group(data: bytes) -> GroupMetadataValue:
    """Decode the value of a group, versions 0 to 4. Raises ValueError.

    Version 0 has no rebalance timeout. As in Kafka, the session timeout is used instead.
    """
    found = read_stored("GroupMetadataValue", data)
    members = tuple(MemberMetadata(*member) for member in found.members)
    if version_of(data) < _REBALANCE_TIMEOUT_SINCE:
        members = tuple(
            member._replace(rebalance_timeout_ms=member.session_timeout_ms) for member in members
        )
    return GroupMetadataValue(
        found.protocol_type,
        found.generation,
        found.protocol,
        found.leader,
        found.current_state_timestamp,
        members,
    )


def subscribed_topics(subscription: bytes) -> frozenset[str]:
    """Return the topics in a consumer's subscription (ConsumerProtocolSubscription). Raises ValueError.

    Every version begins with the fields of version 0. Only these fields are read.
    """
    version = version_of(subscription)
    if version < 0:
        raise ValueError(f"the subscription has version {version}; versions begin at 0")
    return frozenset(read_fields("ConsumerProtocolSubscription", 0, subscription).topics)


def assigned_partitions(assignment: bytes) -> dict[str, list[int]]:
    """Return the partitions in a consumer's assignment (ConsumerProtocolAssignment). Raises ValueError.

    Every version begins with the fields of version 0. Only these fields are read.
    """
    found = read_fields("ConsumerProtocolAssignment", 0, assignment)
    return {topic.topic: list(topic.partitions) for topic in found.assigned_partitions}
