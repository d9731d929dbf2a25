"""Cost of parsing Produce requests in a receive buffer: frames, then topics, partitions and slices."""

from __future__ import annotations

from benchmarks.kafka import batch_of, produce_request
from benchmarks.micro import Outcome, main, timed
from minikafka.kafka.wire.framing import frames
from minikafka.kafka.wire.produce import decode_in_steps
from minikafka.kafka.wire.versions import PRODUCE

TICK = 64
SIZE_MAX = 1 << 20


class _Decoder:
    """A decoder of Produce requests. `total`: the sum of the positions at which the record batches begin."""

    def __init__(self) -> None:
        self.total = 0

    def on_produce(
        self,
        buf: bytearray,
        view: memoryview,
        version: int,
        correlation: int,
        start: int,
        body: int,
        end: int,
    ) -> None:
        """Decode one request."""
        request = next(decode_in_steps(buf, body, end, version))
        assert request is not None, "a small request is decoded in one step"
        self.total += request.topics[0][1][0].start


def _no_other(view: memoryview, *request: int) -> None:
    raise AssertionError(request)


def _decode(version: int, operations: int) -> Outcome:
    buffer = bytearray(produce_request(version, "topic", 3, batch_of(259), 1) * TICK)
    view = memoryview(buffer)
    decoder = _Decoder()
    routes = {PRODUCE: decoder.on_produce}

    def work() -> int:
        for _ in range(-(-operations // TICK)):
            frames(buffer, view, 0, len(buffer), routes, _no_other, SIZE_MAX)
        return decoder.total

    return timed(operations, work)


def decode_produce_v7(operations: int) -> Outcome:
    """Decode Produce v7 requests, without the cache of parsed requests that connections have."""
    return _decode(7, operations)


def decode_produce_v9(operations: int) -> Outcome:
    """Decode Produce v9 requests, which have the flexible encoding."""
    return _decode(9, operations)


BENCHES = (decode_produce_v7, decode_produce_v9)

if __name__ == "__main__":
    main(*BENCHES)
