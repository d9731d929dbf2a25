"""The port of a directory in which readers see only finished files, although its writers may be killed at any time.

Tasks write *staged* files, which no reader sees. The driver lists the staged files of a change in a *decision*, and
then publishes them under their final names. Invariant: after a decision was written, the files of the change become
visible, or the next writer undoes the change; before it, none of them is visible.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

import pyarrow as pa

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.names import parse_json

STAGING: Final = "_staging"
COMMITS: Final = "_commits"
LOCK: Final = "_lock"


class DirectoryBusy(MinikafkaError):
    """Another process writes the directory."""


class StagedOutput(NamedTuple):
    """A new staged file: its name below `_staging`, and the open file, which the caller must not close."""

    name: str
    file: BinaryIO


class OutputFiles(Protocol):
    """A directory of output files. Names are paths below it, with `/` between their parts."""

    url: str
    """The absolute path or the URI of the directory, for messages."""

    def locked(self, recover: Callable[[], None]) -> AbstractContextManager[None]:
        """Be the only writer during the `with` body. First call `recover`, and remove the files of a crashed run.

        Raises `DirectoryBusy` if another process writes the directory.
        """

    def has(self, folder: str) -> bool:
        """True if a folder has a file."""

    def names(self, folder: str = "") -> list[str]:
        """Return the names of all files below a folder, sorted, without top folders that begin with `_` or `.`."""

    def folders(self, folder: str = "") -> list[str]:
        """Return the names of the folders directly in a folder, sorted, without the path of the folder."""

    def open(self, name: str) -> pa.NativeFile:
        """Open a file for random reads."""

    def stage(self, name: str) -> AbstractContextManager[StagedOutput]:
        """Open a new staged file. It is complete and durable after the `with` body has ended without an error.

        Every call creates a different file, whose name begins with `name`.
        """

    def check_staged(self, names: Iterable[str]) -> None:
        """Raise a MinikafkaError if one of these staged files does not exist for the driver."""

    def publish(self, moves: Mapping[str, str]) -> None:
        """Move staged files to their final names. A file that is no longer staged has been moved before."""

    def add(self, name: str, moves: Mapping[str, str]) -> None:
        """Publish staged files of which each may appear without the others, as the newest change of this name.

        A crash may leave it as a decision with the key `files`, which the caller then publishes. Raises
        `DirectoryBusy`, and changes nothing, if another process has become the writer.
        """

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, if they exist."""

    def remove_folder(self, folder: str) -> None:
        """Remove all files below a folder."""

    def facts(self, folder: str) -> dict[str, dict[str, Any]]:
        """Return what `write_facts` has written to a folder, by name, sorted by name."""

    def write_facts(self, folder: str, name: str, facts: Mapping[str, Any]) -> None:
        """Write `facts` under a name in a folder, and replace the old facts of this name at once."""

    def decisions(self) -> dict[str, dict[str, Any]]:
        """Return the current decisions by name, sorted by name."""

    def decide(self, name: str, facts: Mapping[str, Any]) -> None:
        """Write a decision, and replace the old decision of this name at once.

        Raises `DirectoryBusy`, and changes nothing, if another process has become the writer.
        """

    def forget(self, names: Iterable[str]) -> None:
        """Remove decisions."""


def new_name(name: str) -> str:
    """Return a name for a staged file that no other call returns."""
    return f"{name}.{os.urandom(6).hex()}"


def parsed(place: str, data: bytes) -> dict[str, Any]:
    """Return the JSON object in a file. Raises `ConfigError` if the file is damaged."""
    try:
        return parse_json(data)
    except ValueError as error:
        raise ConfigError(f"{place} is damaged: {error}; restore it from a backup") from error
