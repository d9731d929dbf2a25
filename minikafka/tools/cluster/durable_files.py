"""Files of a cluster that outlive a power loss, and that only their owner may read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from minikafka.base.errors import StorageFailed
from minikafka.runtime.storage import DiskStorage


def make_durable(path: Path) -> None:
    """Create a directory that will exist after a power loss, with its parents, if it does not exist. Raises OSError."""
    try:
        DiskStorage().make_directories(str(path))
    except StorageFailed as failure:
        raise failure.cause from None


def write_private(file: Path, text: str) -> None:
    """Replace a file atomically and durably; only the owner may read the new file.

    Raises OSError, which names the file.
    """
    new_file = file.with_name(f"{file.name}.new")
    try:
        new_file.unlink(missing_ok=True)
        descriptor = os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        new_file.replace(file)
        DiskStorage().sync_directory(str(file.parent))
    except StorageFailed as failure:
        raise failure.cause from None
    except OSError as error:
        error.filename = error.filename or str(file)
        raise


def is_same_file(file: IO[bytes], path: Path) -> bool:
    """True if `path` still names the open file.

    A lock on a removed file is useless: another process may create and lock a new file at `path`.
    """
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
