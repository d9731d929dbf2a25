"""The HTTP control plane: calls over real sockets, and requests that must be refused."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgpack
import pytest
from support.brokers.endpoints import control_at
from support.until import until

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import LeaderAndIsrRequest, PartitionState, TopicPartition
from minikafka.base.ports import Call
from minikafka.broker.rpc import connections, encoding, messages, signatures
from minikafka.broker.rpc.client import REUSE_MS
from minikafka.broker.rpc.connections import READ_TIMEOUT_MS
from minikafka.broker.rpc.server import HttpControlPlane
from minikafka.broker.rpc.signatures import Signer
from minikafka.runtime.clock import SystemRng
from minikafka.simulation.clocks import ManualClock

SECRET = b"of the cluster"
OWN_ID = 1
OTHER_ID = 2
ALL_KINDS = {
    "none": None,
    "flag": True,
    "number": -(2**62),
    "text": "blå",
    "bytes": b"\0\xff",
    "list": [1, [2, {"three": 3}]],
}


class World:
    """A control plane that serves calls, and a client of this control plane. `answer`: the handler of calls."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.descriptors = 1 << 20
        self.calls: list[Call] = []
        self.answer: Callable[[Call], Awaitable[dict[str, Any]]] = self.echo
        self.opened: list[HttpControlPlane] = []
        self.served = self.plane()
        self.client = self.plane()
        self.port = 0
        self.signer = Signer(SECRET, "c", 9, b"testtest")

    def plane(
        self,
        secret: bytes = SECRET,
        cluster: str = "c",
        broker_id: int = OWN_ID,
        clock: ManualClock | None = None,
    ) -> HttpControlPlane:
        now, rng = clock or self.clock, SystemRng()
        plane = HttpControlPlane(secret, cluster, broker_id, now, rng, lambda: self.descriptors)
        self.opened.append(plane)
        return plane

    async def echo(self, call: Call) -> dict[str, Any]:
        return call.body

    async def handle(self, call: Call) -> dict[str, Any]:
        self.calls.append(call)
        return await self.answer(call)

    async def call(
        self, method: str, body: dict[str, Any], client: HttpControlPlane | None = None
    ) -> dict[str, Any]:
        return await (client or self.client).call(
            control_at("127.0.0.1", self.port), method, body, target_id=OWN_ID, timeout_ms=60_000
        )

    async def restart(self) -> None:
        """Replace the served control plane by another one on the same port, as a restarted broker does."""
        await self.served.close()
        self.served = self.plane()
        await self.served.serve(self.handle, "127.0.0.1", self.port)

    def headers(
        self,
        path: str,
        body: bytes,
        method: str = "POST",
        target_id: int = OWN_ID,
        issuer: HttpControlPlane | None = None,
    ) -> dict[str, str]:
        """Return the headers of a call that contains a new challenge of `issuer`, by default the served plane."""
        challenge = (issuer or self.served)._verifier.challenge(self.clock.now())
        return self.signer.headers(target_id, method, path, body, challenge)

    async def raw(self, head: list[str], body: bytes = b"") -> bytes:
        """Send these header lines and this body; return all bytes sent by the server until it closes the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
        async with asyncio.timeout(60):
            answer = await reader.read()
        writer.close()
        return answer

    async def post(
        self, path: str, body: bytes, headers: dict[str, str], *, method: str = "POST"
    ) -> int:
        """Send one request on a new connection; return the HTTP status code of the response."""
        lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        answer = await self.raw([*lines, f"Content-Length: {len(body)}"], body)
        return int(answer.split()[1])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    listener = await world.served.serve(world.handle, "127.0.0.1", 0)
    world.port = listener.port
    yield world
    for plane in world.opened:
        await plane.close()
    await listener.close()


@pytest.mark.row("N3")
async def test_call_delivers_method_and_body_and_returns_the_response(world: World) -> None:
    assert await world.call("state", ALL_KINDS) == ALL_KINDS
    assert world.calls == [Call("state", ALL_KINDS)]
    assert await world.call("controlled_shutdown", {}) == {}


async def test_leader_and_isr_request_of_thirty_thousand_partitions_fits_in_one_call(
    world: World,
) -> None:
    state = PartitionState(
        TopicPartition("a-topic-with-quite-a-long-name" * 4, 0), 1, 7, (1, 2, 3), 9, 4, (1, 2, 3)
    )
    request = LeaderAndIsrRequest(1, 4, 2**40, (state,) * 30_000, (), ())
    method, body = messages.encode(request)
    world.answer = lambda call: asyncio.sleep(0, {})
    await world.call(method, body)
    assert messages.decode(*world.calls[0]) == request


@pytest.mark.parametrize("turns", range(6))
async def test_connection_accepted_while_the_server_closes_is_closed_too(
    world: World, turns: int
) -> None:
    """A leaked transport would cause a ResourceWarning when it is garbage-collected, and fail the test."""
    connecting = asyncio.ensure_future(asyncio.open_connection("127.0.0.1", world.port))
    for _ in range(turns):
        await asyncio.sleep(0)
    await world.served.close()
    with suppress(OSError):
        reader, writer = await connecting
        assert await reader.read() == b""
        writer.close()
    gc.collect()


async def test_kafka_error_of_the_handler_is_raised_at_the_caller(world: World) -> None:
    async def refuse(call: Call) -> dict[str, Any]:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "ask 3")

    world.answer = refuse
    with pytest.raises(KafkaError) as caught:
        await world.call("create_topics", {})
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert caught.value.detail == "ask 3"


async def test_call_of_another_version_is_refused_with_both_brokers_and_the_remedy(
    world: World,
) -> None:
    with pytest.raises(KafkaError) as caught:
        await world.call("create_topics", {"version": "0.3"})
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert "broker 1 has versions 0.1 and 0.2" in caught.value.detail
    assert "upgrade broker 1 first" in caught.value.detail
    assert world.calls == []


async def test_crash_of_the_handler_reveals_nothing_to_the_caller(world: World) -> None:
    async def crash(call: Call) -> dict[str, Any]:
        raise RuntimeError("private detail")

    world.answer = crash
    with pytest.raises(KafkaError) as caught:
        await world.call("create_topics", {})
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "private" not in str(caught.value)
    world.answer = world.echo
    assert await world.call("create_topics", {"still": "served"})


async def test_call_without_a_response_raises_oserror(world: World) -> None:
    async def never(call: Call) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    world.answer = never
    with pytest.raises(TimeoutError):
        await world.client.call(
            control_at("127.0.0.1", world.port), "state", {}, target_id=OWN_ID, timeout_ms=50
        )
    other = await world.served.serve(world.handle, "127.0.0.1", 0)
    await other.close()
    with pytest.raises(ConnectionError):
        await world.client.call(
            control_at("127.0.0.1", other.port), "state", {}, target_id=OWN_ID, timeout_ms=60_000
        )


async def test_call_to_a_server_that_is_not_a_control_plane_raises_oserror(world: World) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    with pytest.raises(OSError, match="not from a control plane"):
        await world.client.call(
            control_at("127.0.0.1", port), "state", {}, target_id=OWN_ID, timeout_ms=60_000
        )
    other.close()


@pytest.mark.parametrize(("secret", "cluster"), [(b"wrong", "c"), (SECRET, "other")])
async def test_caller_of_another_cluster_is_refused(
    world: World, secret: bytes, cluster: str
) -> None:
    other = world.plane(secret, cluster)
    with pytest.raises(KafkaError) as caught:
        await other.call(
            control_at("127.0.0.1", world.port), "state", {}, target_id=OWN_ID, timeout_ms=60_000
        )
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert world.calls == []


async def test_call_is_accepted_only_by_the_broker_that_it_was_signed_for(world: World) -> None:
    body = msgpack.packb({})
    second = world.plane(broker_id=OTHER_ID)
    listener = await second.serve(world.handle, "127.0.0.1", 0)
    headers = world.headers("/state", body, target_id=OTHER_ID, issuer=second)
    assert await world.post("/state", body, headers) == 401
    renamed = headers | {signatures.TARGET: str(OWN_ID)}
    assert await world.post("/state", body, renamed) == 401
    assert world.calls == []
    world.port = listener.port
    assert await world.post("/state", body, headers) == 200


async def test_caller_gets_an_error_if_another_broker_has_the_address(world: World) -> None:
    with pytest.raises(KafkaError, match="another broker has this address") as caught:
        await world.client.call(
            control_at("127.0.0.1", world.port), "state", {}, target_id=OTHER_ID, timeout_ms=60_000
        )
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert world.calls == []


@pytest.mark.parametrize("start", ["GET /state", "POST /state", "POST /nothing", "DELETE /"])
async def test_unsigned_request_gets_status_401_without_details(world: World, start: str) -> None:
    lines = [f"{start} HTTP/1.1", "Host: x", "Content-Length: 0"]
    answer = await world.raw(lines)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert b"aiohttp" not in head
    assert body == b""
    assert world.calls == []


async def test_unsigned_request_is_refused_before_its_body_is_sent(world: World) -> None:
    head = ["POST /state HTTP/1.1", "Host: x", f"Content-Length: {2**40}"]
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write("\r\n".join([*head, "", ""]).encode())
    async with asyncio.timeout(60):
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
    writer.close()


@pytest.mark.parametrize("hours", [-5, 5])
async def test_clocks_of_caller_and_broker_may_differ(world: World, hours: int) -> None:
    clock = ManualClock(world.clock.wall_ms() + hours * 3_600_000)
    clock.advance(abs(hours) * 1_000_000)  # the monotonic clocks differ too
    client = world.plane(clock=clock)
    assert await world.call("state", ALL_KINDS, client) == ALL_KINDS
    clock._wall_offset -= 2 * hours * 3_600_000  # the clock is set while the caller runs
    assert await world.call("state", ALL_KINDS, client) == ALL_KINDS


async def test_clock_offset_is_how_far_the_broker_is_ahead(world: World) -> None:
    clock = ManualClock(world.clock.wall_ms() - 90_000)
    client = world.plane(clock=clock)

    async def measured() -> int:
        return await client.clock_offset(
            control_at("127.0.0.1", world.port), target_id=OWN_ID, timeout_ms=60_000
        )

    assert await measured() == 90_000
    clock._wall_offset += 2_000_000
    assert await measured() == -1_910_000


async def test_half_the_time_of_the_answer_is_subtracted_from_a_clock_offset(world: World) -> None:
    clock = ManualClock()
    client, verifier = world.plane(clock=clock), world.served._verifier
    sign = verifier.sign_answer

    def sign_late(*arguments: Any) -> dict[str, str]:
        clock.advance(3_000)
        return sign(*arguments)

    verifier.sign_answer = sign_late  # type: ignore[method-assign]
    offset = await client.clock_offset(
        control_at("127.0.0.1", world.port), target_id=OWN_ID, timeout_ms=60_000
    )
    assert offset == -1_500


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that clients have asked for a challenge."""
    asked: list[str] = []
    ask = HttpControlPlane._ask

    async def counted(self: HttpControlPlane, peer: Any) -> Any:
        asked.append(peer.endpoint.host)
        return await ask(self, peer)

    monkeypatch.setattr(HttpControlPlane, "_ask", counted)
    return asked


