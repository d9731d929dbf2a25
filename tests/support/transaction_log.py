"""A reader of ZooKeeper's transaction log: every write that a server applied or refused, in order.

    for transaction in transactions(server.data_dir): ...

Each entry's checksum is verified. Reading a file ends at an incomplete entry, because the server may still be writing.
Writes that ZooKeeper refused are also in the log, marked `refused`. The format is the one of ZooKeeper 3.6 and later:
jute records, as defined in `zookeeper.jute`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CREATE: Final = "create"
DELETE: Final = "delete"
SET: Final = "set"
CHECK: Final = "check"
SET_ACL: Final = "set_acl"
REFUSED: Final = "refused"
"""Type of an operation that failed, or whose multi failed."""
OPEN_SESSION: Final = "open_session"
CLOSE_SESSION: Final = "close_session"

ANY_VERSION: Final = -1

_MAGIC: Final = b"ZKLG"
_FILE_HEADER_BYTES: Final = 16
_END_OF_ENTRY: Final = b"B"
_MULTI: Final = 14
_TTL_CREATE: Final = 21


class TransactionLogError(Exception):
    """Raised for a file that is not a transaction log, or that is damaged before its end."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `version`: the expected version of a check, the new version of a set, else -1."""

    type: str
    path: str = ""
    version: int = ANY_VERSION
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Transaction:
    """Operations applied or refused together, for example the deletions of ephemeral nodes when a session ends."""

    zxid: int
    session: int
    time_ms: int
    ops: tuple[Operation, ...]

    @property
    def refused(self) -> bool:
        """True if no operation of the transaction was applied."""
        return any(op.type == REFUSED for op in self.ops)

    def begins_with_check_of(self, path: str) -> bool:
        """True if the transaction's first operation checks the version of the node `path`."""
        return self.ops[0].type == CHECK and self.ops[0].path == path


def transactions(*data_dirs: Path) -> list[Transaction]:
    """Return all transactions in the servers' log files, in zxid order. Raises TransactionLogError.

    For an ensemble, pass the directories of all members: a member that was down may have received a snapshot instead of
    the transactions that it missed.
    """
    files = [file for directory in data_dirs for file in directory.rglob("version-2/log.*")]
    found = {transaction.zxid: transaction for file in files for transaction in _of_file(file)}
    return [found[zxid] for zxid in sorted(found)]


def _of_file(file: Path) -> Iterator[Transaction]:
    data = file.read_bytes()
    if len(data) < _FILE_HEADER_BYTES:
        return
    if not data.startswith(_MAGIC):
        raise TransactionLogError(f"{file} is not a transaction log")
    at = _FILE_HEADER_BYTES
    while at + 12 <= len(data):
        checksum, length = struct.unpack_from("!qi", data, at)
        entry = data[at + 12 : at + 12 + length]
        at += 12 + length + 1
        if length <= 0 or data[at - 1 : at] != _END_OF_ENTRY:
            return
        if zlib.adler32(entry) != checksum:
            raise TransactionLogError(f"{file} is broken before byte {at}")
        yield _transaction(entry)


def _transaction(entry: bytes) -> Transaction:
    record = _Record(entry)
    session, _, zxid, time_ms, kind = record.unpack("!qiqqi")
    return Transaction(zxid, session, time_ms, tuple(_operations(kind, record)))


def _operations(kind: int, record: _Record) -> Iterator[Operation]:
    if kind != _MULTI:
        yield from _READERS[kind](record)
        return
    for _ in range(record.int()):
        own_kind = record.int()
        yield from _READERS[own_kind](_Record(record.buffer()))


class _Record:
    """A jute record whose fields are read in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def unpack(self, fields: str) -> tuple[int, ...]:
        found = struct.unpack_from(fields, self._data, self._at)
        self._at += struct.calcsize(fields)
        return found

    def int(self) -> int:
        return self.unpack("!i")[0]

    def bool(self) -> bool:
        return bool(self.unpack("!b")[0])

    def buffer(self) -> bytes:
        length = max(self.int(), 0)
        self._at += length
        return self._data[self._at - length : self._at]

    def string(self) -> str:
        return self.buffer().decode()

    def skip_acl(self) -> None:
        for _ in range(max(self.int(), 0)):
            self.int()
            self.buffer()
            self.buffer()


def _create(record: _Record) -> list[Operation]:
    path, data = record.string(), record.buffer()
    record.skip_acl()
    return [Operation(CREATE, path, data=data, ephemeral=record.bool())]


def _create_for_a_while(record: _Record) -> list[Operation]:
    return [Operation(CREATE, record.string(), data=record.buffer())]


def _delete(record: _Record) -> list[Operation]:
    return [Operation(DELETE, record.string())]


def _set(record: _Record) -> list[Operation]:
    path, data = record.string(), record.buffer()
    return [Operation(SET, path, record.int(), data)]


def _check(record: _Record) -> list[Operation]:
    # ZooKeeper logs the compared version plus one.
    return [Operation(CHECK, record.string(), record.int() - 1)]


def _set_acl(record: _Record) -> list[Operation]:
    return [Operation(SET_ACL, record.string())]


def _open_session(_: _Record) -> list[Operation]:
    return [Operation(OPEN_SESSION)]


def _close_session(record: _Record) -> list[Operation]:
    paths = [record.string() for _ in range(max(record.int(), 0))]
    return [Operation(CLOSE_SESSION), *(Operation(DELETE, path) for path in paths)]


def _refused(_: _Record) -> list[Operation]:
    return [Operation(REFUSED)]


_READERS: Final[dict[int, Callable[[_Record], list[Operation]]]] = {
    1: _create,
    15: _create,
    19: _create,
    _TTL_CREATE: _create_for_a_while,
    2: _delete,
    20: _delete,
    5: _set,
    16: _set,
    7: _set_acl,
    13: _check,
    -1: _refused,
    -10: _open_session,
    -11: _close_session,
}
"""Decoders by ZooKeeper's operation code. A container counts as a create, a reconfiguration as a set."""
