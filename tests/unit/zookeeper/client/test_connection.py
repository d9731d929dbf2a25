"""One ZooKeeper connection over a fake link: partial, unexpected and missing frames."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from minikafka.base.errors import NoNode, NotConnected, OutcomeUnknown
from minikafka.base.ports import Stat
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.client.connection import FRAME_MAX, ZooKeeperConnection
from minikafka.zookeeper.messages import codes

STAT = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
CONNECTED = struct.pack("!iiqi", 0, 4000, 7, 16) + bytes(16) + b"\x00"


class Wire:
    """A link that records the sent bytes and whether it was aborted."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False

    def send(self, slices: Sequence[bytes]) -> None:
        self.written += b"".join(slices)

    def abort(self) -> None:
        self.aborted = True


class Owner:
    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_answer(self, sent: int) -> None:
        self.events.append(("answer", sent))

    def on_released(self, size: int) -> None:
        self.events.append(("released", size))

    def on_event(self, change: int, path: str) -> None:
        self.events.append(("event", change, path))

    def on_lost(self, connection: ZooKeeperConnection) -> None:
        self.events.append("lost")


class Bench:
    """A ZooKeeper connection over a fake link, after the handshake."""

    def __init__(self) -> None:
        self.now = 1000
        self.owner, self.wire = Owner(), Wire()
        self.connection = ZooKeeperConnection(self.owner, lambda: self.now)
        self.connection.connected(self.wire)  # type: ignore[arg-type]

    async def attach(self) -> Bench:
        handshake = asyncio.ensure_future(self.connection.handshake(0, b"", 4000, 0))
        await asyncio.sleep(0)
        self.receive(CONNECTED)
        assert (await handshake).session_id == 7
        self.wire.written = b""
        return self

    def receive(self, *frames: bytes) -> None:
        for frame in frames:
            self.read(struct.pack("!i", len(frame)) + frame)

    def read(self, data: bytes) -> None:
        """Let the connection read these bytes at once."""
        buffer = memoryview(self.connection.get_buffer(-1))
        buffer[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def ask(self, path: str = "/a") -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.connection.submit(calls.exists(path, watch=False), answer)
        return answer


def answer_to(xid: int, *, zxid: int = 5, error: int = 0) -> bytes:
    payload = b"" if error else struct.pack("!qqqqiiiqiiq", *STAT)
    return struct.pack("!iqi", xid, zxid, error) + payload


async def test_requests_of_one_loop_turn_are_sent_in_one_write_in_order() -> None:
    bench = await Bench().attach()
    answers = [bench.ask("/1"), bench.ask("/2")]
    assert bench.wire.written == b""
    await asyncio.sleep(0)
    frames = [struct.pack("!i", xid) + calls.exists(f"/{xid}", watch=False).body for xid in (1, 2)]
    assert bench.wire.written == b"".join(struct.pack("!i", len(f)) + f for f in frames)
    assert not any(answer.done() for answer in answers)


async def test_responses_are_reassembled_from_single_bytes() -> None:
    bench = await Bench().attach()
    answers = [bench.ask(), bench.ask()]
    frames = [answer_to(1), answer_to(2, error=-101)]
    for byte in b"".join(struct.pack("!i", len(frame)) + frame for frame in frames):
        bench.read(bytes([byte]))
    assert answers[0].result() == STAT
    assert isinstance(answers[1].exception(), NoNode)


async def test_connection_tells_its_owner_the_send_time_of_an_answered_request() -> None:
    bench = await Bench().attach()
    bench.now = 2000
    answer = bench.ask()
    size = len(calls.exists("/a", watch=False).body)
    bench.now = 2500
    bench.receive(answer_to(1, zxid=77))
    assert answer.done()
    assert bench.owner.events == [("answer", 2000), ("released", size)]
    assert bench.connection.last_zxid == 77
    assert bench.connection.oldest_request() is None


async def test_answered_ping_is_reported_to_the_owner_and_uses_no_request_number() -> None:
    bench = await Bench().attach()
    bench.now = 2000
    bench.connection.ping()
    bench.ask()
    assert bench.connection.oldest_request() == 2000
    bench.receive(answer_to(codes.PING_XID)[:16], answer_to(1))
    assert ("answer", 2000) in bench.owner.events


async def test_watch_event_is_reported_and_completes_no_request() -> None:
    bench = await Bench().attach()
    answer = bench.ask()
    path = struct.pack("!iii", 3, 3, 2) + b"/a"
    bench.receive(struct.pack("!iqi", codes.EVENT_XID, -1, 0) + path)
    assert bench.owner.events == [("event", codes.DATA_CHANGED, "/a")]
    assert not answer.done()


@pytest.mark.parametrize(
    "frame",
    [answer_to(2), answer_to(0), b"short", answer_to(1)[:40]],
    ids=["later request", "no request", "no header", "half a stat"],
)
async def test_invalid_response_drops_the_connection(frame: bytes) -> None:
    bench = await Bench().attach()
    answer = bench.ask()
    bench.receive(frame)
    assert bench.wire.aborted
    assert isinstance(answer.exception(), OutcomeUnknown)


@pytest.mark.parametrize("length", [-1, FRAME_MAX + 1, 0x48545450], ids=["-1", "max", "HTTP"])
async def test_invalid_frame_length_drops_the_connection(length: int) -> None:
    bench = await Bench().attach()
    bench.read(struct.pack("!i", length))
    assert bench.wire.aborted


async def test_owner_is_called_before_requests_fail_when_the_connection_is_lost() -> None:
    bench = await Bench().attach()
    answers = [bench.ask(), bench.ask()]

    def on_lost(connection: ZooKeeperConnection) -> None:
        assert not any(answer.done() for answer in answers)
        bench.owner.events.append("lost")

    bench.owner.on_lost = on_lost  # type: ignore[method-assign]
    bench.connection.disconnected(None)
    assert bench.owner.events == ["lost"]
    assert [type(answer.exception()) for answer in answers] == [OutcomeUnknown] * 2
    with pytest.raises(NotConnected):
        bench.ask()
    bench.connection.abort()
    assert bench.owner.events == ["lost"], "it is lost once"


async def test_handshake_raises_oserror_if_the_server_hangs_up() -> None:
    bench = Bench()
    handshake = asyncio.ensure_future(bench.connection.handshake(7, bytes(16), 4000, 9))
    await asyncio.sleep(0)
    bench.connection.disconnected(None)
    with pytest.raises(ConnectionError):
        await handshake


async def test_response_to_a_cancelled_request_is_ignored() -> None:
    bench = await Bench().attach()
    cancelled, waiting = bench.ask(), bench.ask()
    cancelled.cancel()
    bench.receive(answer_to(1), answer_to(2))
    assert waiting.result() == STAT


async def test_requests_sent_up_to_a_chosen_time_fail_and_a_later_request_is_answered() -> None:
    bench = await Bench().attach()
    bench.now = 1000
    old = bench.ask()
    bench.now = 2000
    young = bench.ask()
    bench.connection.fail_requests_until(1000)
    assert isinstance(old.exception(), OutcomeUnknown)
    assert not young.done()
    bench.receive(answer_to(1), answer_to(2))
    assert young.result() == STAT


async def test_request_numbers_start_again_after_the_largest() -> None:
    bench = await Bench().attach()
    bench.connection._xid = 0x7FFFFFFE
    first, second = bench.ask(), bench.ask()
    bench.receive(answer_to(0x7FFFFFFF), answer_to(1))
    assert first.result() == second.result() == STAT
