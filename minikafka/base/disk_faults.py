"""Faults of a broker's disk that a test has asked for, as plain values."""

from __future__ import annotations

from typing import Final, NamedTuple

FULL: Final = "full"
"""`value`: the bytes that the files of the directory may have in all."""
SLOW_SYNC: Final = "slow-sync"
"""`value`: the milliseconds that every fsync takes longer."""
FAILED_SYNC: Final = "failed-sync"
KINDS: Final = (FULL, SLOW_SYNC, FAILED_SYNC)


class DiskFault(NamedTuple):
    """One fault in one log directory. `hits`: number of operations that it has refused or delayed."""

    id: str
    kind: str
    directory: str
    value: int = 0
    hits: int = 0

    def concerns(self, path: str) -> bool:
        """True if the path is the log directory or lies in it."""
        return path == self.directory or path.startswith(self.directory + "/")
