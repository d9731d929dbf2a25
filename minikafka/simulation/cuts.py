"""The directions between simulated processes in which the network loses everything, in silence."""

from __future__ import annotations

import asyncio
from contextvars import Context

from minikafka.simulation.loop import OUTSIDE, PROCESS


class Cuts:
    """The cut directions, as pairs of the names of processes. A name outlives its process, as a host does.

    `owners`: the process that has last listened on each port.
    """

    def __init__(self) -> None:
        self.owners: dict[int, str] = {}
        self._cut: set[tuple[str, str]] = set()
        self._changed = asyncio.Event()

    def add(self, source: str, target: str) -> None:
        """Lose everything that one process sends to the other."""
        self._cut.add((source, target))

    def remove(self, source: str, target: str) -> None:
        """Let everything pass again."""
        self._cut.discard((source, target))
        self._changed.set()
        self._changed = asyncio.Event()

    def has(self, source: str, target: str) -> bool:
        """True if nothing passes in this direction."""
        return (source, target) in self._cut

    async def wait_until_open(self, source: str, target: str) -> None:
        """Wait until something passes in this direction, as a sender does that sends again until it is answered."""
        while self.has(source, target):
            await self._changed.wait()

    def own(self, port: int) -> None:
        """Note that the running process listens on the port."""
        self.owners[port] = name_of()

    def owner(self, port: int) -> str:
        """Return the name of the process that has last listened on the port."""
        return self.owners.get(port, OUTSIDE.name)


def name_of(context: Context | None = None) -> str:
    """Return the name of the running process, or of the one to which a context belongs."""
    process = PROCESS.get() if context is None else context.get(PROCESS, OUTSIDE)
    return process.name
