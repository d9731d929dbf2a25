"""A client that sends the frames given by a test and keeps the responses."""

from __future__ import annotations

from minikafka.base.ports import Buffer, Link
from minikafka.simulation.transport import MemoryLink


class Peer:
    """One connection through a `MemoryTransport`."""

    link: MemoryLink

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_closed = False
        self._buffer = bytearray(64 << 10)

    def connected(self, link: Link) -> None:
        assert isinstance(link, MemoryLink)
        self.link = link

    def disconnected(self, error: Exception | None) -> None:
        self.is_closed = True

    def get_buffer(self, hint: int) -> Buffer:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self.data += self._buffer[:count]

    def drained(self) -> None:
        pass

    def frames(self) -> list[bytes]:
        found, at = [], 0
        while at + 4 <= len(self.data):
            size = int.from_bytes(self.data[at : at + 4], "big")
            found.append(bytes(self.data[at + 4 : at + 4 + size]))
            at += 4 + size
        return found

    def answered(self) -> list[int]:
        """Return the correlation ids of the responses, in order of arrival."""
        return [int.from_bytes(frame[:4], "big") for frame in self.frames()]
