"""Every request of the protocol, sent as bytes to a server in memory."""

import struct
from collections.abc import AsyncIterator

import pytest
from support.zookeeper import wire as wire
from support.zookeeper.wire import Reply, WireClient

from minikafka.simulation.transport import MemoryTransport
from minikafka.zookeeper.messages import codes, jute
from minikafka.zookeeper.messages.codes import (
    CHILDREN_CHANGED,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    DATA_CHANGED,
    NODE_CREATED,
    NODE_DELETED,
)
from minikafka.zookeeper.messages.jute import INT, LONG, NULL

PORT = 2181
EMPTY = INT.pack(0)


class Scene:
    def __init__(self) -> None:
        self.transport = MemoryTransport()
        self.failures: list[str] = []
        self.server = wire.server(self.transport, self.failures)

    @property
    def zxid(self) -> int:
        return self.server.state.zxid

    async def client(self) -> WireClient:
        return await wire.client(self.transport, PORT)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    found = Scene()
    await found.server.start("127.0.0.1", PORT)
    yield found
    await found.server.close()
    assert found.failures == []


@pytest.fixture
async def client(scene: Scene) -> WireClient:
    return await scene.client()


async def ok(client: WireClient, opcode: int, body: bytes = b"") -> Reply:
    reply = await client.call(opcode, body)
    assert reply.error == 0
    return reply


async def code(client: WireClient, opcode: int, body: bytes = b"") -> int:
    """Return the error code of a request, after checking that nothing follows it."""
    reply = await client.call(opcode, body)
    assert reply.body == b""
    return reply.error


def results(reply: Reply) -> list[tuple[int, int]]:
    """Return (type, error) of each result of a multi whose results have no body but an error code."""
    reader = reply.reader()
    found = []
    while True:
        kind, is_end, error = reader.int32(), reader.boolean(), reader.int32()
        if is_end:
            assert (kind, error) == (-1, -1)
            assert reader.position == len(reply.body)
            return found
        found.append((kind, error))
        if kind == codes.ERROR:
            assert reader.int32() == error


async def test_create_returns_the_path_alone(client):
    reply = await ok(client, CREATE, wire.create("/a", b"x", 2))
    assert reply.body == jute.string("/a0000000000")


async def test_create2_returns_the_path_and_the_stat(client):
    reply = await ok(client, CREATE2, wire.create("/a", b"x"))
    assert reply.body[: -jute.STAT.size] == jute.string("/a")
    assert reply.stat().data_length == 1
    assert reply.stat().czxid == reply.zxid


async def test_ephemeral_node_belongs_to_the_session_of_the_connection(scene, client):
    reply = await ok(client, CREATE2, wire.create("/a", b"", 1))
    assert [reply.stat().ephemeral_owner] == list(scene.server.state.sessions.open)


@pytest.mark.parametrize("flags", [0, 4])
async def test_create_container_makes_a_container_whatever_its_flags(scene, client, flags):
    reply = await ok(client, CREATE_CONTAINER, wire.create("/a", b"", flags))
    assert reply.body[: -jute.STAT.size] == jute.string("/a")
    assert "/a" in scene.server.state.tree.containers


async def test_create_with_the_flag_of_containers_makes_a_plain_node(scene, client):
    await ok(client, CREATE, wire.create("/a", b"", 4))
    assert "/a" not in scene.server.state.tree.containers


async def test_create_ttl_is_not_implemented(client):
    body = wire.create("/a", b"", 5) + LONG.pack(1_000)
    assert await code(client, CREATE_TTL, body) == codes.UNIMPLEMENTED


async def test_refused_write_uses_up_a_zxid_and_has_no_body(scene, client):
    before = scene.zxid
    reply = await client.call(codes.SET_DATA, wire.set_data("/missing"))
    assert reply == (reply.xid, before + 1, codes.NO_NODE, b"")


async def test_malformed_single_write_uses_up_no_zxid(scene, client):
    before = scene.zxid
    reply = await client.call(codes.SET_DATA, wire.set_data("/a")[:-1])
    assert reply == (reply.xid, before, codes.MARSHALLING_ERROR, b"")


