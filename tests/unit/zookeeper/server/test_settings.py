"""What one request may cost: memory, the answer, and the time of the other clients, counted and not timed."""

import asyncio
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.zookeeper import wire as wire
from support.zookeeper.wire import WireClient

from minikafka.simulation.loop import run_seeded
from minikafka.simulation.transport import MemoryTransport
from minikafka.zookeeper.messages import codes, jute
from minikafka.zookeeper.messages.codes import CREATE, NODE_DELETED
from minikafka.zookeeper.messages.jute import INT, LONG
from minikafka.zookeeper.messages.replies import ANSWER_BYTES_MAX
from minikafka.zookeeper.server.connection import ServerConnection
from minikafka.zookeeper.server.core import acl
from minikafka.zookeeper.server.settings import (
    CREDENTIALS_MAX,
    EVENTS_AT_ONCE_MAX,
    EVENTS_MAX,
    IDENTITIES_MAX,
    UNSENT_MAX,
    ServerSettings,
)

PORT = 2181
MB = 1_000_000


class Scene:
    def __init__(self) -> None:
        self.transport = MemoryTransport()
        self.failures: list[str] = []
        self.server = wire.server(
            self.transport, self.failures, settings=ServerSettings(session_timeout_max_ms=10**7)
        )

    async def client(self) -> WireClient:
        return await wire.client(self.transport, PORT, 10**7)

    def served(self, number: int) -> ServerConnection:
        """Return the server's side of the n-th connection."""
        return list(self.server.connections)[number]


