"""The encoded batches of a task as a stream of bytes."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.spark.sink.once.staged import Frame, pack, unpack

FRAMES = [
    Frame(TopicPartition("ü", 0), 0, 9, 20, bytearray(b"first")),
    Frame(TopicPartition("lines", 7), 10, 10, 1 << 40, bytearray()),
    Frame(TopicPartition("lines", 1), 1 << 40, 1 << 41, 3, bytearray(b"x" * 1_000)),
]


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_frames_are_read_from_pieces_of_any_size(size):
    data = b"".join(map(pack, FRAMES))
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert list(unpack(pieces)) == FRAMES


def test_stream_that_is_cut_off_is_an_error():
    data = b"".join(map(pack, FRAMES))
    with pytest.raises(ProtocolViolation, match="cut off"):
        list(unpack([data[:-1]]))
