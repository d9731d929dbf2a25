"""Clients of an in-memory broker that send encoded requests: one never reads the responses, one keeps them."""

from __future__ import annotations

from typing import Any

from minikafka.base.ports import Buffer, Link
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.transport import MemoryLink


class Silent:
    """A client that sends requests and receives no responses."""

    link: MemoryLink

    def connected(self, link: Link) -> None:
        assert isinstance(link, MemoryLink)
        self.link = link
        link.pause_reading()

    def disconnected(self, error: Exception | None) -> None:
        pass

    def get_buffer(self, hint: int) -> Buffer:
        return bytearray(64 << 10)

    def buffer_updated(self, count: int) -> None:
        pass

    def drained(self) -> None:
        pass


class Reader(Silent):
    """A client that keeps the responses that it receives."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_closed = False
        self._buffer = bytearray(64 << 10)

    def get_buffer(self, hint: int) -> Buffer:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self.data += self._buffer[:count]

    def disconnected(self, error: Exception | None) -> None:
        self.is_closed = True

    def responses(self) -> list[Any]:
        found, at = [], 0
        while at + 4 <= len(self.data):
            size = int.from_bytes(self.data[at : at + 4], "big")
            if at + 4 + size > len(self.data):
                break
            found.append(bytes(self.data[at + 4 : at + 4 + size]))
            at += 4 + size
        return found


async def join(cluster: MemoryCluster) -> Reader:
    """Connect a client to broker 0. It receives nothing until its link resumes reading."""
    reader = Reader()
    await cluster.transport.connect(lambda: reader, "127.0.0.1", 9092)
    return reader