async def test_get_data_distinguishes_null_from_empty_data(client):
    for path, data in (("/null", None), ("/empty", b"")):
        await ok(client, CREATE, wire.create(path, data))
        reply = await ok(client, codes.GET_DATA, wire.read(path))
        assert reply.reader().buffer() == data
        assert reply.stat().data_length == 0


async def test_set_data_returns_the_new_stat(client):
    await ok(client, CREATE, wire.create("/a"))
    reply = await ok(client, codes.SET_DATA, wire.set_data("/a", b"xy", 0))
    assert len(reply.body) == jute.STAT.size
    assert (reply.stat().version, reply.stat().data_length) == (1, 2)
    assert await code(client, codes.SET_DATA, wire.set_data("/a", b"", 0)) == codes.BAD_VERSION


async def test_exists_returns_the_stat_or_no_node(client):
    assert (await ok(client, codes.EXISTS, wire.read("/"))).stat().num_children == 1
    assert await code(client, codes.EXISTS, wire.read("/a")) == codes.NO_NODE


async def test_delete_has_an_empty_reply(client):
    await ok(client, CREATE, wire.create("/a"))
    assert (await ok(client, codes.DELETE, wire.versioned("/a"))).body == b""
    assert await code(client, codes.DELETE, wire.versioned("/a")) == codes.NO_NODE


async def test_get_children_returns_names_and_get_children2_also_the_stat(client):
    await ok(client, CREATE, wire.create("/a"))
    await ok(client, CREATE, wire.create("/a/b"))
    names = jute.strings(["b"])
    assert (await ok(client, codes.GET_CHILDREN, wire.read("/a"))).body == names
    reply = await ok(client, codes.GET_CHILDREN2, wire.read("/a"))
    assert reply.body[: -jute.STAT.size] == names
    assert reply.stat().num_children == 1


async def test_set_acl_changes_what_get_acl_returns(client):
    acl = ((1, "world", "anyone"),)
    await ok(client, CREATE, wire.create("/a"))
    body = jute.string("/a") + jute.acl(acl) + INT.pack(-1)
    assert (await ok(client, codes.SET_ACL, body)).stat().aversion == 1
    reply = await ok(client, codes.GET_ACL, jute.string("/a"))
    assert reply.reader().acl() == acl
    assert await code(client, codes.SET_DATA, wire.set_data("/a")) == codes.NO_AUTH


async def test_digest_that_a_connection_adds_gives_it_permission(scene, client):
    auth = EMPTY + jute.string("digest") + jute.buffer(b"user:secret")
    assert await client.call(codes.AUTH, auth, -4) == (-4, 0, 0, b"")
    acl = INT.pack(1) + INT.pack(31) + jute.string("auth") + jute.string("")
    await ok(client, CREATE, wire.create("/a", b"", 0, acl))
    await ok(client, codes.GET_DATA, wire.read("/a"))
    assert await code(await scene.client(), codes.GET_DATA, wire.read("/a")) == codes.NO_AUTH


async def test_who_am_i_returns_the_address_and_the_user_without_the_hash(client):
    auth = EMPTY + jute.string("digest") + jute.buffer(b"user:secret")
    await client.call(codes.AUTH, auth, -4)
    reader = (await ok(client, codes.WHO_AM_I)).reader()
    found = reader.items(lambda: (reader.string(), reader.string()))
    assert found == [("ip", "127.0.0.1"), ("digest", "user")]


async def test_unknown_scheme_of_authentication_is_refused_and_ends_the_connection(client):
    auth = EMPTY + jute.string("kerberos") + jute.buffer(b"")
    assert await client.call(codes.AUTH, auth, -4) == (-4, 0, codes.AUTH_FAILED, b"")
    assert await client.end() == b""


async def test_ping_returns_the_last_zxid(scene, client):
    reply = await client.call(codes.PING, xid=wire.PING_XID)
    assert reply == (wire.PING_XID, scene.zxid, 0, b"")


async def test_sync_returns_its_path(client):
    assert (await ok(client, codes.SYNC, jute.string("/any"))).body == jute.string("/any")
    assert (await ok(client, codes.SYNC, NULL)).body == NULL


