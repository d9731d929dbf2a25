"""`durable-end`: a note of the last acknowledged transaction, so that a lost end of the files is noticed.

The first line is fsynced: when a server starts or stops, and before the first transactions of a new log are
acknowledged. The second line, in a block of its own, is written after each flush, without an fsync: the death of the
process leaves it exact, and a loss of power leaves an older line or an invalid one.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from zlib import adler32

from minikafka.base.ports import File, Storage
from minikafka.zookeeper.server.store.files import CorruptData

NAME: Final = "durable-end"
SECOND_LINE_AT: Final = 4096
"""Position of the second line: a block that is not written must not take the first line with it."""
_LINE: Final = re.compile(rb"((\S+) (\d{1,19}) ([0-9a-f]{1,16})) ([0-9a-f]{8})\n")
_OLD_LINE: Final = re.compile(rb"(log\.[0-9a-f]{1,16}) (\d{1,19})\n")
"""The whole file, as earlier versions wrote it: without zxid and checksum."""
_NO_LOG: Final = "-"


class DurableEnd(NamedTuple):
    """Name and size of the last log, and the last zxid that are on the disk.

    `name`: "-" if there is no log. `zxid`: None if an earlier version wrote the file.
    """

    name: str
    size: int
    zxid: int | None

    @property
    def first_zxid(self) -> int:
        """The zxid in the name of the log; 0 if there is no log."""
        return 0 if self.name == _NO_LOG else int(self.name.partition(".")[2], 16)


def without_log(zxid: int) -> DurableEnd:
    """Return the end of a directory that has only a snapshot."""
    return DurableEnd(_NO_LOG, 0, zxid)


def read(storage: Storage, directory: str) -> DurableEnd | None:
    """Return the durable end in the note of a data directory; None if there is no note. Raises CorruptData."""
    path = f"{directory}/{NAME}"
    if not storage.exists(path):
        return None
    content = storage.read(path)
    found = _decoded(content[SECOND_LINE_AT:]) or _decoded(content[:SECOND_LINE_AT])
    if found is None:
        raise CorruptData(
            f"{path} is damaged, so that nobody can tell whether the newest transactions are still in"
            f" {directory}; {ways_out(directory, path)}"
        )
    return found


def missing(directory: str) -> CorruptData:
    """Return the exception for a data directory without the note that it must have."""
    path = f"{directory}/{NAME}"
    return CorruptData(
        f"{path} is missing, so that nobody can tell whether the newest transactions are still in {directory};"
        f" {ways_out(directory, path)}"
    )


def write(storage: Storage, directory: str, end: DurableEnd) -> None:
    """Replace the note, and make it durable."""
    storage.write_atomically(f"{directory}/{NAME}", _encoded(end))


class DurableNote:
    """The note of a running server."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self._file: File | None = None

    def replace(self, end: DurableEnd) -> None:
        """Write the first line, and make it durable."""
        self.close()
        write(self._storage, self._directory, end)
        self._file = self._storage.open(f"{self._directory}/{NAME}")

    def update(self, end: DurableEnd) -> None:
        """Write the second line, without an fsync. Call `replace` first."""
        assert self._file is not None
        self._file.pwritev((_encoded(end),), SECOND_LINE_AT)

    def close(self) -> None:
        """Close the file, without a change of the note."""
        if self._file is not None:
            self._file.close()
            self._file = None


def ways_out(directory: str, path: str, *, first: str = "") -> str:
    """Return the advice to a user who has lost transactions with a file. `first`: a step before the copy."""
    return (
        f"restore {path} from a copy of the directory. Without one, for a Kafka cluster: move {directory} away, and run"
        f" 'minikafka zk recover'; for other clients: {first}copy what is left with"
        f" 'minikafka zk import {directory} NEW_DIRECTORY', and use the copy"
    )


def _encoded(end: DurableEnd) -> bytes:
    text = f"{end.name} {end.size} {end.zxid:x}".encode()
    return b"%b %08x\n" % (text, adler32(text))


def _decoded(block: bytes) -> DurableEnd | None:
    """Return the durable end that a line of the note names; None if the line is missing or damaged."""
    if match := _LINE.match(block):  # what follows may be left of a write that was not fsynced
        if int(match[5], 16) != adler32(match[1]):
            return None
        return DurableEnd(match[2].decode(errors="replace"), int(match[3]), int(match[4], 16))
    match = _OLD_LINE.fullmatch(block)
    return DurableEnd(match[1].decode(), int(match[2]), None) if match else None
