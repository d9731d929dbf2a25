"""ACLs: their filters, the JSON of their nodes, and hosts in Java's form."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternFilter,
    PatternType,
    ResourcePattern,
    acl_host,
    decode_change,
    decode_entries,
    encode_change,
    encode_entries,
    parse_principal,
)

TOPIC, ANY_TYPE = AclResourceType.TOPIC, AclResourceType.ANY
LITERAL, PREFIXED, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH
ALICE = AclEntry("User:alice", "*", AclOperation.READ, AclPermission.ALLOW)

KAFKAS = (
    b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"},'
    b'{"principal":"User:bob","permissionType":"Deny","operation":"AlterConfigs","host":"10.0.0.1"}]}'
)
"""What a broker of Kafka 3.9 has written."""


def test_node_that_kafka_wrote_is_decoded():
    bob = AclEntry("User:bob", "10.0.0.1", AclOperation.ALTER_CONFIGS, AclPermission.DENY)
    assert decode_entries(KAFKAS) == {ALICE, bob}


def test_words_of_kafka_are_read_in_upper_case_too():
    shouted = KAFKAS.replace(b"AlterConfigs", b"ALTERCONFIGS").replace(b"Deny", b"DENY")
    assert decode_entries(shouted) == decode_entries(KAFKAS)


entries = st.builds(
    AclEntry,
    st.text(min_size=1).map("User:{}".format).filter(lambda text: text.isprintable()),
    st.sampled_from(("*", "10.0.0.1")),
    st.sampled_from([one for one in AclOperation if one > AclOperation.ANY]),
    st.sampled_from((AclPermission.ALLOW, AclPermission.DENY)),
)


@given(st.frozensets(entries, max_size=4))
def test_encoded_entries_are_decoded_to_the_same(wanted: frozenset[AclEntry]) -> None:
    data = encode_entries(wanted)
    assert decode_entries(data) == wanted
    assert json.loads(data)["version"] == 1


def test_empty_node_has_no_acls():
    assert decode_entries(b"") == frozenset()


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[{}]}',
        KAFKAS.replace(b"User:alice", b"alice"),
    ],
)
def test_malformed_node_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_entries(data)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (LITERAL, b"TRANSACTIONAL_ID:a:b"),
        (
            PREFIXED,
            b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"a:b","patternType":"PREFIXED"}',
        ),
    ],
)
def test_notification_has_kafkas_form(kind: PatternType, data: bytes) -> None:
    pattern = ResourcePattern(AclResourceType.TRANSACTIONAL_ID, "a:b", kind)
    assert encode_change(pattern) == data
    assert decode_change(kind, data) == pattern


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (LITERAL, b"TOPIC"),
        (LITERAL, b"NOTHING:a"),
        (LITERAL, b"ANY:a"),
        (PREFIXED, b"TOPIC:a"),
        (PREFIXED, b'{"version":2,"resourceType":"TOPIC","name":"a","patternType":"PREFIXED"}'),
        (PREFIXED, b'{"version":1,"resourceType":"TOPIC","name":"a","patternType":"LITERAL"}'),
    ],
)
def test_malformed_notification_is_refused(kind: PatternType, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_change(kind, data)


NAMED = [
    ResourcePattern(TOPIC, "orders", LITERAL),
    ResourcePattern(TOPIC, "ord", PREFIXED),
    ResourcePattern(TOPIC, "*", LITERAL),
    ResourcePattern(AclResourceType.GROUP, "orders", LITERAL),
    ResourcePattern(TOPIC, "orders", PREFIXED),
]


@pytest.mark.parametrize(
    ("kind", "name", "pattern", "selected"),
    [
        (TOPIC, "orders", LITERAL, [0]),
        (TOPIC, "orders", PREFIXED, [4]),
        (TOPIC, "orders", PatternType.ANY, [0, 4]),
        (TOPIC, "orders", MATCH, [0, 1, 2, 4]),
        (TOPIC, "ordeal", MATCH, [1, 2]),
        (TOPIC, None, LITERAL, [0, 2]),
        (ANY_TYPE, "orders", LITERAL, [0, 3]),
        (ANY_TYPE, None, PatternType.ANY, [0, 1, 2, 3, 4]),
        (AclResourceType.UNKNOWN, None, PatternType.ANY, []),
        (TOPIC, None, PatternType.UNKNOWN, []),
    ],
)
def test_pattern_filter_selects_as_kafkas(
    kind: AclResourceType, name: str | None, pattern: PatternType, selected: list[int]
) -> None:
    made = PatternFilter(kind, name, pattern)
    assert [number for number, one in enumerate(NAMED) if made.matches(one)] == selected


@pytest.mark.parametrize(
    ("kind", "name", "pattern", "count"),
    [
        (TOPIC, "a", LITERAL, 1),
        (TOPIC, "a", PatternType.ANY, 2),
        (TOPIC, "a", MATCH, 0),
        (TOPIC, None, LITERAL, 0),
        (ANY_TYPE, "a", LITERAL, 0),
    ],
)
def test_candidates_of_a_filter_are_the_patterns_that_it_names(
    kind: AclResourceType, name: str | None, pattern: PatternType, count: int
) -> None:
    made = PatternFilter(kind, name, pattern)
    assert len(made.candidates()) == count
    assert all(map(made.matches, made.candidates()))


def test_filter_of_entries_compares_each_field_that_it_has():
    every = AclFilter(
        PatternFilter(ANY_TYPE, None, PatternType.ANY),
        None,
        None,
        AclOperation.ANY,
        AclPermission.ANY,
    )
    assert every.matches_entry(ALICE)
    for field, other in [
        ("principal", "User:bob"),
        ("host", "10.0.0.1"),
        ("operation", AclOperation.ALL),
        ("permission", AclPermission.DENY),
    ]:
        assert not every._replace(**{field: other}).matches_entry(ALICE)
        assert every._replace(**{field: getattr(ALICE, field)}).matches_entry(ALICE)


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::a00", "2001:db8:0:0:0:0:0:a00"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("?", "?"),
    ],
)
def test_host_has_the_form_of_java(address: str, host: str) -> None:
    assert acl_host(address) == host


@pytest.mark.parametrize("text", ["", "alice"])
def test_principal_without_a_colon_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="type:name"):
        parse_principal(text)


def test_principal_may_contain_colons_and_commas():
    assert parse_principal("User:CN=a:b,O=c") == "User:CN=a:b,O=c"
