"""The records of `__consumer_offsets`: round trips, old versions, and records that Kafka 3.9 wrote."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.model import TopicPartition
from minikafka.deciders.groups.records import (
    GroupKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetAndMetadata,
    OffsetKey,
    UnknownKey,
    group_metadata_key,
    group_metadata_value,
    offset_commit_key,
    offset_commit_value,
    read_group,
    read_key,
    read_offset,
    subscribed_topics,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=50)
LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
MEMBERS = st.builds(
    MemberMetadata,
    TEXT,
    st.none() | TEXT,
    TEXT,
    TEXT,
    INT,
    INT,
    subscription=st.binary(max_size=50),
    assignment=st.binary(max_size=50),
)
GROUPS = st.builds(
    GroupMetadataValue,
    TEXT,
    INT,
    st.none() | TEXT,
    st.none() | TEXT,
    LONG,
    st.lists(MEMBERS, max_size=4).map(tuple),
)
MEMBER = MemberMetadata("m-1", None, "client", "/127.0.0.1", 300_000, 10_000, b"sub", b"assigned")


def text(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else struct.pack(">h", len(value)) + value.encode()


def data(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


@given(TEXT, TEXT, INT)
def test_key_of_an_offset_survives_a_round_trip(group, topic, partition):
    tp = TopicPartition(topic, partition)

    assert read_key(offset_commit_key(group, tp)) == OffsetKey(group, tp)


@given(TEXT)
def test_key_of_a_group_survives_a_round_trip(group):
    assert read_key(group_metadata_key(group)) == GroupKey(group)


@given(LONG, INT, TEXT, LONG)
def test_value_of_an_offset_record_survives_a_round_trip(offset, epoch, metadata, timestamp):
    value = OffsetAndMetadata(offset, epoch, metadata, timestamp)

    assert offset_commit_value(value)[:2] == b"\x00\x03"
    assert read_offset(offset_commit_value(value)) == value


@given(LONG, INT, TEXT, LONG, st.integers(0, 2**63 - 1))
def test_offset_with_an_expire_timestamp_loses_its_leader_epoch(
    offset, epoch, metadata, timestamp, expires
):
    value = OffsetAndMetadata(offset, epoch, metadata, timestamp, expires)

    assert offset_commit_value(value)[:2] == b"\x00\x01"
    assert read_offset(offset_commit_value(value)) == value._replace(leader_epoch=-1)


@given(GROUPS)
def test_value_of_a_group_record_survives_a_round_trip(value):
    assert group_metadata_value(value)[:2] == b"\x00\x03"
    assert read_group(group_metadata_value(value)) == value


def test_offset_key_of_version_0_is_read():
    key = struct.pack(">h", 0) + text("g") + text("t") + struct.pack(">i", 7)

    assert read_key(key) == OffsetKey("g", TopicPartition("t", 7))


@pytest.mark.parametrize("version", [-1, 3, 4, 5, 12, 32_767])
def test_key_of_an_unsupported_version_is_read_as_an_unknown_key(version):
    assert read_key(struct.pack(">h", version) + b"anything") == UnknownKey(version)


@pytest.mark.parametrize(
    ("version", "fields", "expected"),
    [
        (0, [struct.pack(">q", 9), text("m"), struct.pack(">q", 5)], (9, -1, "m", 5, -1)),
        (1, [struct.pack(">q", 9), text("m"), struct.pack(">qq", 5, 6)], (9, -1, "m", 5, 6)),
        (2, [struct.pack(">q", 9), text("m"), struct.pack(">q", 5)], (9, -1, "m", 5, -1)),
        (3, [struct.pack(">qi", 9, 2), text("m"), struct.pack(">q", 5)], (9, 2, "m", 5, -1)),
        (4, [struct.pack(">qi", 9, 2), b"\x02m", struct.pack(">q", 5), b"\0"], (9, 2, "m", 5, -1)),
    ],
)
def test_offset_record_value_of_every_version_is_read(version, fields, expected):
    value = struct.pack(">h", version) + b"".join(fields)

    assert read_offset(value) == expected
    assert read_offset(value + b"more") == expected


def group_of_version(version: int) -> bytes:
    member = [text("m-1"), text(None) if version >= 3 else b"", text("client"), text("/127.0.0.1")]
    member.append(struct.pack(">i", 300_000) if version >= 1 else b"")
    member += [struct.pack(">i", 10_000), data(b"sub"), data(b"assigned")]
    state_timestamp = struct.pack(">q", 77) if version >= 2 else b""
    head = [text("consumer"), struct.pack(">i", 4), text("range"), text("m-1"), state_timestamp]
    return struct.pack(">h", version) + b"".join([*head, struct.pack(">i", 1), *member])


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_group_record_value_of_every_version_is_read(version):
    member = MEMBER._replace(rebalance_timeout_ms=300_000 if version >= 1 else 10_000)
    timestamp = 77 if version >= 2 else -1

    assert read_group(group_of_version(version)) == GroupMetadataValue(
        "consumer", 4, "range", "m-1", timestamp, (member,)
    )


def test_group_record_with_tagged_fields_is_read():
    def compact(value: str | None) -> bytes:
        return b"\0" if value is None else bytes((len(value) + 1,)) + value.encode()

    tags = b"\x01\x05\x02xx"
    members = [compact(each) for each in ("m-1", None, "client", "/127.0.0.1")] + [
        struct.pack(">ii", 300_000, 10_000),
        compact("sub"),
        compact("assigned"),
        tags,
    ]
    head = [compact("consumer"), struct.pack(">i", 4), compact("range"), compact("m-1")]
    body = [*head, struct.pack(">q", 77), b"\x03", *members, *members, tags]

    assert read_group(struct.pack(">h", 4) + b"".join(body)) == GroupMetadataValue(
        "consumer", 4, "range", "m-1", 77, (MEMBER, MEMBER)
    )


@pytest.mark.parametrize("read", [read_key, read_offset, read_group, subscribed_topics])
def test_truncated_key_or_value_is_refused(read):
    whole = {
        read_key: offset_commit_key("group", TopicPartition("topic", 1)),
        read_offset: offset_commit_value(OffsetAndMetadata(1, 2, "metadata", 3)),
        read_group: group_of_version(3),
        subscribed_topics: struct.pack(">hi", 0, 1) + text("topic") + data(b"user"),
    }[read]
    read(whole)

    for size in range(len(whole)):
        with pytest.raises(
            ValueError, match=r"cut off|exceeds the message|must begin with a version"
        ):
            read(whole[:size])


@pytest.mark.parametrize("read", [read_offset, read_group])
@pytest.mark.parametrize("version", [-1, 5])
def test_value_of_an_unknown_version_is_refused(read, version):
    with pytest.raises(ValueError, match=f"the value has version {version}"):
        read(struct.pack(">h", version) + bytes(100))


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (read_key, struct.pack(">h", 2) + text(None)),
        (read_group, struct.pack(">h", 3) + text("") + struct.pack(">i", 1) + text(None) * 2
         + struct.pack(">qi", 0, -1)),
        (read_group, struct.pack(">h", 3) + text("") + struct.pack(">i", 1) + text(None) * 2
         + struct.pack(">qi", 0, 2**31 - 1)),
        (read_offset, struct.pack(">hqi", 4, 1, 1) + b"\xff" * 9),
        (subscribed_topics, struct.pack(">hi", -1, 0) + data(b"")),
        (subscribed_topics, struct.pack(">hi", 0, -1) + data(b"")),
    ],
)  # fmt: skip
def test_malformed_value_is_refused(read: Any, value: bytes):
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own text
        read(value)


def test_string_that_kafka_cannot_store_is_refused():
    with pytest.raises(ValueError, match="at most 32767"):
        group_metadata_key("é" * 16_384)
    assert read_key(group_metadata_key("é" * 16_383)) == GroupKey("é" * 16_383)


@pytest.mark.parametrize("version", [0, 1, 3, 9])
def test_topics_of_every_version_of_a_subscription_are_read(version):
    newer = data(b"owned partitions") if version else b""
    subscription = struct.pack(">hi", version, 2) + text("a") + text("b") + struct.pack(">i", -1)

    assert subscribed_topics(subscription + newer) == {"a", "b"}


KAFKA_WROTE = [
    (
        "00020006737461746963",
        "00030008636f6e73756d657200000001000572616e676500286f6e652d62336532663033352d316531332d34"
        "6665612d393933372d303265383462393261363434000001a2046dedaa0000000100286f6e652d6233653266"
        "3033352d316531332d346665612d393933372d30326538346239326136343400036f6e6500026d65000a2f31"
        "32372e302e302e31000493e00000afc8000000170003000000010001740000000000000000ffffffff000000"
        "00001900000000000100017400000002000000000000000100000000",
    ),
    (
        "0001000673746174696300017400000001",
        "00030000000000000007000000000000000001a2046dee50",
    ),
    (
        "0001000673746174696300017400000000",
        "00030000000000000005ffffffff00066bc3a4736500000001a2046dee50",
    ),
    ("0002000167", "00030008636f6e73756d657200000002ffffffff000001a2046def3400000000"),
    (
        "0001000372617700017400000001",
        "0001000000000000000b0000000001a2046def53000001a2046ed9b3",
    ),
]
"""Records of a broker of Apache Kafka 3.9: a static member and its commits, an empty group, a commit that expires."""


def test_records_that_kafka_wrote_are_read():
    member_id = "one-b3e2f035-1e13-4fea-9937-02e84b92a644"
    subscription = bytes.fromhex("0003000000010001740000000000000000ffffffff0000")
    assignment = bytes.fromhex("00000000000100017400000002000000000000000100000000")
    member = MemberMetadata(
        member_id, "one", "me", "/127.0.0.1", 300_000, 45_000, subscription, assignment
    )
    stable = GroupMetadataValue("consumer", 1, "range", member_id, 1_795_370_642_858, (member,))
    empty = GroupMetadataValue("consumer", 2, None, None, 1_795_370_643_252)
    records = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in KAFKA_WROTE]
    group, offset_1, offset_0, other, expiring = records

    assert (read_key(group[0]), read_group(group[1])) == (GroupKey("static"), stable)
    assert (read_key(other[0]), read_group(other[1])) == (GroupKey("g"), empty)
    assert [(read_key(key), read_offset(value)) for key, value in (offset_1, offset_0)] == [
        (OffsetKey("static", TopicPartition("t", 1)), (7, 0, "", 1_795_370_643_024, -1)),
        (OffsetKey("static", TopicPartition("t", 0)), (5, -1, "käse\0", 1_795_370_643_024, -1)),
    ]
    assert read_key(expiring[0]) == OffsetKey("raw", TopicPartition("t", 1))
    assert read_offset(expiring[1]) == (11, -1, "", 1_795_370_643_283, 1_795_370_703_283)
    assert subscribed_topics(subscription) == {"t"}
    for key, value in (group, other):
        assert group_metadata_value(read_group(value)) == value, key
    for key, value in (offset_0, offset_1, expiring):
        assert offset_commit_value(read_offset(value)) == value, key
