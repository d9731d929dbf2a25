"""A load generator with a fixed number of requests in flight per connection.

The generator shares the processor cores with the brokers, so its work per response is small. All requests
are encoded in advance, and all responses have the same size. The generator counts complete responses, checks
their fixed fields with one unpack, and sends the same number of new requests with one writev.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from time import perf_counter_ns
from typing import Any, NamedTuple

WRITEV_MAX = 1024


class LoadError(Exception):
    """A server returned an error or failed to respond."""


class Answer(NamedTuple):
    """The response that a load expects: the size, and the fields with the expected values."""

    size: int
    fields: Struct
    expected: tuple[int, ...]


class Load(NamedTuple):
    """The load of one connection: `total` requests, which are the entries of `requests` in rotation."""

    host: str
    port: int
    requests: Sequence[bytes]
    answer: Answer
    in_flight: int
    total: int


class Result(NamedTuple):
    """Duration and latencies of a load. `latencies_ns`: pairs (latency, number of responses), sorted."""

    requests: int
    bytes: int
    seconds: float
    latencies_ns: list[tuple[int, int]]

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        """Megabytes of requests per second."""
        return self.bytes / self.seconds / 1e6

    def percentile_ms(self, share: float) -> float:
        """Return the latency in ms at a percentile. `share`: the percentile as a fraction, such as 0.99."""
        left = share * self.requests
        for latency, count in self.latencies_ns:
            left -= count
            if left <= 0:
                return latency / 1e6
        return self.latencies_ns[-1][0] / 1e6


class Connection(asyncio.BufferedProtocol):
    """One connection under load."""

    def __init__(self, load: Load, finished: asyncio.Future[None]) -> None:
        self.load = load
        self.finished = finished
        self.buffer = bytearray(max(1 << 18, 2 * load.answer.size))
        self.view = memoryview(self.buffer)
        self.filled = 0
        self.turn = 0
        self.unsent = self.unanswered = 0
        self.sent: deque[tuple[int, int]] = deque()
        self.latencies: list[tuple[int, int]] = []
        self.sent_bytes = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.descriptor = transport.get_extra_info("socket").fileno()
        transport.set_write_buffer_limits(high=1 << 30)

    async def open(self) -> None:
        """Connect to the broker."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, self.load.host, self.load.port)

    def start(self) -> None:
        """Send the first requests. Each response then triggers the next request."""
        self.unsent = self.unanswered = self.load.total
        self.send(min(self.load.in_flight, self.unsent))

    def get_buffer(self, hint: int) -> memoryview:
        return self.view[self.filled :]

    def buffer_updated(self, count: int) -> None:
        now = perf_counter_ns()
        size, fields, expected = self.load.answer
        filled = self.filled + count
        whole = filled - filled % size
        if not whole:
            self.filled = filled
            return
        for found in fields.iter_unpack(self.view[:whole]):
            if found != expected:
                self.fail(LoadError(f"expected the response fields {expected}, got {found}"))
                return
        self.view[: filled - whole] = self.view[whole:filled]
        self.filled = filled - whole
        self.answered(whole // size, now)

    def answered(self, count: int, now: int) -> None:
        """Record the latencies of `count` responses, and send the same number of new requests."""
        self.unanswered -= count
        self.send(min(count, self.unsent))
        sent = self.sent
        while count:
            at, number = sent[0]
            taken = min(count, number)
            self.latencies.append((now - at, taken))
            count -= taken
            if taken == number:
                sent.popleft()
            else:
                sent[0] = (at, number - taken)
        if not self.unanswered and not self.finished.done():
            self.finished.set_result(None)

    def send(self, count: int) -> None:
        """Send the next `count` requests: directly to the socket if possible, the rest through the event loop."""
        if not count:
            return
        requests = self.load.requests
        number = len(requests)
        turn = self.turn
        slices = [requests[(turn + i) % number] for i in range(count)]
        self.turn = (turn + count) % number
        self.unsent -= count
        self.sent.append((perf_counter_ns(), count))
        self.sent_bytes += sum(map(len, slices))
        for start in range(0, count, WRITEV_MAX):
            self.write(slices[start : start + WRITEV_MAX])

    def write(self, slices: list[bytes]) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.writelines(slices)
            return
        try:
            written = os.writev(self.descriptor, slices)
        except BlockingIOError:
            written = 0
        for index, item in enumerate(slices):
            if written < len(item):
                self.transport.writelines([item[written:], *slices[index + 1 :]])
                return
            written -= len(item)

    def fail(self, error: Exception) -> None:
        if not self.finished.done():
            self.finished.set_exception(error)
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.finished.done():
            self.finished.set_exception(error or LoadError("the server closed the connection"))


async def run(
    loads: Sequence[Load],
    *,
    seconds_max: float = 120.0,
    new_connection: Callable[[Load, asyncio.Future[None]], Connection] = Connection,
) -> Result:
    """Run the loads in parallel until all have ended. Raises LoadError, OSError, TimeoutError."""
    loop = asyncio.get_running_loop()
    connections = []
    try:
        for load in loads:
            made = new_connection(load, loop.create_future())
            await made.open()
            connections.append(made)
        started = perf_counter_ns()
        for connection in connections:
            connection.start()
        async with asyncio.timeout(seconds_max):
            await asyncio.gather(*(connection.finished for connection in connections))
        seconds = (perf_counter_ns() - started) / 1e9
    finally:
        for connection in connections:
            connection.finished.cancel()
            connection.transport.abort()
    latencies = sorted(pair for connection in connections for pair in connection.latencies)
    total = sum(load.total for load in loads)
    return Result(total, sum(item.sent_bytes for item in connections), seconds, latencies)
