"""The port of a store that has neither locks nor renames, and the errors of its adapters.

The only operation that two writers cannot both complete is `create`. Reads and lists show every earlier write.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

import pyarrow as pa

from minikafka.base.errors import MinikafkaError


class StorageError(MinikafkaError):
    """A store has refused or failed a request; the text names the place and the remedy."""


class StorageRefused(StorageError):
    """A store has refused a request for lack of a right, so that a repetition is of no use."""


class FileStore(Protocol):
    """The files below one URI. Names are paths below it. All methods raise `StorageError`."""

    url: str
    """The URI, for messages."""

    def files(self, folder: str = "") -> list[str]:
        """Return the names of all files below a folder, sorted."""

    def folders(self, folder: str = "") -> list[str]:
        """Return the names of the folders directly in a folder, sorted, without the path of the folder."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is no such file."""

    def open_input(self, name: str) -> pa.NativeFile:
        """Open a file for random reads."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file, and replace a file of this name at once."""

    def open_output(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a new file, which appears when the `with` body has ended without an error."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a file if there is none of this name; False if there is one, which is kept.

        Of several callers, exactly one gets True.
        """

    def move(self, source: str, target: str) -> None:
        """Move a file to another name, under which it appears complete. Do nothing if it does not exist."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove files, if they exist."""
