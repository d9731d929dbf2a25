"""A client that sends requests and never reads the responses."""

from __future__ import annotations

from support.memory_transport import MemoryLink

from minikafka.base.ports import Buffer, Link


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
