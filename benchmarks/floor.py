"""The floor: a minimal replicated log, which uses only uvloop, CRC-32C and the page cache.

There are one leader and two followers, each in its own process. A produce request is `length, 1, payload`.
The leader computes a CRC of the payload, writes the payload, and sends it to fetching followers. The leader
responds when both followers have fetched the next offset. There are no topics, epochs, record offsets, indexes
or errors, so the floor shows the cost of a broker without Kafka's semantics.

    python -m benchmarks.floor leader|follower PORT     (a leader with port 0 prints its port)
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvloop

from benchmarks.closed_loop import Answer
from minikafka.kafka.records.codecs import crc32c
from minikafka.runtime.spawning import die_with

PRODUCE, FETCH, RECORDS = 1, 2, 3
LENGTH = struct.Struct(">i")
FETCH_REQUEST = struct.Struct(">iBqq")  # length, FETCH, offset, follower
RECORDS_HEAD = struct.Struct(">iBqq")  # length, RECORDS, high watermark, offset
ACKNOWLEDGEMENT = struct.pack(">iq", 8, 0)
FETCH_BYTES_MAX = 1 << 20
BUFFER_BYTES = 1 << 23
FRAME_BYTES_MAX = 1_200_000
FILE_BYTES = 256 << 20
"""Size at which a file of the log is full and the next file begins."""

ANSWER = Answer(len(ACKNOWLEDGEMENT), struct.Struct(">i8x"), (8,))


def request(payload_bytes: int) -> bytes:
    """Return an encoded produce request in the format of the floor, the log that this module implements."""
    return struct.pack(">iB", payload_bytes + 1, PRODUCE) + b"x" * payload_bytes


class Frames(asyncio.BufferedProtocol):
    """A protocol that calls `frame(start, end)` for each complete frame."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.buffer = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.read = self.written = 0
        transport.set_write_buffer_limits(high=1 << 24)

    def get_buffer(self, hint: int) -> memoryview:
        if BUFFER_BYTES - self.written < FRAME_BYTES_MAX:
            left = self.written - self.read
            self.view[:left] = self.view[self.read : self.written]
            self.read, self.written = 0, left
        return self.view[self.written :]

    def buffer_updated(self, count: int) -> None:
        self.written += count
        start = self.read
        while self.written - start >= 4:
            end = start + 4 + LENGTH.unpack_from(self.buffer, start)[0]
            if end > self.written:
                break
            self.frame(start + 4, end)
            start = end
        if start == self.written:
            start = self.written = 0
        self.read = start

    def frame(self, start: int, end: int) -> None:
        raise NotImplementedError


class Log:
    """An append-only log in temporary files. Only the last two files are kept."""

    def __init__(self) -> None:
        self.end = self.base = 0
        self.begin()
        self.former, self.former_base = self.file, self.base

    def begin(self) -> None:
        """Start a new file at the end of the log."""
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - open until it is dropped
        self.descriptor = self.file.fileno()
        self.base = self.end

    def append(self, payload: memoryview) -> None:
        if self.end - self.base >= FILE_BYTES:
            self.former, self.former_base = self.file, self.base
            self.begin()
        crc32c(payload)
        os.pwrite(self.descriptor, payload, self.end - self.base)
        self.end += len(payload)

    def read(self, offset: int) -> bytes:
        """Return bytes from the offset on: at most FETCH_BYTES_MAX bytes, and only from one file."""
        if offset < self.base:
            count = min(FETCH_BYTES_MAX, self.base - offset)
            return os.pread(self.former.fileno(), count, offset - self.former_base)
        return os.pread(
            self.descriptor, min(FETCH_BYTES_MAX, self.end - offset), offset - self.base
        )


class Leader:
    """The state of the floor's leader, shared by all its connections."""

    def __init__(self) -> None:
        self.log = Log()
        self.high_watermark = 0
        self.follower_ends: dict[int, int] = {}
        self.waiting: deque[tuple[int, LeaderConnection]] = deque()
        self.parked: dict[LeaderConnection, int] = {}

    def produced(self, payload: memoryview, connection: LeaderConnection) -> None:
        self.log.append(payload)
        self.waiting.append((self.log.end, connection))
        for follower, offset in list(self.parked.items()):
            del self.parked[follower]
            self.serve(follower, offset)

    def fetched(self, follower: int, offset: int, connection: LeaderConnection) -> None:
        self.follower_ends[follower] = offset
        if len(self.follower_ends) == 2:
            self.acknowledge(min(self.follower_ends.values()))
        if offset < self.log.end:
            self.serve(connection, offset)
        else:
            self.parked[connection] = offset

    def acknowledge(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        answers: dict[LeaderConnection, int] = {}
        while self.waiting and self.waiting[0][0] <= high_watermark:
            _, connection = self.waiting.popleft()
            answers[connection] = answers.get(connection, 0) + 1
        for connection, count in answers.items():
            connection.transport.write(ACKNOWLEDGEMENT * count)

    def serve(self, connection: LeaderConnection, offset: int) -> None:
        data = self.log.read(offset)
        head = RECORDS_HEAD.pack(len(data) + 17, RECORDS, self.high_watermark, offset)
        connection.transport.writelines([head, data])


class LeaderConnection(Frames):
    """A connection to the leader from a producer or a follower."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader

    def frame(self, start: int, end: int) -> None:
        if self.buffer[start] == PRODUCE:
            self.leader.produced(self.view[start + 1 : end], self)
        else:
            _, _, offset, follower = FETCH_REQUEST.unpack_from(self.buffer, start - 4)
            self.leader.fetched(follower, offset, self)


class FollowerConnection(Frames):
    """A follower's connection: fetches, checks and writes payloads in a loop."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.log = Log()
        self.ask()

    def ask(self) -> None:
        self.transport.write(FETCH_REQUEST.pack(17, FETCH, self.log.end, os.getpid()))

    def frame(self, start: int, end: int) -> None:
        self.log.append(self.view[start + 17 : end])
        self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        asyncio.get_running_loop().stop()


async def serve(role: str, port: int) -> None:
    """Run a leader or a follower of the floor until the process is killed or a follower loses its leader."""
    loop = asyncio.get_running_loop()
    if role == "leader":
        leader = Leader()
        server = await loop.create_server(lambda: LeaderConnection(leader), "127.0.0.1", port)
        print(server.sockets[0].getsockname()[1], flush=True)
    else:
        await loop.create_connection(FollowerConnection, "127.0.0.1", port)
    await asyncio.Event().wait()


@contextmanager
def running_floor() -> Iterator[int]:
    """Run a leader and two followers in separate processes, and yield the leader's port."""
    command = [sys.executable, "-m", "benchmarks.floor"]
    # The started processes end with this process, even if this process is killed with SIGKILL.
    start = partial(subprocess.Popen, text=True, preexec_fn=partial(die_with, os.getpid()))
    leader: subprocess.Popen[str] = start([*command, "leader", "0"], stdout=subprocess.PIPE)
    processes: list[subprocess.Popen[str]] = [leader]
    try:
        assert leader.stdout is not None
        port = int(leader.stdout.readline())
        follow = [*command, "follower", str(port)]
        processes += [start(follow) for _ in range(2)]
        yield port
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGKILL)
            process.wait()
        if leader.stdout is not None:
            leader.stdout.close()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2])))