async def test_one_challenge_serves_many_calls(world: World, asked: list[str]) -> None:
    for n in range(20):
        assert await world.call("state", {"n": n}) == {"n": n}
    assert len(asked) == 1


async def test_challenge_is_replaced_before_the_broker_would_refuse_it(
    world: World, asked: list[str]
) -> None:
    clock = ManualClock()
    client = world.plane(clock=clock)
    for passed, count in ((0, 1), (REUSE_MS, 1), (1, 2), (REUSE_MS, 2), (1, 3)):
        clock.advance(passed)
        await world.call("state", {}, client)
        assert len(asked) == count
    assert REUSE_MS < signatures.CHALLENGE_MS


async def test_age_of_a_challenge_counts_from_the_question_and_not_from_its_slow_answer(
    world: World, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    client = world.plane(clock=clock)
    request = HttpControlPlane._request

    async def slow(self: Any, method: str, *arguments: Any) -> Any:
        answer = await request(self, method, *arguments)
        clock.advance(20_000 if method == "GET" else 0)
        return answer

    monkeypatch.setattr(HttpControlPlane, "_request", slow)
    for passed, count in ((0, 1), (REUSE_MS - 20_000, 1), (1, 2)):
        clock.advance(passed)
        await world.call("state", {}, client)
        assert len(asked) == count


async def test_unsigned_challenge_and_time_are_not_accepted(world: World) -> None:
    async def forge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = msgpack.packb({"challenge": "5-00", "wall_ms": 5})
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await reader.read()
        writer.close()

    await world.served.close()
    async with await asyncio.start_server(forge, "127.0.0.1", world.port):
        with pytest.raises(KafkaError, match="secret differs"):
            await world.call("state", {})
        with pytest.raises(KafkaError, match="secret differs"):
            await world.client.clock_offset(
                control_at("127.0.0.1", world.port), target_id=OWN_ID, timeout_ms=60_000
            )
    assert not world.client._challenges


async def test_call_after_a_restart_of_the_broker_is_delivered_once(world: World) -> None:
    assert await world.call("state", {"n": 1}) == {"n": 1}
    await world.restart()
    assert await world.call("state", {"n": 2}) == {"n": 2}
    assert [call.body["n"] for call in world.calls] == [1, 2]


async def test_large_call_after_a_restart_of_the_broker_is_delivered_once(world: World) -> None:
    body = {f"key{n}": "x" * 60_000 for n in range(500)}
    assert await world.call("state", {}) == {}
    await world.restart()
    assert await world.call("state", body) == body
    assert [call.body for call in world.calls] == [{}, body]


async def test_challenge_is_not_used_again_after_a_failed_call(world: World) -> None:
    """A restarted broker may close the connection before the client has read why the call is refused."""
    assert await world.call("state", {}) == {}
    await world.served.close()
    assert world.client._challenges
    with pytest.raises(ConnectionError):
        await world.call("state", {})
    assert not world.client._challenges


async def test_call_with_an_expired_challenge_is_delivered_once(world: World) -> None:
    assert await world.call("state", {"n": 1}) == {"n": 1}
    [(peer, (_, asked))] = world.client._challenges.items()
    too_old = world.served._verifier.challenge(world.clock.now() - signatures.CHALLENGE_MS - 1)
    world.client._challenges[peer] = too_old, asked
    assert await world.call("state", {"n": 2}) == {"n": 2}
    assert [call.body["n"] for call in world.calls] == [1, 2]


async def test_recorded_call_is_refused_by_the_restarted_broker(world: World) -> None:
    body = msgpack.packb({})
    headers = world.headers("/state", body)
    assert await world.post("/state", body, headers) == 200
    await world.restart()
    assert await world.post("/state", body, headers) == 401
    assert len(world.calls) == 1


async def test_call_that_was_held_back_is_refused_after_a_minute(world: World) -> None:
    body = msgpack.packb({})
    held, other = world.headers("/state", body), world.headers("/state", body)
    world.clock.advance(signatures.CHALLENGE_MS)
    assert await world.post("/state", body, held) == 200
    world.clock.advance(1)
    assert await world.post("/state", body, other) == 401


@pytest.mark.parametrize("status", [b"200 OK", b"409 Conflict", b"500 Internal Server Error"])
async def test_answer_that_the_broker_did_not_sign_is_an_error(world: World, status: bytes) -> None:
    """A broker's port can be taken by another process after the broker has ended."""
    assert await world.call("state", {}) == {}
    await world.served.close()

    async def forge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = msgpack.packb({"error": 0, "detail": ""})
        head = b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % (status, len(body)) + body)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(forge, "127.0.0.1", world.port):
        for _ in range(2):
            with pytest.raises(ConnectionError, match="not from a control plane"):
                await world.call("state", {})


