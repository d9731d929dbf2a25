"""What the client encodes, the server decodes, and the other way round. aiozk's encoder says the same bytes."""

from __future__ import annotations

import struct

import pytest
from aiozk import protocol
from aiozk.protocol.acl import ACL

from minikafka.base import ports
from minikafka.base.ports import Stat
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.messages import codes, replies, requests
from minikafka.zookeeper.messages.jute import ANYONE, INT, PART, JuteReader
from minikafka.zookeeper.server.core.tree import DataNode

OPCODE_BYTES = 4
OPERATIONS: list[tuple[ports.MultiOp, requests.Operation]] = [
    (ports.Create("/a", b"x"), requests.CreateNode(codes.CREATE2, "/a", b"x", ANYONE, 0)),
    (
        ports.Create("/ä", b"", ephemeral=True, sequential=True),
        requests.CreateNode(codes.CREATE2, "/ä", b"", ANYONE, codes.EPHEMERAL | codes.SEQUENTIAL),
    ),
    (ports.Set("/a", b"", 3), requests.SetData("/a", b"", 3)),
    (ports.Delete("/a", codes.ANY_VERSION), requests.DeleteNode("/a", -1)),
    (ports.Check("/a", 5), requests.CheckVersion("/a", 5)),
]


def node(data: bytes | None, children: tuple[str, ...] = ()) -> DataNode:
    found = DataNode(data, ANYONE, 5, 7, owner=0 if children else 9)
    found.mzxid, found.version, found.created = 6, 2, len(children)
    found.children = dict.fromkeys(children) or None
    return found


def test_server_decodes_the_multi_that_the_client_encodes() -> None:
    body = requests.encode_multi([encoded for encoded, _ in OPERATIONS])
    assert INT.unpack_from(body) == (codes.MULTI,)
    found = requests.decode_multi(JuteReader(body, OPCODE_BYTES))
    assert found == requests.MultiWrite([decoded for _, decoded in OPERATIONS])


@pytest.mark.parametrize(("operation", "expected"), OPERATIONS[:-1])
def test_server_decodes_the_write_that_the_client_encodes(
    operation: ports.MultiOp, expected: requests.Operation
) -> None:
    body = requests.encode_write(operation)
    decoders = {
        codes.CREATE2: requests.decode_create(codes.CREATE2),
        codes.SET_DATA: requests.decode_set_data,
        codes.DELETE: requests.decode_delete,
    }
    decode = decoders[INT.unpack_from(body)[0]]
    assert decode(JuteReader(body, OPCODE_BYTES)) == expected


def test_server_decodes_the_multi_read_that_the_client_encodes() -> None:
    body = requests.encode_multi_read(codes.GET_CHILDREN, ["/a", "/ä"])
    assert INT.unpack_from(body) == (codes.MULTI_READ,)
    found = requests.decode_multi_read(JuteReader(body, OPCODE_BYTES))
    assert found == requests.MultiRead([(codes.GET_CHILDREN, "/a"), (codes.GET_CHILDREN, "/ä")])


def test_client_decodes_the_replies_that_the_server_encodes() -> None:
    one = node(b"data", ("b", "a"))
    body = replies.encode_data(one)
    assert replies.decode_whole(replies.decode_data, body) == (b"data", one.stat())
    body = replies.encode_stat(one)
    assert replies.decode_whole(replies.decode_stat, body) == one.stat()
    body = replies.encode_children(one) + replies.encode_stat(one)
    assert replies.decode_whole(replies.decode_children, body) == (["a", "b"], one.stat())
    body = replies.encode_created(codes.CREATE2, "/a", one.stat())
    assert replies.decode_whole(replies.decode_created, body) == ("/a", one.stat())


def test_client_decodes_the_results_that_the_server_encodes() -> None:
    stat = node(b"x").stat()
    operations = [operation for _, operation in OPERATIONS]
    results = [requests.OpResult("/a", shown) for shown in (stat, stat, stat, None, None)]
    body = replies.encode_multi(operations, results)
    assert replies.decode_multi(body, 5) == [stat, stat, stat, None, None]
    refused = [0, codes.NO_NODE, codes.RUNTIME_INCONSISTENCY]
    assert replies.decode_multi(replies.encode_multi(operations, refused), 3) == refused
    reads = [(codes.GET_DATA, "/a"), (codes.GET_CHILDREN, "/a"), (codes.GET_DATA, "/b")]
    body = replies.encode_multi_read(reads, [node(None), node(b"", ("b", "a")), codes.NO_NODE])
    found = replies.decode_multi_read(body, 3)
    assert found == [(b"", node(None).stat()), ["a", "b"], codes.NO_NODE]


def test_writes_have_the_bytes_of_aiozk() -> None:
    everyone = [ACL.make("world", "anyone", True, True, True, True, True)]
    assert requests.encode_write(ports.Create("/ä", b"x", sequential=True)) == bytes(
        protocol.Create2Request(path="/ä", data=b"x", acl=everyone, flags=2).serialize()
    )
    assert requests.encode_write(ports.Set("/a", b"x", 7)) == bytes(
        protocol.SetDataRequest(path="/a", data=b"x", version=7).serialize()
    )
    assert requests.encode_write(ports.Delete("/a", -1)) == bytes(
        protocol.DeleteRequest(path="/a", version=-1).serialize()
    )


def test_server_decodes_the_first_request_and_the_client_its_reply() -> None:
    request = requests.decode_connect(calls.connect(7, b"p" * 16, 6_000, 99))
    assert request == (99, 6_000, 7, b"p" * 16, True)
    frame = replies.encode_connected(7, 6_000, b"p" * 16, has_read_only=True)
    assert calls.decode_connect(frame[INT.size :]) == (7, b"p" * 16, 6_000)
    frame = replies.encode_refused_connection(has_read_only=True)
    assert calls.decode_connect(frame[INT.size :]) == (0, b"", 0)


def test_client_decodes_the_event_that_the_server_encodes() -> None:
    frame = replies.encode_event(codes.CHILDREN_CHANGED, "/a", 5)
    header = calls.REPLY.unpack_from(frame, INT.size)
    assert header == (codes.EVENT_XID, 5, 0)
    body = frame[INT.size + calls.REPLY.size :]
    assert calls.decode_event(body) == (codes.CHILDREN_CHANGED, "/a")


def test_stat_has_the_fields_of_the_protocol() -> None:
    stat = Stat(*range(1, 12))
    assert replies.decode_stat(struct.pack("!qqqqiiiqiiq", *stat), 0) == (stat, 68)
    assert PART.size == 9
