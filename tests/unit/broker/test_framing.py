"""Frames are handled once, whole and in order, however their bytes arrive."""

from __future__ import annotations

import random
import struct

import pytest

from minikafka.broker.framing import FramedStream


class Link:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def peer(self) -> str:
        return "peer"


class Frames(FramedStream):
    """A stream that collects frames. The frames are copied out of the receive buffer only when `finish` is called."""

    def __init__(self, frame_max: int = 8 << 20) -> None:
        super().__init__(frame_max)
        self.link = Link()  # type: ignore[assignment]
        self.tick: list[memoryview] = []
        self.found: list[bytes] = []

    def parse(self, buf: bytearray, view: memoryview, start: int, end: int) -> int:
        while end - start >= 4:
            stop = start + 4 + int(struct.unpack_from(">i", buf, start)[0])
            if stop > end:
                break
            self.tick.append(view[start + 4 : stop])
            start = stop
        return start

    def finish(self) -> None:
        self.found.extend(bytes(frame) for frame in self.tick)
        self.tick.clear()

    def feed(self, data: bytes, piece: int) -> None:
        position = 0
        while position < len(data):
            room = self.get_buffer(0)
            count = min(piece, len(room), len(data) - position)
            assert count > 0
            room[:count] = data[position : position + count]  # type: ignore[index]
            self.buffer_updated(count)
            position += count


def framed(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


@pytest.mark.parametrize("piece", [1, 7, 1000, 8192, 16 << 10, 70_000, 1 << 20])
def test_frames_are_handled_once_and_in_order_however_they_arrive(piece: int) -> None:
    rng = random.Random(piece)
    sizes = [10, 11, 300, 9_000, 16_380, 40_000, 131_072, 140_000, 262_144]
    if piece >= 1000:
        sizes += [1 << 20, (1 << 20) + 1, 5_000_000]
    frames = [rng.randbytes(rng.choice(sizes)) for _ in range(30 if piece >= 1000 else 6)]
    stream = Frames()
    stream.feed(framed(frames), piece)
    assert stream.found == frames


@pytest.mark.parametrize(
    ("size", "bound"), [(100_000, 256 << 10), (128 << 10, 64 << 10), (90 << 20, 64 << 10)]
)
def test_length_prefix_without_data_allocates_little_memory(size: int, bound: int) -> None:
    stream = Frames(100 << 20)
    stream.feed(struct.pack(">i", size) + b"x", 100)
    room = stream.get_buffer(0)
    assert isinstance(room, memoryview)
    assert len(room.obj) <= bound


@pytest.mark.parametrize("size", [(8 << 20) + 1, 0x7FFFFFFF])
def test_a_length_above_the_limit_closes_the_connection_at_once(size: int) -> None:
    stream = Frames()
    stream.feed(struct.pack(">i", size), 4)
    assert stream.link.closed  # type: ignore[attr-defined]


def test_buffer_of_a_large_frame_grows_with_the_received_bytes() -> None:
    stream = Frames(200 << 20)
    frame = framed([bytes(3 << 20)])
    promised = struct.pack(">i", 100 << 20) + frame[4:]
    sent = 0
    for part in (1_000, 30_000, 100_000, 500_000, 2_000_000):
        stream.feed(promised[sent : sent + part], 4_096)
        sent += part
        room = stream.get_buffer(0)
        assert isinstance(room, memoryview)
        held = len(room.obj)
        assert held <= max(64 << 10, 4 * (sent + 4_096))
