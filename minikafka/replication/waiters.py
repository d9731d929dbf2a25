"""Interfaces of requests and sessions that wait for a change of a partition."""

from __future__ import annotations

from typing import Protocol


class Waiter(Protocol):
    """A request that waits for a change of the partition's high watermark, role, or replicas' log start offsets."""

    def attempt(self) -> None:
        """Send the response if the request need not wait any longer."""


class Reader(Protocol):
    """A partition in a consumer's fetch session, marked dirty when the replica has something new."""

    def mark_dirty(self) -> None:
        """Record that the session must read the partition again.

        The caller has already removed this reader from `Partition.readers`.
        """
