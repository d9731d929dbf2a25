"""A temporary data directory, whose logs can outlive it."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

LOGS: Final = "logs"
"""The subdirectory that `keep_logs` keeps (`ClusterDirectory.logs`)."""


class TemporaryDirectory:
    """A new directory that is removed by `remove`, or else when this object or the interpreter ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="minikafka-"))
        self._kept: set[str] = set()
        weakref.finalize(self, _remove, self.path, self._kept)

    def keep_logs(self) -> None:
        """Leave the directory `logs` in place when everything else is removed."""
        self._kept.add(LOGS)

    def remove(self) -> None:
        """Remove the directory, except for logs to keep."""
        _remove(self.path, self._kept)


def _remove(directory: Path, kept: set[str]) -> None:
    with suppress(FileNotFoundError):
        for entry in directory.iterdir():
            if entry.is_dir() and entry.name not in kept:
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name not in kept:
                entry.unlink()
    with suppress(OSError):  # the kept logs are in it, or there is no directory
        directory.rmdir()
