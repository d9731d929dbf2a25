"""Decoding of requests: every cut, and the rules of a multi."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.zookeeper import wire as wire

from minikafka.zookeeper.messages import codes, jute, requests
from minikafka.zookeeper.messages.jute import ANYONE, INT, LONG, NULL, JuteReader, Malformed
from minikafka.zookeeper.messages.requests import (
    AddWatch,
    CheckVersion,
    CreateNode,
    DeleteNode,
    GetData,
    MalformedMulti,
    MultiRead,
    MultiWrite,
    SetAcl,
    SetData,
    SetWatches,
    Sync,
)

CONNECT = INT.pack(0) + LONG.pack(7) + INT.pack(6_000) + LONG.pack(5) + jute.buffer(b"secret")
LISTS = [jute.strings([name]) for name in "abcde"]
WHOLE: list[tuple[Callable[[JuteReader], Any], bytes, Any]] = [
    (
        requests.decode_create(codes.CREATE2),
        wire.create("/a", None, 3),
        CreateNode(codes.CREATE2, "/a", None, ANYONE, 3),
    ),
    (
        requests.decode_create_ttl,
        wire.create("/a", b"x", 5) + LONG.pack(9),
        CreateNode(codes.CREATE_TTL, "/a", b"x", ANYONE, 5),
    ),
    (requests.decode_delete, wire.versioned("/a", 4), DeleteNode("/a", 4)),
    (requests.decode_set_data, wire.set_data(None, b"", -1), SetData(None, b"", -1)),
    (
        requests.decode_set_acl,
        jute.string("/a") + jute.ANYONE_BYTES + INT.pack(2),
        SetAcl("/a", ANYONE, 2),
    ),
    (requests.decode_read(GetData), wire.read("/a", watch=True), GetData("/a", True)),
    (requests.decode_path(Sync), jute.string("/a"), Sync("/a")),
    (requests.decode_watch(AddWatch), wire.versioned("/a", 1), AddWatch("/a", 1)),
    (
        requests.decode_set_watches,
        LONG.pack(3) + b"".join(LISTS[:3]),
        SetWatches(3, ["a"], ["b"], ["c"], [], []),
    ),
    (
        requests.decode_set_watches2,
        LONG.pack(3) + b"".join(LISTS),
        SetWatches(3, ["a"], ["b"], ["c"], ["d"], ["e"]),
    ),
    (
        requests.decode_auth,
        INT.pack(0) + jute.string("digest") + jute.buffer(b"a:b"),
        ("digest", b"a:b"),
    ),
    (
        requests.decode_multi_read,
        wire.multi((codes.GET_DATA, wire.read("/a")), (codes.GET_CHILDREN, wire.read(""))),
        MultiRead([(codes.GET_DATA, "/a"), (codes.GET_CHILDREN, "")]),
    ),
]


@pytest.mark.parametrize(("decode", "data", "expected"), WHOLE)
def test_request_is_decoded_whole_and_malformed_at_every_cut(decode, data, expected):
    assert decode(JuteReader(data)) == expected
    for end in range(len(data)):
        with pytest.raises(Malformed):
            decode(JuteReader(data[:end]))


@pytest.mark.parametrize("tail", [b"", b"\0", b"\1"])
def test_first_request_tells_whether_it_has_the_read_only_byte(tail):
    found = requests.decode_connect(CONNECT + tail)
    assert found == (7, 6_000, 5, b"secret", bool(tail))


def test_first_request_is_malformed_at_every_cut():
    for end in range(len(CONNECT)):
        with pytest.raises(Malformed):
            requests.decode_connect(CONNECT[:end])


def test_multi_is_malformed_at_every_cut():
    body = wire.multi(
        (codes.CREATE, wire.create("/a")),
        (codes.CHECK, wire.versioned("/a", 1)),
        (codes.DELETE, wire.versioned("/a", 1)),
    )
    created = CreateNode(codes.CREATE, "/a", b"", ANYONE, 0)
    assert requests.decode_multi(JuteReader(body)) == MultiWrite(
        [created, CheckVersion("/a", 1), DeleteNode("/a", 1)]
    )
    for end in range(len(body)):
        assert requests.decode_multi(JuteReader(body[:end])) == MalformedMulti()


def test_first_fault_of_a_multi_decides_about_its_zxid():
    null_acl = (codes.CREATE, wire.create("/a", b"", 0, NULL))
    unknown = (99, b"")
    with pytest.raises(Malformed):
        requests.decode_multi(JuteReader(wire.multi(null_acl, unknown)))
    assert requests.decode_multi(JuteReader(wire.multi(unknown, null_acl))) == MalformedMulti()


def test_reads_and_null_paths_make_a_multi_malformed_after_its_other_operations():
    null_acl = (codes.CREATE, wire.create("/a", b"", 0, NULL))
    null_path = (codes.CREATE, wire.create(None))
    delete, read = (codes.DELETE, wire.versioned("/a")), (codes.GET_DATA, wire.read("/a"))
    for operations in ((null_path,), (read,), (read, delete), (delete, read, null_acl)):
        assert requests.decode_multi(JuteReader(wire.multi(*operations))) == MalformedMulti()
    for operations in ((null_path, null_acl), (read, null_acl)):
        with pytest.raises(Malformed):
            requests.decode_multi(JuteReader(wire.multi(*operations)))


@pytest.mark.parametrize(
    ("kind", "flags", "found"),
    [
        (codes.CREATE, 3, codes.CREATE),
        (codes.CREATE2, 3, codes.CREATE2),
        (codes.CREATE, 4, codes.CREATE_CONTAINER),
        (codes.CREATE_CONTAINER, 0, codes.CREATE_CONTAINER),
        (codes.CREATE_TTL, 0, codes.CREATE),
        (codes.CREATE_TTL, 4, codes.CREATE_CONTAINER),
        (codes.CREATE_TTL, 5, codes.CREATE_TTL),
        (codes.CREATE_TTL, 6, codes.CREATE_TTL),
        (codes.CREATE, 5, None),
        (codes.CREATE2, 6, None),
        (codes.CREATE, 7, None),
        (codes.CREATE, -1, None),
    ],
)
def test_flags_of_a_create_in_a_multi_select_its_kind(kind, flags, found):
    ttl = LONG.pack(0) if kind == codes.CREATE_TTL else b""
    decoded = requests.decode_multi(
        JuteReader(wire.multi((kind, wire.create("/a", b"", flags) + ttl)))
    )
    if found is None:
        assert decoded == MalformedMulti()
    else:
        assert decoded == MultiWrite([CreateNode(found, "/a", b"", ANYONE, flags)])
