"""What the reads of tasks cost: bytes from brokers, and the time spent waiting for them.

Spark gives a Python data source no way to send numbers from its tasks to the driver. So the driver opens a UDP port
(`minikafka.spark.progress.ReadCosts`), and its jobs have the address as a local property. A task sends one datagram
at the end of its read. A datagram never blocks: if it is lost, the counts are too low, and nothing else happens.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark import TaskContext

from minikafka.spark import RUN_ID
from minikafka.spark.source.fetch import Block

PROPERTY: Final = "minikafka.costs"
"""The local property of jobs that count their costs: a `CountingPort` as JSON."""
DATAGRAM_BYTES: Final = 1024


class CountingPort(NamedTuple):
    """Where the driver counts. `token`: what a datagram must have, so that nobody else changes the counts."""

    host: str
    port: int
    token: str


@dataclass
class Costs:
    """The costs of reads. `bytes`: of record batches as the brokers sent them. `wait_s`: summed over the tasks."""

    bytes: int = 0
    wait_s: float = 0.0

    def add(self, other: Costs) -> None:
        """Add the costs of another read."""
        self.bytes += other.bytes
        self.wait_s += other.wait_s

    def counting(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield the blocks, and count their bytes and the time until each one is there."""
        coming = iter(blocks)
        while True:
            begin = time.perf_counter()
            block = next(coming, None)
            self.wait_s += time.perf_counter() - begin
            if block is None:
                return
            self.bytes += len(block.response.records)
            yield block


@contextmanager
def reported() -> Iterator[Costs]:
    """Yield the costs of a read, which the body counts. Then send them, if the running task's job has an address."""
    found = Costs()
    try:
        yield found
    finally:
        task = TaskContext.get()
        if task is not None and (text := task.getLocalProperty(PROPERTY)):
            send(text, task.getLocalProperty(RUN_ID) or "", found)


def send(address: str, run: str, costs: Costs) -> None:
    """Send a datagram with the costs of a run to a `CountingPort` as JSON. Errors are ignored."""
    to = CountingPort(*json.loads(address))
    content = json.dumps([to.token, run, costs.bytes, costs.wait_s]).encode()
    with suppress(OSError):
        family, kind, number, _, place = socket.getaddrinfo(
            to.host, to.port, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, number) as sender:
            sender.sendto(content, place)


def received(datagram: bytes, token: str) -> tuple[str, Costs] | None:
    """Return the run and its costs; None if the datagram is not one of `send` with this token."""
    try:
        given, run, size, wait_s = json.loads(datagram)
        found = Costs(int(size), float(wait_s))
    except (ValueError, TypeError, RecursionError):
        return None
    return (str(run), found) if given == token else None
