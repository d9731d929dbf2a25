"""The encoded batches of a task as a stream of bytes, which a task writes and the driver reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import TopicPartition

_HEAD: Final = Struct(">Hiqqqi")


class Frame(NamedTuple):
    """An encoded batch without a producer, and its partition."""

    tp: TopicPartition
    first: int
    """Number of the first row in the task."""
    last: int
    size: int
    """Approximate number of bytes before compression."""
    data: bytearray


def pack(frame: Frame) -> bytes:
    """Return a frame as bytes."""
    topic = frame.tp.topic.encode()
    head = _HEAD.pack(
        len(topic), frame.tp.partition, frame.first, frame.last, frame.size, len(frame.data)
    )
    return b"".join((head, topic, frame.data))


def unpack(pieces: Iterable[bytes]) -> Iterator[Frame]:
    """Yield the frames of a stream that arrives in pieces of any size. Raises `ProtocolViolation`."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        at = 0
        while (found := _frame(waiting, at)) is not None:
            frame, at = found
            yield frame
        del waiting[:at]
    if waiting:
        raise ProtocolViolation("the encoded rows of a task are cut off")


def _frame(data: bytearray, at: int) -> tuple[Frame, int] | None:
    """Return the frame at a position, and the position after it; None if a part of the frame is missing."""
    if len(data) - at < _HEAD.size:
        return None
    topic_size, partition, first, last, size, batch_size = _HEAD.unpack_from(data, at)
    name_at = at + _HEAD.size
    batch_at = name_at + topic_size
    end = batch_at + batch_size
    if end > len(data):
        return None
    tp = TopicPartition(data[name_at:batch_at].decode(), partition)
    return Frame(tp, first, last, size, data[batch_at:end]), end