async def test_replayed_answer_is_not_accepted_for_another_call(world: World) -> None:
    body = msgpack.packb({})
    lines = [f"{name}: {value}" for name, value in world.headers("/state", body).items()]
    head = ["POST /state HTTP/1.1", "Host: x", "Connection: close", "Content-Length: 1", *lines]
    recorded = await world.raw(head, body)
    assert recorded.startswith(b"HTTP/1.1 200 ")
    assert await world.call("state", {}) == {}
    await world.served.close()

    async def replay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(recorded)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(replay, "127.0.0.1", world.port):
        with pytest.raises(ConnectionError, match="not from a control plane"):
            await world.call("state", {})


async def test_calls_after_close_raise_oserror(world: World) -> None:
    await world.client.close()
    with pytest.raises(ConnectionError):
        await world.call("state", {})


async def test_replayed_call_is_refused(world: World) -> None:
    body = msgpack.packb({})
    headers = world.headers("/state", body)
    assert await world.post("/state", body, headers) == 200
    assert await world.post("/state", body, headers) == 401
    assert len(world.calls) == 1


async def test_body_that_does_not_match_the_signature_is_refused(world: World) -> None:
    headers = world.headers("/state", msgpack.packb({"a": 1}))
    assert await world.post("/state", msgpack.packb({"a": 2}), headers) == 401
    assert world.calls == []


