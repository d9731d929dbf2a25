"""Interfaces of requests and sessions that wait for a change of a partition."""

from __future__ import annotations

from typing import Protocol


class Waiter(Protocol):
    """A request that waits until a partition changes: the high watermark, the role, or a replica's log start offset."""

    def attempt(self) -> None:
        """Send the response if the request need not wait any longer."""


class Reader(Protocol):
    """A partition in a consumer's fetch session. `mark_dirty` is called when the replica has something new to read."""

    def mark_dirty(self) -> None:
        """Record that the session must read the partition again.

        The caller has already removed this reader from `Partition.readers`.
        """
