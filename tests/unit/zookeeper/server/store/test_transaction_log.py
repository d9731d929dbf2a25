"""The bytes of transactions."""

from __future__ import annotations

from typing import Final
from zlib import adler32

import pytest

from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.jute import ANYONE, INT, LONG, Malformed
from minikafka.zookeeper.server.core.changes import (
    AclSet,
    Change,
    Checked,
    Created,
    DataSet,
    Deleted,
    Failed,
    LoggedTransaction,
    Multi,
    SessionClosed,
    SessionOpened,
)
from minikafka.zookeeper.server.store.transaction_log import (
    HEADER,
    PREFIX,
    decode,
    durable_before,
    encode,
    zxid_of,
)

ACL: Final = ((31, "digest", "u:hash"), (1, "ip", "10.0.0.1"))
CREATED: Final = Created(codes.CREATE, "/ü", b"data", ANYONE, True, 4)
CHANGES: Final[tuple[Change, ...]] = (
    CREATED,
    Created(codes.CREATE2, "/a", None, ACL, False, -1),
    Created(codes.CREATE_CONTAINER, "/a", b"", ANYONE, False, 1),
    Deleted("/a"),
    Deleted("/a", is_container=True),
    DataSet("/a", None, 3),
    DataSet("/a", b"data", -(2**31)),
    AclSet("/a", ACL, 1),
    Failed(codes.NO_NODE),
    Multi(()),
    Multi((CREATED, Checked("/a", 1), Deleted("/a"), DataSet("/a", b"", 1), Failed(-2))),
    SessionOpened(6000),
    SessionClosed(()),
    SessionClosed(("/a", "/b")),
)
DIGEST: Final = bytes.fromhex("000000020000000123456789")
"""A version and a digest of the tree: Apache ZooKeeper writes them behind each transaction."""


def transaction(change: Change) -> LoggedTransaction:
    return LoggedTransaction(-(2**60), 5, 0x1_0000_0002, 1_700_000_000_000, change)


def content(record: bytes) -> bytes:
    """Return a record without its prefix and its last byte."""
    return record[PREFIX.size : -1]


@pytest.mark.parametrize("change", CHANGES)
def test_transaction_is_read_back(change: Change) -> None:
    record = encode(transaction(change))
    checksum, size = PREFIX.unpack_from(record)
    assert record[-1:] == b"B"
    assert size == len(content(record))
    assert checksum == adler32(content(record))
    assert decode(content(record)) == transaction(change)
    assert zxid_of(content(record)) == 0x1_0000_0002


@pytest.mark.parametrize("change", CHANGES)
def test_digest_behind_a_transaction_is_ignored(change: Change) -> None:
    assert decode(content(encode(transaction(change))) + DIGEST) == transaction(change)


@pytest.mark.parametrize("change", CHANGES)
def test_mark_says_how_much_was_durable_before_the_record(change: Change) -> None:
    record = content(encode(transaction(change), 1 << 40))
    assert decode(record) == transaction(change)
    assert durable_before(record) == 1 << 40
    plain = content(encode(transaction(change)))
    assert durable_before(plain) == durable_before(plain + DIGEST) == 0


def test_data_that_end_like_a_mark_are_none() -> None:
    mark = content(encode(transaction(Failed(-2)), 7))[-12:]
    assert durable_before(content(encode(transaction(DataSet("/a", mark[:8], 7))))) == 0


@pytest.mark.parametrize("change", CHANGES)
def test_cut_transaction_is_malformed(change: Change) -> None:
    record = content(encode(transaction(change)))
    for size in range(len(record)):
        try:
            found = decode(record[:size]).change
        except Malformed:
            continue
        # Old versions of ZooKeeper did not log all fields.
        assert isinstance(found, Created | SessionClosed)


def test_record_has_its_fields_in_the_order_of_apache_zookeeper() -> None:
    header = "0000000000000007 00000001 0000000000000009 0000000000000011 00000005"
    expected = bytes.fromhex(f"{header} 00000002 2f61 00000002 7879 00000001")
    prefix = LONG.pack(adler32(expected)) + INT.pack(48)
    assert (
        encode(LoggedTransaction(7, 1, 9, 17, DataSet("/a", b"xy", 1))) == prefix + expected + b"B"
    )


def test_time_to_live_is_read_as_a_node_of_that_kind() -> None:
    header = HEADER.pack(1, 2, 3, 4, codes.CREATE_TTL)
    body = content(
        encode(transaction(Created(codes.CREATE_CONTAINER, "/t", b"", ANYONE, False, 6)))
    )
    record = header + body[HEADER.size :] + LONG.pack(5000)
    assert decode(record).change == Created(codes.CREATE_TTL, "/t", b"", ANYONE, False, 6)


def test_reconfiguration_sets_the_data_of_its_node() -> None:
    body = content(encode(transaction(DataSet("/zookeeper/config", b"server.1", 2))))[HEADER.size :]
    assert decode(HEADER.pack(1, 2, 3, 4, 16) + body).change == DataSet(
        "/zookeeper/config", b"server.1", 2
    )


def test_session_with_very_many_nodes_is_closed_by_a_short_record() -> None:
    paths = tuple(f"/node-{i:0100d}" for i in range(10_000))
    record = encode(transaction(SessionClosed(paths)))
    assert decode(content(record)).change == SessionClosed(())


@pytest.mark.parametrize("kind", [0, 3, 99, -2])
def test_unknown_kind_is_malformed(kind: int) -> None:
    with pytest.raises(Malformed, match=f"unknown kind {kind}"):
        decode(HEADER.pack(1, 2, 3, 4, kind))


def test_multi_cannot_contain_a_session() -> None:
    record = bytearray(content(encode(transaction(Multi((Failed(-101),))))))
    at = HEADER.size + 4
    record[at : at + 4] = (-10).to_bytes(4, "big", signed=True)
    with pytest.raises(Malformed, match="a multi with a part of the kind -10"):
        decode(bytes(record))