async def test_compressed_body_is_refused(world: World) -> None:
    body = msgpack.packb({})
    headers = world.headers("/state", body) | {"Content-Encoding": "gzip"}
    assert await world.post("/state", body, headers) == 415


async def test_signed_request_with_another_method_than_post_is_refused(world: World) -> None:
    headers = world.headers("/state", b"", "PUT")
    assert await world.post("/state", b"", headers, method="PUT") == 405


async def test_body_beyond_the_limit_is_refused(world: World) -> None:
    head = ["POST /state HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {2**40}"]
    signed = [f"{name}: {value}" for name, value in world.headers("/state", b"").items()]
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write("\r\n".join([*head, *signed, "", ""]).encode())
    written = 0
    piece = bytes(1 << 20)
    try:
        while written < encoding.BODY_MAX_BYTES + len(piece):
            writer.write(piece)
            await writer.drain()
            written += len(piece)
        async with asyncio.timeout(60):
            assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    except ConnectionError:
        assert written >= encoding.BODY_MAX_BYTES
    writer.close()
    assert world.calls == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 100_000,
        msgpack.packb([1]),
        msgpack.packb({1: 2}),
        msgpack.packb({b"key": 2}),
        msgpack.packb({"x": msgpack.ExtType(4, b"code")}),
        msgpack.packb({"x": msgpack.Timestamp(1)}),
        msgpack.packb({"x": "y" * (encoding.TEXT_MAX_BYTES + 1)}),
        msgpack.packb({str(i): i for i in range(encoding.MAP_MAX + 1)}),
        b"\x81\xa1x\xa1\xff",
        msgpack.packb({}) + b"more",
    ],
)
async def test_signed_body_that_is_not_a_small_map_is_refused(world: World, body: bytes) -> None:
    assert await world.post("/state", body, world.headers("/state", body)) == 400
    assert world.calls == []


