"""Frames are handled once, whole and in order, however their bytes arrive."""

from __future__ import annotations

import random
import struct

import pytest

from minikafka.kafka.wire.framing import FramedStream, LargeBuffers


class Link:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def peer(self) -> str:
        return "peer"


class Frames(FramedStream):
    """A stream that collects frames. The frames are copied out of the receive buffer only when `finish` is called."""

    def __init__(self, frame_max: int = 8 << 20, buffers: LargeBuffers | None = None) -> None:
        super().__init__(frame_max, buffers)
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


def test_frames_arrive_unchanged_when_no_large_receive_buffer_is_left() -> None:
    frames = [
        bytes([number]) * size for number, size in enumerate((10, 9_000, 100_000, 300_000, 5))
    ]
    for piece in (1_000, 70_000):
        stream = Frames(buffers=LargeBuffers(0))
        stream.feed(framed(frames), piece)
        assert stream.found == frames
        assert len(stream.get_buffer(0)) <= 16 << 10


def test_connections_share_a_limited_number_of_large_receive_buffers() -> None:
    buffers = LargeBuffers(2)
    streams = [Frames(buffers=buffers) for _ in range(4)]
    for stream in streams:
        stream.feed(framed([bytes(12_000)]), 16_000)
    sizes = [len(stream.get_buffer(0)) for stream in streams]
    assert sizes == [256 << 10, 256 << 10, 16 << 10, 16 << 10]
    streams[0].release()
    streams[1].shrink()
    assert buffers.left == 2
    streams[3].feed(framed([bytes(12_000)]), 16_000)
    assert (len(streams[3].get_buffer(0)), buffers.left) == (256 << 10, 1)


def test_receive_buffer_with_a_partial_frame_does_not_shrink() -> None:
    stream = Frames()
    stream.feed(framed([bytes(12_000)]), 16_000)
    stream.feed(framed([bytes(50)])[:20], 20)
    stream.shrink()
    assert len(stream.get_buffer(0)) == (256 << 10) - 20
    stream.feed(framed([bytes(50)])[20:], 40)
    stream.shrink()
    assert len(stream.get_buffer(0)) == 16 << 10
    assert stream.found == [bytes(12_000), bytes(50)]
