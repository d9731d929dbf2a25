"""A reader of ZooKeeper's transaction log: every write that a server applied or refused, in order.

    for transaction in transactions(server.data_dir): ...

The product reads the records (`zookeeper/server/store/transaction_log.py`). Reading a file ends at an incomplete
record, because the server may still be writing. Writes that ZooKeeper refused are also in the log, marked `refused`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from minikafka.zookeeper.server.core import changes
from minikafka.zookeeper.server.store.files import LOG_HEADER, LogRecords
from minikafka.zookeeper.server.store.transaction_log import END, PREFIX, decode

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
    content = file.read_bytes()
    records = LogRecords(content)
    if len(content) >= len(LOG_HEADER) and records.position == 0:
        raise TransactionLogError(f"{file} is not a transaction log")
    for record in records:
        session, _, zxid, time_ms, change = decode(record)
        yield Transaction(zxid, session, time_ms, tuple(_operations(change)))
    if _is_complete(content, records.position):
        raise TransactionLogError(f"{file} is broken at byte {records.position}")


def _is_complete(content: bytes, at: int) -> bool:
    """True if the record at this position has an end, so that the server does not still write it."""
    if at + PREFIX.size > len(content):
        return False
    _, size = PREFIX.unpack_from(content, at)
    end = at + PREFIX.size + size
    return size > 0 and content[end : end + 1] == END


def _operations(change: changes.Change) -> Iterator[Operation]:
    if isinstance(change, changes.Multi):
        for part in change.changes:
            yield from _operations(part)
    elif isinstance(change, changes.SessionClosed):
        yield Operation(CLOSE_SESSION)
        yield from (Operation(DELETE, path) for path in change.paths)
    else:
        yield _operation(change)


def _operation(change: changes.Change) -> Operation:
    if isinstance(change, changes.Created):
        data = change.data or b""
        return Operation(CREATE, change.path, data=data, ephemeral=change.is_ephemeral)
    if isinstance(change, changes.Deleted):
        return Operation(DELETE, change.path)
    if isinstance(change, changes.DataSet):
        return Operation(SET, change.path, change.version, change.data or b"")
    if isinstance(change, changes.Checked):
        return Operation(CHECK, change.path, change.version - 1)  # the log has the next version
    if isinstance(change, changes.AclSet):
        return Operation(SET_ACL, change.path)
    return Operation(OPEN_SESSION if isinstance(change, changes.SessionOpened) else REFUSED)