async def test_get_ephemerals_returns_own_nodes_below_a_prefix(scene, client):
    for path in ("/a1", "/a2", "/b1"):
        await ok(client, CREATE, wire.create(path, b"", 1))
    await ok(await scene.client(), CREATE, wire.create("/a3", b"", 1))
    for prefix, paths in (("/a", ["/a1", "/a2"]), ("/", ["/a1", "/a2", "/b1"])):
        reply = await ok(client, codes.GET_EPHEMERALS, jute.string(prefix))
        assert reply.body == jute.strings(paths)


async def test_get_all_children_number_counts_all_nodes_below(client):
    for path in ("/a", "/a/b", "/a/b/c", "/ab"):
        await ok(client, CREATE, wire.create(path))
    reply = await ok(client, codes.GET_ALL_CHILDREN_NUMBER, jute.string("/a"))
    assert reply.body == INT.pack(2)
    assert await code(client, codes.GET_ALL_CHILDREN_NUMBER, jute.string("/no")) == codes.NO_NODE


async def test_reconfig_is_refused_and_uses_up_a_zxid(scene, client):
    before = scene.zxid
    body = NULL * 3 + LONG.pack(-1)
    assert await code(client, codes.RECONFIG, body) == codes.RECONFIG_DISABLED
    assert scene.zxid == before + 1


@pytest.mark.parametrize("opcode", [13, 20, -10, 0, 10, 99, 108, -1, 2**31 - 1, -(2**31)])
async def test_request_that_is_not_implemented_ends_the_connection(client, opcode):
    reply = await client.call(opcode, bytes(20))
    assert reply == (reply.xid, -1, codes.UNIMPLEMENTED, b"")
    assert await client.end() == b""


async def test_end_of_a_session_is_answered_and_ends_the_connection(scene, client):
    await ok(client, CREATE, wire.create("/a", b"", 1))
    before = scene.zxid
    client.request(codes.CLOSE_SESSION, xid=7)
    client.request(codes.PING)
    assert await client.reply() == (7, before + 1, 0, b"")
    assert await client.end() == b""
    assert "/a" not in scene.server.state.tree.nodes


# ---- multi


async def test_multi_returns_a_result_for_each_operation(scene, client):
    before = scene.zxid
    reply = await ok(
        client,
        codes.MULTI,
        wire.multi(
            (CREATE, wire.create("/a")),
            (CREATE2, wire.create("/a/b")),
            (codes.SET_DATA, wire.set_data("/a", b"x", 0)),
            (codes.CHECK, wire.versioned("/a", 1)),
            (codes.DELETE, wire.versioned("/a/b", 0)),
        ),
    )
    assert reply.zxid == scene.zxid == before + 1
    reader = reply.reader()
    kinds = []
    for has_path, has_stat in ((1, 0), (1, 1), (0, 1), (0, 0), (0, 0)):
        kinds.append(reader.int32())
        assert (reader.boolean(), reader.int32()) == (False, 0)
        if has_path:
            reader.string()
        reader.position += jute.STAT.size * has_stat
    assert kinds == [CREATE, CREATE2, codes.SET_DATA, codes.CHECK, codes.DELETE]
    assert reply.body[reader.position :] == struct.pack("!i?i", -1, True, -1)


async def test_refused_multi_succeeds_with_an_error_for_each_operation(scene, client):
    reply = await ok(
        client,
        codes.MULTI,
        wire.multi(
            (CREATE, wire.create("/a")),
            (codes.DELETE, wire.versioned("/missing")),
            (CREATE, wire.create("/b")),
        ),
    )
    errors = (0, codes.NO_NODE, codes.RUNTIME_INCONSISTENCY)
    assert results(reply) == [(codes.ERROR, error) for error in errors]
    assert "/a" not in scene.server.state.tree.nodes


async def test_empty_multi_succeeds_and_uses_up_a_zxid(scene, client):
    before = scene.zxid
    assert results(await ok(client, codes.MULTI, wire.multi())) == []
    assert scene.zxid == before + 1


