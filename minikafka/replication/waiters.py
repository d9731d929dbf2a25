"""Waits for changes of a partition: fetches, deletions of records, and the fetch sessions of consumers."""

from __future__ import annotations

from typing import Protocol


class Waiter(Protocol):
    """A request that waits for the partition's high watermark, role, or the log start offsets of its replicas."""

    def attempt(self) -> None:
        """Send the response if the request need not wait any longer."""


class Reader(Protocol):
    """A partition in the fetch session of a consumer that has been sent all there is."""

    def mark_dirty(self) -> None:
        """Look at the partition again, which no longer has this reader."""
