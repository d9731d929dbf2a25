"""Cost of appends to a real file, on a leader (one write per 64 batches) and on a follower (one per fetch)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks import lifetime
from benchmarks.kafka import batch_of
from benchmarks.micro import Outcome, main, timed
from minikafka.base.config import TopicConfig
from minikafka.base.model import TopicPartition
from minikafka.kafka.records.batch import stamp
from minikafka.kafka.records.header import HEADER
from minikafka.runtime.storage import DiskStorage
from minikafka.storage.log.log import Log

SIZE = 259
TICK = 64
EPOCH = 3


@contextmanager
def fresh_log() -> Iterator[Log]:
    """Yield an empty log in a new directory. A signal can interrupt an append, so nothing is written at the end."""
    with tempfile.TemporaryDirectory() as directory:
        log = Log.open(
            DiskStorage(), f"{directory}/t-0", TopicPartition("t", 0), TopicConfig(), clean=True
        )
        try:
            yield log
        finally:
            log.abandon()


def after_ticks(operations: int, tick: Callable[[], None], log: Log) -> int:
    """Call `tick`, which appends 64 batches, until all operations are done; return the log end offset."""
    for _ in range(-(-operations // TICK)):
        tick()
    return log.written_log_end_offset


def append_and_flush(operations: int) -> Outcome:
    """Run the leader's path: append 64 checked batches, then write them with one pwritev."""
    buffer = bytearray(batch_of(SIZE) * TICK)
    view = memoryview(buffer)
    header = HEADER.unpack_from(buffer, 0)

    with fresh_log() as log:

        def tick() -> None:
            for start in range(0, SIZE * TICK, SIZE):
                log.append(view[start : start + SIZE], header, EPOCH, 0)
            log.flush()

        return timed(operations, lambda: after_ticks(operations, tick, log))


def append_replicated(operations: int) -> Outcome:
    """Run the follower's path: check the headers and CRCs of 64 batches, then write them with one pwrite."""
    buffer = bytearray(batch_of(SIZE) * TICK)
    view = memoryview(buffer)
    length = HEADER.unpack_from(buffer, 0)[1]

    with fresh_log() as log:

        def tick() -> None:
            offset = log.log_end_offset
            for index in range(TICK):
                stamp(buffer, index * SIZE, offset + index, length, EPOCH)
            log.append_replicated(buffer, view, 0, len(buffer))

        return timed(operations, lambda: after_ticks(operations, tick, log))


BENCHES = (append_and_flush, append_replicated)

if __name__ == "__main__":
    lifetime.live_blocking(partial(main, *BENCHES))