@pytest.mark.parametrize(
    "operation",
    [
        (codes.GET_DATA, wire.read("/")),
        (codes.SET_ACL, jute.string("/") + jute.ANYONE_BYTES + INT.pack(-1)),
        (CREATE, wire.create("/a", b"", 5)),
        (CREATE2, wire.create("/a", b"", 7)),
        (CREATE, wire.create("/a")[:-2]),
        (99, b""),
    ],
    ids=["read", "setACL", "TTL flag", "unknown flag", "cut", "unknown operation"],
)
async def test_malformed_multi_is_refused_and_uses_up_a_zxid(scene, client, operation):
    before = scene.zxid
    body = wire.multi((CREATE, wire.create("/b")), operation)
    if operation[1] == wire.create("/a")[:-2]:
        body = body[: -len(wire.multi())]
    assert await code(client, codes.MULTI, body) == codes.MARSHALLING_ERROR
    assert scene.zxid == before + 1
    assert "/b" not in scene.server.state.tree.nodes


async def test_multi_with_a_null_access_control_list_uses_up_no_zxid(scene, client):
    before = scene.zxid
    body = wire.multi((CREATE, wire.create("/a", b"", 0, NULL)))
    assert await code(client, codes.MULTI, body) == codes.MARSHALLING_ERROR
    assert scene.zxid == before


async def test_flags_of_a_multi_select_the_kind_of_create(scene, client):
    await ok(
        client,
        codes.MULTI,
        wire.multi(
            (CREATE, wire.create("/container", b"", codes.CONTAINER_FLAG)),
            (CREATE_TTL, wire.create("/plain", b"") + LONG.pack(0)),
        ),
    )
    assert list(scene.server.state.tree.containers) == ["/container"]
    assert "/plain" in scene.server.state.tree.nodes


async def test_multi_read_returns_data_children_and_errors(client):
    await ok(client, CREATE, wire.create("/a", b"x"))
    body = wire.multi(
        (codes.GET_DATA, wire.read("/a")),
        (codes.GET_DATA, wire.read("/missing")),
        (codes.GET_CHILDREN, wire.read("/a")),
    )
    reader = (await ok(client, codes.MULTI_READ, body)).reader()
    assert (reader.int32(), reader.boolean(), reader.int32()) == (codes.GET_DATA, False, 0)
    assert reader.buffer() == b"x"
    reader.position += jute.STAT.size
    failed = (reader.int32(), reader.boolean(), reader.int32(), reader.int32())
    assert failed == (codes.ERROR, False, codes.NO_NODE, codes.NO_NODE)
    assert (reader.int32(), reader.boolean(), reader.int32()) == (codes.GET_CHILDREN, False, 0)
    assert reader.int32() == 0


async def test_multi_read_of_a_write_is_malformed(client):
    body = wire.multi((codes.DELETE, wire.versioned("/a")))
    assert await code(client, codes.MULTI_READ, body) == codes.MARSHALLING_ERROR


# ---- watches


async def test_watches_of_reads_are_told_once_about_changes(scene, client):
    other = await scene.client()
    await ok(client, CREATE, wire.create("/a"))
    await ok(client, codes.GET_CHILDREN, wire.read("/a", watch=True))
    await client.call(codes.EXISTS, wire.read("/a/b", watch=True))
    for _ in range(2):
        await ok(other, CREATE, wire.create("/a/b"))
        await ok(other, codes.DELETE, wire.versioned("/a/b"))
    client.request(codes.PING, xid=wire.PING_XID)
    frames = [await client.reply() for _ in range(3)]
    assert [frame.xid for frame in frames] == [-1, -1, wire.PING_XID]
    assert [frame.event() for frame in frames[:2]] == [
        (NODE_CREATED, "/a/b"),
        (CHILDREN_CHANGED, "/a"),
    ]


async def test_persistent_and_recursive_watches_stay(scene, client):
    other = await scene.client()
    await ok(other, CREATE, wire.create("/a"))
    await ok(other, CREATE, wire.create("/a/b"))
    assert (await ok(client, codes.ADD_WATCH, wire.versioned("/a", 0))).body == INT.pack(0)
    await ok(client, codes.ADD_WATCH, wire.versioned("/a", 1))
    for path in ("/a", "/a/b"):
        await ok(other, codes.SET_DATA, wire.set_data(path))
        assert (await client.reply()).event() == (DATA_CHANGED, path)
    assert await code(client, codes.ADD_WATCH, wire.versioned("/a", 2)) == -5


