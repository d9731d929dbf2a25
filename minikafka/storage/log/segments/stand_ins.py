"""Two substitutes for the log file of a segment: one before the first write, one after a failed write."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from minikafka.base.errors import StorageFailed
from minikafka.base.ports import Buffer, File, Storage


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


def create_files(storage: Storage, paths: Sequence[str], made: Callable[[], None]) -> File:
    """Create empty files, then call `made`; return the last file, open. Raises StorageFailed, and leaves no file."""
    *others, last = paths
    file = storage.open(last, create=True)

    def remove() -> None:
        file.close()
        for path in paths:
            storage.remove(path)

    with undone(remove):
        for path in others:
            storage.open(path, create=True).close()
        made()
    return file


@contextmanager
def undone(undo: Callable[[], None]) -> Iterator[None]:
    """Return a context manager. If the `with` body raises StorageFailed, call `undo` before the error is raised."""
    try:
        yield
    except StorageFailed:
        with suppress(StorageFailed):
            undo()
        raise
