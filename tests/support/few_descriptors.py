"""File descriptors that run out: the openings of files that a test makes fail with EMFILE."""

from __future__ import annotations

import errno
from collections.abc import Callable

from support.memory_storage import MemoryStorage

from minikafka.base.errors import StorageFailed


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