async def test_bytes_that_are_not_http_close_the_connection(world: World) -> None:
    for junk in ("\x16\x03\x01\x02\x00\x01", "GET", "A" * 20_000):
        assert b"401" not in await world.raw([junk, junk])
    assert world.calls == []


async def dropped(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


@pytest.mark.parametrize("kind", ["silent", "half a head", "half a body", "between requests"])
async def test_connection_without_a_whole_request_in_time_is_closed(
    world: World, kind: str
) -> None:
    body = msgpack.packb({"x": 1})
    signed = [f"{name}: {value}" for name, value in world.headers("/state", body).items()]
    head = ["POST /state HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *signed, "", ""]
    whole = "\r\n".join(head).encode() + body
    sent = {"silent": 0, "half a head": 30, "half a body": len(whole) - 1}.get(kind, len(whole))
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(whole[:sent])
    if kind == "between requests":
        assert (await reader.readuntil(body)).startswith(b"HTTP/1.1 200 ")
    await until(world.clock.waiting)
    world.clock.advance(READ_TIMEOUT_MS - 1)
    writer.write(b"")
    assert not reader.at_eof()
    world.clock.advance(1)
    assert await dropped(reader) == b""
    writer.close()


async def test_call_is_answered_when_its_handler_runs_longer_than_the_read_timeout(
    world: World,
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(call: Call) -> dict[str, Any]:
        asked.set()
        await go_on.wait()
        return {"done": True}

    world.answer = slow
    call = asyncio.create_task(world.call("controlled_shutdown", {}))
    await asked.wait()
    world.clock.advance(10 * READ_TIMEOUT_MS)
    go_on.set()
    assert await call == {"done": True}


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Crowd:
    """Connections to a control plane that accepts at most four connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.streams: list[Stream] = []

    async def join(self, count: int) -> list[Stream]:
        """Open connections that send nothing."""
        new = [
            await asyncio.open_connection("127.0.0.1", self.world.port, limit=1 << 20)
            for _ in range(count)
        ]
        self.streams += new
        return new

    async def join_signed(self, count: int) -> list[Stream]:
        """Open connections; on each, send one call and receive the response."""
        new = await self.join(count)
        for stream in new:
            await self.call(stream)
        return new

    async def call(self, stream: Stream) -> None:
        reader, writer = stream
        body = msgpack.packb({"x": 1})
        headers = [f"{name}: {value}" for name, value in self.world.headers("/state", body).items()]
        head = ["POST /state HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]
        writer.write("\r\n".join(head).encode() + body)
        async with asyncio.timeout(60):
            assert (await reader.readuntil(body)).startswith(b"HTTP/1.1 200 ")


@pytest.fixture
async def crowd(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crowd]:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 4)
    crowd = Crowd(world)
    yield crowd
    for _, writer in crowd.streams:
        writer.close()


async def test_oldest_connections_without_a_signature_are_closed_when_there_are_too_many(
    world: World, crowd: Crowd
) -> None:
    streams = await crowd.join(30)
    for reader, _ in streams[:26]:
        assert await dropped(reader) == b""
    assert not any(reader.at_eof() for reader, _ in streams[26:])
    assert world.clock.waiting() == 4
    for stream in streams[26:]:
        await crowd.call(stream)


async def test_fewer_connections_stay_open_if_there_are_few_file_descriptors(
    world: World, crowd: Crowd
) -> None:
    world.descriptors = 16
    streams = await crowd.join(10)
    for reader, _ in streams[:8]:
        assert await dropped(reader) == b""
    assert not any(reader.at_eof() for reader, _ in streams[8:])


async def test_unsigned_connections_do_not_displace_signed_connections(
    world: World, crowd: Crowd
) -> None:
    signed = await crowd.join_signed(2)
    strangers = await crowd.join(20)
    for reader, _ in strangers[:18]:
        assert await dropped(reader) == b""
    for stream in signed:
        await crowd.call(stream)
    assert await world.call("state", {}) == {}


async def test_new_connection_is_closed_when_all_other_connections_are_signed(
    crowd: Crowd,
) -> None:
    signed = await crowd.join_signed(4)
    for reader, _ in await crowd.join(3):
        assert await dropped(reader) == b""
    for stream in signed:
        await crowd.call(stream)


async def test_connection_with_a_wrong_signature_counts_as_unsigned(
    world: World, crowd: Crowd
) -> None:
    (wrong,) = await crowd.join(1)
    wrong[1].write(b"POST /state HTTP/1.1\r\nHost: x\r\nX-Minikafka-Signature: 0\r\n")
    signed = await crowd.join_signed(3)
    await crowd.join(1)
    assert await dropped(wrong[0]) == b""
    for stream in signed:
        await crowd.call(stream)


async def test_each_connection_without_a_request_is_closed_at_its_deadline(
    world: World, crowd: Crowd
) -> None:
    streams = await crowd.join(30)
    await until(lambda: sum(reader.at_eof() for reader, _ in streams) == 26)
    world.clock.advance(READ_TIMEOUT_MS)
    for reader, _ in streams:
        assert await dropped(reader) == b""
    assert world.clock.waiting() == 0


async def test_state_changes_reach_the_handler_one_at_a_time_in_order(world: World) -> None:
    gates = {n: asyncio.Event() for n in (1, 2, 3)}
    began: list[int] = []
    ended: list[int] = []

    async def slow(call: Call) -> dict[str, Any]:
        began.append(call.body["n"])
        await gates[call.body["n"]].wait()
        ended.append(call.body["n"])
        return {}

    world.answer = slow
    sent = []
    for n in (1, 2, 3):
        sent.append(asyncio.create_task(world.call(messages.UPDATE_METADATA, {"n": n})))
        await until(lambda n=n: len(world.served._verifier._seen) == n)
    assert began == [1]
    for n in (3, 2, 1):
        gates[n].set()
    await asyncio.gather(*sent)
    assert began == ended == [1, 2, 3]


async def test_update_metadata_call_is_refused_when_it_arrives_after_a_later_one(
    world: World,
) -> None:
    path = f"/{messages.UPDATE_METADATA}"
    late, later = msgpack.packb({"n": 1}), msgpack.packb({"n": 2})
    late_headers, later_headers = world.headers(path, late), world.headers(path, later)
    assert await world.post(path, later, later_headers) == 200
    assert await world.post(path, late, late_headers) == 409
    assert [call.body["n"] for call in world.calls] == [2]


async def test_calls_without_state_changes_run_at_the_same_time(world: World) -> None:
    first, second = msgpack.packb({"n": 1}), msgpack.packb({"n": 2})
    first_headers, second_headers = world.headers("/state", first), world.headers("/state", second)
    assert await world.post("/state", second, second_headers) == 200
    assert await world.post("/state", first, first_headers) == 200


async def test_calls_of_a_restarted_sender_are_accepted_from_number_one(world: World) -> None:
    await world.call(messages.STOP_REPLICA, {})
    await world.call(messages.STOP_REPLICA, {})
    again = world.plane()
    await again.call(
        control_at("127.0.0.1", world.port),
        messages.STOP_REPLICA,
        {},
        target_id=OWN_ID,
        timeout_ms=60_000,
    )
    assert len(world.calls) == 3


async def test_closing_the_server_ends_its_handlers_and_its_listener(world: World) -> None:
    asked = asyncio.Event()
    ended: list[str] = []

    async def endless(call: Call) -> dict[str, Any]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(call.method)
        raise AssertionError

    world.answer = endless
    call = asyncio.create_task(world.call("state", {}))
    await asked.wait()
    await world.served.close()
    with pytest.raises(ConnectionError):
        await call
    assert ended == ["state"]
    with pytest.raises(ConnectionError):
        await world.call("state", {})


async def test_serving_on_a_used_port_raises_oserror(world: World) -> None:
    with pytest.raises(OSError, match=r"."):
        await world.served.serve(world.handle, "127.0.0.1", world.port)


METRICS_REQUEST = ["GET /metrics HTTP/1.1", "Host: x", "Connection: close"]


async def while_time_passes(world: World, answer: Awaitable[bytes]) -> bytes:
    """Await the answer. Meanwhile, run the due timers of the clock, because the server pauses between metrics."""
    task = asyncio.ensure_future(answer)

    def is_done() -> bool:
        world.clock.advance(0)
        return task.done()

    await until(is_done)
    return await task


async def serve_metrics(
    world: World, refusal: Callable[[str, str], Awaitable[int]] | None = None
) -> None:
    async def page() -> AsyncIterator[str]:
        for piece in ("# HELP up ü\n", "up 1\n"):
            yield piece

    listener = await world.served.serve(world.handle, "127.0.0.1", 0, page, refusal)
    world.port = listener.port


async def test_metrics_are_served_without_a_signature(world: World) -> None:
    await serve_metrics(world)
    answer = await while_time_passes(world, world.raw(METRICS_REQUEST))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    assert body.decode() == "# HELP up ü\nup 1\n"
    assert world.calls == []


async def test_first_page_of_the_metrics_port_links_the_metrics(world: World) -> None:
    await serve_metrics(world)
    answer = await world.raw(["GET / HTTP/1.1", *METRICS_REQUEST[1:]])
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"Content-Type: text/html" in head
    assert f"<h1>minikafka broker {OWN_ID}</h1>" in body.decode()
    assert '<a href="/metrics">' in body.decode()
    assert world.calls == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/"),
        ("GET", "/?x"),
        ("POST", "/metrics"),
        ("HEAD", "/metrics"),
        ("GET", "/metrics/"),
        ("GET", "/state"),
    ],
)
async def test_requests_other_than_get_metrics_need_a_signature(
    world: World, method: str, path: str
) -> None:
    await serve_metrics(world)
    assert await world.post(path, b"", {}, method=method) == 401
    assert world.calls == []


async def test_metrics_request_is_refused_where_metrics_are_not_served(world: World) -> None:
    assert (await world.raw(METRICS_REQUEST)).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("path", ["/", "/metrics"])
async def test_no_password_is_asked_for_where_it_would_be_sent_in_the_clear(
    world: World, path: str
) -> None:
    async def refusal(authorization: str, peer: str) -> int:
        raise AssertionError("a credential was checked")

    await serve_metrics(world, refusal)
    request = [f"GET {path} HTTP/1.1", "Host: x", "Authorization: Basic YTpi"]
    answer = await world.raw(request)
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"WWW-Authenticate" not in answer
    assert answer.endswith(
        b"metrics are served under TLS only: set security.inter.broker.protocol to SSL or SASL_SSL\n"
    )
    assert await world.call("state", ALL_KINDS) == ALL_KINDS


async def test_connection_of_a_metrics_reader_may_be_used_again(world: World) -> None:
    await serve_metrics(world)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    for _ in range(2):
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await while_time_passes(world, reader.readuntil(b"up 1\n"))
        assert answer.startswith(b"HTTP/1.1 200")
        world.clock.advance(READ_TIMEOUT_MS - 1)
    writer.close()
    await writer.wait_closed()