async def test_remove_watches_removes_a_watch_that_check_watches_finds(client):
    body = wire.versioned("/", 2)
    await ok(client, codes.EXISTS, wire.read("/", watch=True))
    await ok(client, codes.CHECK_WATCHES, body)
    await ok(client, codes.REMOVE_WATCHES, body)
    assert await code(client, codes.CHECK_WATCHES, body) == codes.NO_WATCHER
    assert await code(client, codes.REMOVE_WATCHES, body) == codes.NO_WATCHER


@pytest.mark.parametrize("opcode", [codes.SET_WATCHES, codes.SET_WATCHES2])
async def test_set_watches_sends_missed_events_before_its_reply(client, opcode):
    await ok(client, CREATE, wire.create("/a"))
    lists = [["/a", "/gone"], ["/"], ["/a"], ["/p"], ["/r"]]
    count = 5 if opcode == codes.SET_WATCHES2 else 3
    body = LONG.pack(0) + b"".join(map(jute.strings, lists[:count]))
    client.request(opcode, body, -8)
    events = [await client.reply() for _ in range(4)]
    assert [frame.event() for frame in events] == [
        (DATA_CHANGED, "/a"),
        (NODE_DELETED, "/gone"),
        (NODE_CREATED, "/"),
        (CHILDREN_CHANGED, "/a"),
    ]
    assert {(frame.xid, frame.zxid) for frame in events} == {(-1, -1)}
    assert (await client.reply()).xid == -8
    expected = 0 if opcode == codes.SET_WATCHES2 else codes.NO_WATCHER
    assert await code(client, codes.CHECK_WATCHES, wire.versioned("/r", 5)) == expected


# ---- null fields and rubbish


@pytest.mark.parametrize("path", [None, "", "\0", "/a\0b", "a", "//", "\U0001f600", "/\ud7ff"])
async def test_no_path_breaks_the_server(client, path):
    for opcode, body in (
        *((opcode, wire.create(path)) for opcode in (CREATE, CREATE2, CREATE_CONTAINER)),
        (CREATE_TTL, wire.create(path) + LONG.pack(0)),
        (codes.DELETE, wire.versioned(path)),
        (codes.SET_DATA, wire.set_data(path, None)),
        (codes.SET_ACL, jute.string(path) + NULL + INT.pack(-1)),
        (codes.GET_ACL, jute.string(path)),
        *(
            (opcode, wire.read(path, watch=True))
            for opcode in (codes.EXISTS, codes.GET_DATA, codes.GET_CHILDREN, 12)
        ),
        *((opcode, wire.versioned(path, 1)) for opcode in (17, 18, 106)),
        *((opcode, jute.string(path)) for opcode in (9, 103, 104)),
        (codes.MULTI, wire.multi((CREATE, wire.create(path)))),
        (codes.MULTI, wire.multi((codes.CHECK, wire.versioned(path)))),
        (codes.MULTI_READ, wire.multi((codes.GET_DATA, wire.read(path)))),
        (codes.SET_WATCHES, LONG.pack(0) + INT.pack(1) + jute.string(path) + EMPTY * 2),
        (codes.AUTH, EMPTY + jute.string("digest") + NULL),
    ):
        client.request(opcode, body)
    client.request(codes.PING, xid=wire.PING_XID)
    while (await client.reply()).xid != wire.PING_XID:
        pass


async def test_request_that_fails_in_its_decoder_is_a_marshalling_error(client, monkeypatch):
    def broken(_: object) -> None:
        raise RuntimeError("a bug")

    from minikafka.zookeeper.server import handlers

    handler = handlers.HANDLERS[codes.EXISTS]._replace(decode=broken)
    monkeypatch.setitem(handlers.HANDLERS, codes.EXISTS, handler)
    assert await code(client, codes.EXISTS, wire.read("/")) == codes.MARSHALLING_ERROR
    await ok(client, codes.GET_DATA, wire.read("/"))


async def test_request_of_a_session_that_is_over_is_refused(scene, client):
    scene.server.state.close_session(next(iter(scene.server.state.sessions.open)), 0, 0)
    for opcode, body in (
        (codes.PING, b""),
        (codes.GET_DATA, wire.read("/")),
        (CREATE, wire.create("/a")),
        (codes.MULTI, wire.multi()),
        (codes.MULTI, b""),
        (codes.SYNC, jute.string("/")),
    ):
        assert await code(client, opcode, body) == codes.SESSION_EXPIRED
