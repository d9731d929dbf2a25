"""The log and the snapshots of one server: they make its transactions durable, and are read after a restart.

Promise: a transaction is never lost once `sync` has returned after its `append`; and `recover` yields the state
after some transaction that was appended, never another one. A lock keeps a second server of this kind out. Apache
ZooKeeper does not look at the lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikafka.base.errors import DirectoryInUse
from minikafka.base.ports import File, Rng, Storage
from minikafka.zookeeper.server.core.changes import LoggedTransaction
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.store import durable_end, snapshots, transaction_log
from minikafka.zookeeper.server.store.durable_end import DurableEnd, DurableNote
from minikafka.zookeeper.server.store.files import (
    BATCH_BYTES_MAX,
    LOCK,
    LOG_HEADER,
    VERSION,
    CorruptData,
    listing,
    remove_unfinished,
)
from minikafka.zookeeper.server.store.recovery import Recovery

ADVANCE_BYTES: Final = 64 << 10
"""Zeros that a log file gets in advance."""
_SNAPSHOTS_KEPT: Final = 3
_KEY_FILE: Final = "session-secret"
_KEY_BYTES: Final = 16


class Store:
    """The files of one data directory. `notes`: what `recover` has repaired or skipped, for the server's log.

    `transactions_since_roll`: number of transactions that a start now would replay.
    Every method but `secret` raises StorageFailed if the disk fails; the process must then end.
    """

    def __init__(self, storage: Storage, directory: str) -> None:
        self.directory = directory
        self.folder = f"{directory}/{VERSION}"
        self.notes: list[str] = []
        self.transactions_since_roll = 0
        self._storage = storage
        self._lock: File | None = None
        self._log: File | None = None
        self._end = 0
        """Bytes of records in the current log file, with its header."""
        self._size = 0
        """Bytes of the current log file, with the zeros behind the last record."""
        self._durable = 0
        """Bytes of the current log file that are on the disk; 0: nor is its name."""
        self._zxid = 0
        """The last zxid in the log."""
        self._note = DurableNote(storage, directory)

    # ---- start and end

    def recover(self, state: ServerState) -> None:
        """Lock the directory; load its newest snapshot and the transactions after it into a new state.

        Write an empty snapshot at the first start. Raises CorruptData, UnsupportedData or DirectoryInUse.
        """
        self._lock_directory()
        durable = durable_end.read(self._storage, self.directory)
        recovery = Recovery(self._storage, self.folder, durable=durable)
        if recovery.is_empty():
            recovery.refuse_loss(state.zxid)
            self._sync_names()
            self.write_snapshot(state)
            end = durable_end.without_log(state.zxid)
        else:
            recovery.load(state)
            if durable is None and recovery.has_own_logs:
                raise durable_end.missing(self.directory)
            end = recovery.repair()
        durable_end.write(self._storage, self.directory, end)
        self.notes += recovery.notes
        self.transactions_since_roll = recovery.replayed

    def _lock_directory(self) -> None:
        self._storage.make_directories(self.folder)
        path = f"{self.directory}/{LOCK}"
        self._lock = self._storage.lock(path)
        if self._lock is None:
            raise DirectoryInUse(
                f"{self.directory} is in use: {self._storage.lock_holder(path)} holds {path}; stop it first"
            )

    def _sync_names(self) -> None:
        """Make the names of the directories durable, including those that an earlier, killed start has created."""
        self._storage.sync_directory(self.directory)
        self._storage.sync_directory(self.directory.rpartition("/")[0] or "/")

    def close(self) -> None:
        """Close the log and unlock the directory. Does not sync, but notes up to where the log is durable."""
        if self._log is not None and self._durable == self._end:
            self._note.replace(self._durable_end(self._log))
        self._note.close()
        for file in (self._log, self._lock):
            if file is not None:
                file.close()
        self._log = self._lock = None

    def secret(self, rng: Rng) -> bytes:
        """Return the secret for the passwords of sessions; create it at the first start."""
        path = f"{self.directory}/{_KEY_FILE}"
        if not self._storage.exists(path):
            self._storage.write_atomically(path, rng.bytes(_KEY_BYTES), private=True)
        found = self._storage.read(path)
        if len(found) != _KEY_BYTES:
            raise CorruptData(
                f"{path} must have {_KEY_BYTES} bytes, but has {len(found)}; remove it: a new secret is made,"
                " and clients must open new sessions"
            )
        return found

    # ---- the log

    def append(self, batch: Sequence[LoggedTransaction]) -> None:
        """Write transactions to the log; `sync` makes them durable. Above 4 MiB it syncs in between."""
        if not batch:
            return
        slices: list[bytes] = []
        size = len(LOG_HEADER) + self._end - self._durable
        for transaction in batch:
            record = transaction_log.encode(transaction, 0 if slices else self._durable)
            if size + len(record) > BATCH_BYTES_MAX:
                self._write(slices, batch[0].zxid)
                self.sync()
                slices, size = [], len(LOG_HEADER)
            slices.append(record)
            size += len(record)
            self._zxid = transaction.zxid
        self._write(slices, batch[0].zxid)
        self.transactions_since_roll += len(batch)

    def _write(self, slices: list[bytes], first_zxid: int) -> None:
        if not slices:
            return
        if self._log is None:
            self._log = self._new_file(first_zxid)
            slices = [LOG_HEADER, *slices]
        data = b"".join(slices)
        self._extend(self._log, self._end + len(data))
        self._end += self._log.pwritev((data,), self._end)

    def _extend(self, log: File, end: int) -> None:
        """Extend a file that is too short, beyond `end`, as Apache ZooKeeper does.

        Where an fsync does not change a file's size, the file system need not commit its own journal.
        """
        if end > self._size:
            self._size = end + ADVANCE_BYTES
            log.truncate(self._size)

    def _new_file(self, zxid: int) -> File:
        file = self._storage.open(f"{self.folder}/log.{zxid:x}", create=True)
        if file.size() > 0:
            raise CorruptData(
                f"{file.path} exists, although no transaction from {zxid:#x} on is known"
            )
        self._end = self._durable = self._size = 0
        return file

    def sync(self) -> None:
        """Make all appended transactions durable. May run in a thread, while no other method runs."""
        if self._log is None or self._durable == self._end:
            return
        self._log.sync()
        if self._durable == 0:
            self._storage.sync_directory(self.folder)
            self._durable = self._end
            self._note.replace(self._durable_end(self._log))
        else:
            self._durable = self._end
            self._note.update(self._durable_end(self._log))

    def _durable_end(self, log: File) -> DurableEnd:
        return DurableEnd(log.path.rpartition("/")[2], self._durable, self._zxid)

    def roll(self) -> None:
        """Let the next append start a new log file. Make the current one durable first: only the last may be torn."""
        if self._log is not None:
            self.sync()
            self._log.close()
            self._log = None
        self.transactions_since_roll = 0

    # ---- snapshots

    def write_snapshot(self, state: ServerState) -> None:
        """Write the state as a sealed snapshot, which exists as a whole or not at all.

        Its transactions must be in the log: another history could follow them after a crash.
        """
        assert not state.journal
        remove_unfinished(self._storage, self.folder)
        sessions = [(session.id, session.timeout_ms) for session in state.sessions.open.values()]
        content = snapshots.encode(state.tree, sessions, state.zxid)
        self._storage.write_atomically(f"{self.folder}/snapshot.{state.zxid:x}", content)

    def purge(self) -> None:
        """Delete all but the newest three snapshots, and the logs that end before the oldest of these."""
        files = listing(self._storage, self.folder)
        kept = files.snapshots[-_SNAPSHOTS_KEPT:]
        for snapshot in files.snapshots[:-_SNAPSHOTS_KEPT]:
            self._storage.remove(snapshot.path)
        for log, following in zip(files.logs, files.logs[1:], strict=False):
            if following.zxid <= kept[0].zxid + 1:
                self._storage.remove(log.path)
