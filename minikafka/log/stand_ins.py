"""Two substitutes for the log file of a segment: one before the first write, one after a failed write."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from minikafka.base.errors import StorageFailed
from minikafka.base.ports import Buffer, File


class UnmadeFile:
    """The file of a segment without data. `create` creates and returns the real file."""

    def __init__(self, path: str, create: Callable[[], File]) -> None:
        self.path = path
        self._create = create
        self._is_closed = False

    def pread(self, count: int, position: int) -> bytes:
        """Return no bytes."""
        return b""

    def pwritev(self, slices: Sequence[Buffer], position: int) -> int:
        """Create the real file and write to it."""
        return self.make().pwritev(slices, position)

    def make(self) -> File:
        """Create and return the real file."""
        if self._is_closed:
            raise StorageFailed(self.path, OSError(errno.EBADF, "the log was closed"))
        return self._create()

    def size(self) -> int:
        """Return 0."""
        return 0

    def truncate(self, size: int) -> None:
        """Do nothing: the file is empty."""

    def sync(self) -> None:
        """Do nothing: the file is empty."""

    def close(self) -> None:
        """Close the file: later writes raise StorageFailed and do not create the real file."""
        self._is_closed = True


class RefusingFile:
    """Replaces a file after a failed write or fsync, so that no later call uses it (S37)."""

    def __init__(self, failure: StorageFailed, file: File) -> None:
        self.path = failure.path
        self._failure = failure
        self._file = file

    def _refuse(self, *_: object) -> int:
        raise StorageFailed(self.path, self._failure.cause)

    def pread(self, count: int, position: int) -> bytes:
        """Refuse the call: raise StorageFailed with the error of the failed file."""
        raise StorageFailed(self.path, self._failure.cause)

    def pwritev(self, slices: object, position: int) -> int:
        """Refuse the call: raise StorageFailed with the error of the failed file."""
        return self._refuse()

    def size(self) -> int:
        """Refuse the call: raise StorageFailed with the error of the failed file."""
        return self._refuse()

    def truncate(self, size: int) -> None:
        """Refuse the call: raise StorageFailed with the error of the failed file."""
        self._refuse()

    def sync(self) -> None:
        """Refuse the call: raise StorageFailed with the error of the failed file."""
        self._refuse()

    def close(self) -> None:
        """Close the replaced file."""
        self._file.close()
