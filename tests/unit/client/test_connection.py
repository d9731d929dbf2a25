"""One client connection: partial frames, correlation ids, and failures."""

from __future__ import annotations

import asyncio
import struct

import pytest

from minikafka.base.ports import Buffer
from minikafka.client.connection import BUFFER_BYTES, RESPONSE_MAX_BYTES, BrokerConnection
from minikafka.client.network import VERSIONS, request
from minikafka.kafka.wire.versions import METADATA
from minikafka.simulation.clocks import ManualClock

TIMEOUT_MS = 1_000


class SpyLink:
    """A Link that records what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.aborted = False

    def send(self, slices: list[Buffer]) -> None:
        self.sent.append(b"".join(slices))

    def abort(self) -> None:
        self.aborted = True


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.link = SpyLink()
        self.connection = BrokerConnection("test", self.clock)
        self.connection.connected(self.link)  # type: ignore[arg-type]

    def ask(self) -> asyncio.Future[bytes]:
        body = request(METADATA, topics=None)
        return self.connection.request(METADATA, VERSIONS[METADATA], body, TIMEOUT_MS)

    def receive(self, data: bytes) -> None:
        """Pass the bytes to the connection as a transport does, in pieces of the buffer's size."""
        while data:
            buffer = memoryview(self.connection.get_buffer(-1))
            count = min(len(buffer), len(data))
            assert count > 0
            buffer[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]


@pytest.fixture
async def world() -> World:
    return World()


def frame(correlation: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body


async def test_response_completes_the_request_with_its_correlation_id(world: World) -> None:
    first, second = world.ask(), world.ask()
    assert [struct.unpack_from(">i", sent, 8)[0] for sent in world.link.sent] == [1, 2]
    world.receive(frame(2, b"b") + frame(1, b"a"))
    assert (await first)[4:] == b"a"
    assert (await second)[4:] == b"b"
    assert world.connection.in_flight == 0
    assert world.clock.waiting() == 2
    await asyncio.sleep(0)
    assert world.clock.waiting() == 0


async def test_responses_are_reassembled_from_any_pieces(world: World) -> None:
    bodies = [b"", b"x", bytes(100), bytes(BUFFER_BYTES), bytes(3 * BUFFER_BYTES + 1), b"end"]
    asked = [world.ask() for _ in bodies]
    stream = b"".join(frame(i + 1, body) for i, body in enumerate(bodies))
    sizes = iter([1, 2, 3, 5, 8, 4096, 1, 70_000] * 1000)
    while stream:
        size = next(sizes)
        world.receive(stream[:size])
        stream = stream[size:]
    for future, body in zip(asked, bodies, strict=True):
        assert (await future)[4:] == body


async def test_response_without_a_pending_request_is_ignored(world: World) -> None:
    given_up = world.ask()
    given_up.cancel()
    wanted = world.ask()
    world.receive(frame(1) + frame(99) + frame(2, b"yes"))
    assert (await wanted)[4:] == b"yes"


@pytest.mark.parametrize("size", [-1, 0, 3, RESPONSE_MAX_BYTES + 1, 0x48545450])
async def test_invalid_frame_length_closes_the_connection(world: World, size: int) -> None:
    asked = world.ask()
    world.receive(struct.pack(">i", size))
    assert world.link.aborted
    assert not world.connection.is_open
    with pytest.raises(ConnectionError, match="not a Kafka broker"):
        await asked


async def test_overdue_response_closes_the_connection_for_all_requests(world: World) -> None:
    first, second = world.ask(), world.ask()
    world.clock.advance(TIMEOUT_MS)
    assert world.link.aborted
    for future in (first, second):
        with pytest.raises(TimeoutError):
            await future
    with pytest.raises(TimeoutError):
        world.ask()


async def test_lost_connection_fails_pending_and_later_requests(world: World) -> None:
    asked = world.ask()
    world.connection.disconnected(None)
    with pytest.raises(ConnectionError, match="closed by the broker"):
        await asked
    with pytest.raises(ConnectionError):
        world.ask()
    assert len(world.link.sent) == 1
