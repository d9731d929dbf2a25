"""The file descriptors of a simulated broker, and openings of files that fail because no descriptor is free."""

from __future__ import annotations

import errno
from collections.abc import Callable

from minikafka.base.errors import StorageFailed
from minikafka.simulation.storage import MemoryStorage


class ManyDescriptors:
    """The file descriptors of a broker in memory. By default they never run out."""

    def __init__(self) -> None:
        self.most, self.open = 1_000_000, 0

    def limit(self) -> int:
        """Return the maximum number of open descriptors."""
        return self.most

    def used(self) -> int:
        """Return the number of open descriptors."""
        return self.open


class FewDescriptors:
    """Counts the openings in a storage. While `lacks(path, number)` is true, opening `number` (from 0) fails."""

    def __init__(self, storage: MemoryStorage) -> None:
        self.count = 0
        self.failed = 0
        self.lacks: Callable[[str, int], bool] = lambda path, number: False
        storage.before_open = self._opened

    def _opened(self, path: str) -> None:
        number, self.count = self.count, self.count + 1
        if self.lacks(path, number):
            self.failed += 1
            raise no_descriptor(path)

    def fail_only(self, number: int) -> None:
        """Fail only the opening `number` from now on."""
        self.count = self.failed = 0
        self.lacks = lambda path, at: at == number

    def fail_all(self, below: str = "/") -> None:
        """Fail every opening of a path that begins with `below`."""
        self.count = self.failed = 0
        self.lacks = lambda path, at: path.startswith(below)

    def heal(self) -> None:
        """Let every opening succeed."""
        self.lacks = lambda path, at: False


def no_descriptor(path: str) -> StorageFailed:
    """Return the error of an opening that finds no free descriptor."""
    return StorageFailed(path, OSError(errno.EMFILE, "Too many open files"))