def played(scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    """Play a scenario; afterwards, another client must be served."""

    async def play() -> None:
        scene = Scene()
        await scene.server.start("127.0.0.1", PORT)
        other = await scene.client()
        await scenario(scene)
        assert (await other.call(codes.GET_DATA, wire.read("/"))).error == 0
        await scene.server.close()
        assert scene.failures == []

    run_seeded(1, play())


@contextmanager
def at_most(megabytes: int) -> Iterator[None]:
    """Fail if the memory grows by more than this, at any moment."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] <= megabytes * MB
    finally:
        tracemalloc.stop()


# ---- the answer


def many_reads(count: int, path: str = "/a") -> bytes:
    return wire.multi(*[(codes.GET_DATA, wire.read(path))] * count)


@pytest.mark.parametrize("count", [600, 60_000])
def test_multi_read_of_a_large_node_ends_only_the_connection(count):
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.call(CREATE, wire.create("/a", b"x" * MB))
        client.link.pause_reading()
        body = many_reads(count)
        with at_most(40):
            client.request(codes.MULTI_READ, body)
            await asyncio.sleep(1)
        assert len(scene.server.connections) == 1

    played(scenario)


def test_multi_read_is_answered_up_to_the_longest_answer():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.call(CREATE, wire.create("/a", b"x" * MB))
        reply = await client.call(codes.MULTI_READ, many_reads(8))
        assert 8 * MB < len(reply.body) < ANSWER_BYTES_MAX
        client.request(codes.MULTI_READ, many_reads(9))
        assert await client.end() == b""

    played(scenario)


@pytest.mark.parametrize("opcode", [codes.GET_CHILDREN, codes.GET_CHILDREN2])
def test_children_whose_names_are_too_long_together_end_only_the_connection(opcode):
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        for number in range(9):
            name = f"/{number}".ljust(MB, "x")
            await client.call(CREATE, wire.create(name))
        with at_most(40):
            client.request(opcode, wire.read("/"))
            assert await client.end() == b""

    played(scenario)


def test_children_in_a_multi_read_count_as_well():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.call(CREATE, wire.create("/" + "x" * 900_000))
        body = wire.multi(*[(codes.GET_CHILDREN, wire.read("/"))] * 50_000)
        with at_most(60):
            client.request(codes.MULTI_READ, body)
            assert await client.end() == b""

    played(scenario)


def test_ephemeral_nodes_with_too_long_paths_end_only_the_connection():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        for number in range(20):
            await client.call(CREATE, wire.create(f"/{number}".ljust(MB, "x"), b"", 1))
        with at_most(40):
            client.request(codes.GET_EPHEMERALS, jute.string("/"))
            assert await client.end() == b""

    played(scenario)


@pytest.mark.parametrize("word", [b"wchp", b"dump"])
def test_word_with_a_too_long_answer_ends_only_its_connection(word):
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        for number in range(20):
            path = f"/{number}".ljust(MB, "x")
            await client.call(CREATE, wire.create(path, b"", 1))
            await client.call(codes.EXISTS, wire.read(path, watch=True))
        asking = await wire.wire(scene.transport, PORT)
        with at_most(40):
            asking.link.send([word])
            assert await asking.end() == b""

    played(scenario)


# ---- events


def test_events_of_one_request_are_bounded_for_a_client_that_does_not_read():
    async def scenario(scene: Scene) -> None:
        watcher, owner = await scene.client(), await scene.client()
        served = scene.served(1)
        await watcher.call(codes.ADD_WATCH, wire.versioned("/", 1))
        for number in range(80):
            await owner.call(CREATE, wire.create(f"/{number}".ljust(MB, "x"), b"", 1))
        watcher.received.clear()
        collected = []
        collect = served._collect

        def measure(packet: bytes) -> None:
            collect(packet)
            collected.append(served._output.bytes)

        served._collect = measure  # type: ignore[method-assign]
        owner.request(codes.CLOSE_SESSION)
        await owner.end()
        assert EVENTS_MAX < max(collected) < EVENTS_MAX + 2 * MB
        await watcher.end()

    played(scenario)


def test_events_of_one_multi_are_bounded_for_all_who_watch(monkeypatch):
    made = []
    original = ServerConnection.on_event

    def counted(self: ServerConnection, change: int, path: str, zxid: int) -> None:
        made.append(zxid)
        original(self, change, path, zxid)

    monkeypatch.setattr(ServerConnection, "on_event", counted)

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.call(CREATE, wire.create("/a"))
        watchers = [await scene.client() for _ in range(5)]
        for watcher in watchers:
            await watcher.call(codes.ADD_WATCH, wire.versioned("/a", 0))
        for count, ends in ((EVENTS_AT_ONCE_MAX, False), (EVENTS_AT_ONCE_MAX + 1_000, True)):
            made.clear()
            sets = [(codes.SET_DATA, wire.set_data("/a"))] * count
            assert (await client.call(codes.MULTI, wire.multi(*sets))).error == 0
            assert len(made) == len(watchers) * (EVENTS_AT_ONCE_MAX + ends)
        for watcher in watchers:
            await watcher.end()
        assert len(scene.server.state.data_watches) == 0

    played(scenario)


def test_client_that_sets_many_watches_again_gets_all_missed_events():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        count = EVENTS_AT_ONCE_MAX + 1_000
        paths = jute.strings(f"/{number}" for number in range(count))
        client.request(codes.SET_WATCHES, LONG.pack(0) + paths + INT.pack(0) * 2, -8)
        events = [await client.reply() for _ in range(count)]
        assert {frame.event()[0] for frame in events} == {NODE_DELETED}
        assert (await client.reply()).xid == -8

    played(scenario)


def test_event_is_encoded_once_for_all_who_watch():
    async def scenario(scene: Scene) -> None:
        clients = [await scene.client() for _ in range(3)]
        path = "/" + "x" * MB
        for client in clients:
            await client.call(codes.EXISTS, wire.read(path, watch=True))
        packets: list[bytes] = []
        for number in (1, 2, 3):
            served = scene.served(number)
            served._emit = packets.append  # type: ignore[method-assign]
        other = await scene.client()
        await other.call(CREATE, wire.create(path))
        assert len(packets) == 3
        assert len(set(map(id, packets))) == 1

    played(scenario)


def test_watch_fires_again_after_it_was_set_again():
    async def scenario(scene: Scene) -> None:
        watcher, other = await scene.client(), await scene.client()
        for _ in range(2):
            await other.call(CREATE, wire.create("/a"))
            await watcher.call(codes.GET_DATA, wire.read("/a", watch=True))
            await other.call(codes.DELETE, wire.versioned("/a"))
            assert (await watcher.reply()).event() == (NODE_DELETED, "/a")

    played(scenario)


# ---- work


def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets every address that is parsed from now on."""
    texts: list[str] = []
    parse = acl._range

    def counted(text: str) -> Any:
        texts.append(text)
        return parse(text)

    monkeypatch.setattr(acl, "_range", counted)
    return texts


@pytest.mark.parametrize("scheme", ["ip", "digest"])
def test_long_access_control_list_is_read_through_once(scheme, monkeypatch):
    name = "10.{}.{}.0/24" if scheme == "ip" else "user{}:{}"
    entries = tuple((31, scheme, name.format(i >> 8, i & 255)) for i in range(5_000))

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        everyone = ((1, "world", "anyone"),)
        await client.call(CREATE, wire.create("/a", b"", 0, jute.acl(entries + everyone)))
        texts = parsed(monkeypatch)
        looked_at = []
        original = acl._Indexed.__iter__

        def counted(self: Any) -> Any:
            looked_at.append(len(self))
            return original(self)

        monkeypatch.setattr(acl._Indexed, "__iter__", counted)
        for _ in range(5):
            assert (await client.call(codes.GET_DATA, wire.read("/a"))).error == 0
        assert (await client.call(codes.MULTI_READ, many_reads(10))).error == 0
        assert len(looked_at) == 1
        assert len(texts) == (5_000 if scheme == "ip" else 0)

    played(scenario)


@pytest.mark.parametrize("opcode", [codes.GET_ALL_CHILDREN_NUMBER, codes.GET_EPHEMERALS])
def test_other_client_is_served_between_two_scans_of_all_nodes(opcode):
    async def scenario(scene: Scene) -> None:
        busy, other = await scene.client(), await scene.client()
        await busy.call(CREATE, wire.create("/a"))
        served = scene.served(1)
        xids = [busy.request(opcode, jute.string("/a")) for _ in range(500)]
        await asyncio.sleep(0)
        assert (await other.call(codes.GET_DATA, wire.read("/"))).error == 0
        assert served.counters.received < 20
        assert [(await busy.reply()).xid for _ in xids] == xids

    played(scenario)


def test_frame_in_many_pieces_is_looked_at_once():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        scene.transport._piece_bytes = 1
        slow = await scene.client()
        served = scene.served(2)
        looks = []
        original = served._apply_frames

        def counted(data: bytes) -> int:
            looks.append(len(data))
            return original(data)

        served._apply_frames = counted  # type: ignore[method-assign]
        reply = await slow.call(CREATE, wire.create("/a", b"x" * 5_000))
        assert reply.error == 0
        assert len(looks) <= 3
        assert (await client.call(codes.GET_DATA, wire.read("/a"))).error == 0

    played(scenario)


@pytest.mark.parametrize("lists", [1, 500])
def test_auth_entries_stand_for_a_bounded_number_of_entries(lists):
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        for number in range(IDENTITIES_MAX - 1):
            credentials = f"{number}".ljust(CREDENTIALS_MAX - 9, "u") + ":p"
            body = INT.pack(0) + jute.string("digest") + jute.buffer(credentials.encode())
            assert (await client.call(codes.AUTH, body, -4)).error == 0
        if lists == 1:
            entries = tuple((bits, "auth", "") for bits in range(1, 8_000))
            request = CREATE, wire.create("/a", b"", 0, jute.acl(entries))
        else:
            auth = jute.acl(((31, "auth", ""),))
            creates = [(CREATE, wire.create(f"/{i}", b"", 0, auth)) for i in range(lists)]
            request = codes.MULTI, wire.multi(*creates)
        with at_most(20):
            reply = await client.call(*request)
        if lists == 1:
            assert reply.error == codes.INVALID_ACL
        assert len(scene.server.state.tree.nodes) == 4

    played(scenario)


def test_connection_has_a_bounded_number_of_users():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        for number in range(IDENTITIES_MAX):
            body = INT.pack(0) + jute.string("digest") + jute.buffer(f"u{number}:p".encode())
            client.request(codes.AUTH, body, -4)
        errors = [(await client.reply()).error for _ in range(IDENTITIES_MAX)]
        assert errors == [0] * (IDENTITIES_MAX - 1) + [codes.AUTH_FAILED]
        await client.end()

    played(scenario)


@pytest.mark.parametrize(
    ("opcode", "body_of"),
    [
        (codes.MULTI, lambda: wire.multi(*[(codes.CHECK, wire.versioned("/"))] * 14_000)),
        (codes.MULTI, lambda: wire.multi(*[(codes.SET_DATA, wire.set_data("/"))] * 11_000)),
        (codes.MULTI, lambda: wire.multi(*[(15, wire.create("/a-", None, 2))] * 4_500)),
        (codes.MULTI_READ, lambda: many_reads(15_000, "/")),
        (codes.SET_WATCHES, lambda: LONG.pack(-1) + jute.strings(["/"] * 48_000) + INT.pack(0) * 2),
        (codes.SYNC, lambda: jute.string("\U0001f600" * 38_000)),
        (codes.EXISTS, lambda: wire.read("/a" * 120_000, watch=True)),
        (codes.SET_DATA, lambda: wire.set_data("/a" * 120_000)),
        (codes.GET_ALL_CHILDREN_NUMBER, lambda: jute.string("/" * 240_000)),
    ],
    ids=["checks", "sets", "creates", "reads", "watches", "halves", "depth", "missing", "slashes"],
)
def test_long_request_needs_no_more_memory_than_twenty_times_its_length(opcode, body_of):
    body = body_of()

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        client.link.pause_reading()
        with at_most(20):
            client.request(opcode, body)
            await asyncio.sleep(1)
        queued = scene.served(1).link.queued_bytes()
        assert queued <= UNSENT_MAX + ANSWER_BYTES_MAX

    played(scenario)
