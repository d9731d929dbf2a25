"""Measures how fast consumers read existing records, with one connection and one thread per partition."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from struct import Struct
from time import perf_counter
from typing import NamedTuple

from benchmarks import closed_loop
from benchmarks.closed_loop import LoadError
from benchmarks.kafka import (
    LENGTH,
    Leader,
    Secure,
    Session,
    end_offset,
    fetch_request,
    produce_loads,
)
from benchmarks.load_end_to_end import next_offset

FETCH_BYTES = 8 << 20
FILL_BYTES = 16_384
FILL_REQUESTS = 20_000


class CatchUp(NamedTuple):
    """The numbers of records and bytes that consumers have read, and the duration in seconds."""

    records: int
    bytes: int
    seconds: float

    @property
    def gigabytes_per_second(self) -> float:
        """Gigabytes of records per second."""
        return self.bytes / self.seconds / 1e9


async def fill(topic: str, leaders: Sequence[Leader], scale: float) -> None:
    """Produce the records to read. All records fit into the page cache."""
    total = max(int(FILL_REQUESTS * scale), 10)
    loads = produce_loads(leaders, topic, FILL_BYTES, version=7, in_flight=32, total=total)
    await closed_loop.run(loads)
    # Otherwise the write-back of dirty pages would slow the reads.
    await asyncio.get_running_loop().run_in_executor(None, os.sync)


def run(topic: str, leaders: Sequence[Leader], secure: Secure | None = None) -> CatchUp:
    """Read every partition from its beginning to its current high watermark. Raises LoadError."""
    ends = [end_offset(leader, topic, secure) for leader in leaders]
    started = perf_counter()
    with ThreadPoolExecutor(len(leaders)) as threads:
        read = list(threads.map(partial(_read, topic, secure=secure), leaders, ends))
    return CatchUp(sum(ends), sum(read), perf_counter() - started)


def _read(topic: str, leader: Leader, end: int, secure: Secure | None) -> int:
    """Read the records below offset `end`, and return their size in bytes."""
    buffer = bytearray(2 * FETCH_BYTES)
    view = memoryview(buffer)
    head = 4 + 4 + 2 + 4 + 4 + 2 + len(topic.encode()) + 4
    partition = Struct(">ihqqqi")
    offset = total = 0
    with Session(leader.host, leader.port, secure) as session:
        while offset < end:
            session.socket.sendall(
                fetch_request(
                    topic,
                    {leader.partition: offset},
                    wait_ms=500,
                    partition_bytes=FETCH_BYTES,
                    total_bytes=FETCH_BYTES,
                )
            )
            size = _receive(session, view)
            _, error, _, _, _, aborted = partition.unpack_from(buffer, head)
            if error:
                raise LoadError(f"fetch was answered with error {error}")
            position = head + 34 + 16 * max(aborted, 0) + 4
            (count,) = LENGTH.unpack_from(buffer, position)
            offset = next_offset(view[position + 4 : size], offset)
            total += max(count, 0)
    return total


def _receive(session: Session, view: memoryview) -> int:
    """Receive one frame. Write its content after the length field to `view`, and return the content's size."""
    _fill(session, view[: LENGTH.size])
    size: int = LENGTH.unpack_from(view)[0]
    _fill(session, view[:size])
    return size


def _fill(session: Session, view: memoryview) -> None:
    while view:
        count = session.socket.recv_into(view)
        if not count:
            raise LoadError("the server closed the connection")
        view = view[count:]
