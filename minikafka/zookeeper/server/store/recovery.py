"""The recovery of a data directory: the newest whole snapshot is loaded, then the logs after it are replayed.

Damage is repaired only where a crash can have caused it: behind the last durable record of the last log. All other
damage is refused, and so are files that do not reach up to `durable-end`. What a repair cuts off is kept in a file
beside the log.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.ports import Storage
from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.jute import Malformed
from minikafka.zookeeper.server.core.changes import (
    Change,
    Created,
    LoggedTransaction,
    Multi,
    SessionClosed,
)
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.store import durable_end, transaction_log
from minikafka.zookeeper.server.store.durable_end import DurableEnd
from minikafka.zookeeper.server.store.files import (
    BATCH_BYTES_MAX,
    LOG_HEADER,
    CorruptData,
    Listing,
    LogRecords,
    StoreFile,
    UnsupportedData,
    listing,
    read_snapshot,
    remove_unfinished,
)
from minikafka.zookeeper.server.store.snapshots import Snapshot

_TTL_OWNER: Final = -1
"""The upper byte of the owner of a node with a time to live, as a signed number."""
_SHOWN_MAX: Final = 3


class Recovery:
    """One attempt to read a folder `version-2`. Only `repair` changes files.

    `logs_folder`: where the logs are, if not next to the snapshots. `durable`: what must be there, because it was on
    the disk and no crash can have damaged it since; None if unknown. `notes`: damage that was skipped. `used`: the
    snapshot and the logs that `load` has read. `replayed`: number of transactions after the snapshot. `has_own_logs`:
    a server of this kind has written one of these logs.
    """

    def __init__(
        self,
        storage: Storage,
        folder: str,
        logs_folder: str | None = None,
        *,
        durable: DurableEnd | None = None,
    ) -> None:
        self.notes: list[str] = []
        self.used: list[StoreFile] = []
        self.replayed = 0
        self.has_own_logs = False
        self._storage = storage
        self._folder = folder
        self._durable = durable
        snapshots = listing(storage, folder).snapshots
        self._files = Listing(listing(storage, logs_folder or folder).logs, snapshots)
        self._end = durable_end.without_log(0)
        """The end of the last log that has a record."""
        self._last_end = 0
        """The end of the last record in the last log."""
        self._last_read = 0
        """The zxid of the last record that was read."""
        self._torn = b""
        """What follows there, without the zeros at the end of the file."""
        self._with_ttl: dict[str, int] = {}
        """Path → zxid of the nodes that a log creates with a time to live."""

    def is_empty(self) -> bool:
        """Return True if there is neither a log nor a snapshot."""
        return not self._files.logs and not self._files.snapshots

    def lacks_logs(self) -> bool:
        """Return True if transactions were written, but there is no log: the logs may be in another folder."""
        return not self._files.logs and self._files.snapshots[-1].zxid > 0

    def load(self, state: ServerState) -> None:
        """Load the snapshot and replay the logs into a new state. Raises CorruptData or UnsupportedData."""
        entry, snapshot = self._newest_snapshot()
        self.used.append(entry)
        state.zxid = entry.zxid
        state.tree = snapshot.tree
        for session in snapshot.sessions:
            state.sessions.add(*session)
        for log in self._logs_after(entry.zxid):
            self.used.append(log)
            self._replay(log, state)
        self.refuse_loss(state.zxid)
        self._end = self._end._replace(zxid=state.zxid)
        _remove_orphans(state)
        self._refuse_ttl(state)

    def repair(self) -> DurableEnd:
        """Cut the torn end of the last log, remove files that were never completed, and flush the remaining files.

        Return the end up to which the files are durable. Without the fsync, a power loss could take back transactions
        that only a killed process had written.
        """
        remove_unfinished(self._storage, self._folder)
        if self._files.logs:
            self._complete(self._files.logs[-1])
        self._storage.sync_directory(self._folder)
        return self._end

    def _complete(self, log: StoreFile) -> None:
        """Cut the last log after its last record; remove it if it has no record. Keep the cut bytes in another file."""
        if self._torn:
            self._storage.write_atomically(_cut_file(log, self._last_end), self._torn)
        if self._last_end <= len(LOG_HEADER):
            self._storage.remove(log.path)
            return
        file = self._storage.open(log.path)
        if self._last_end < file.size():
            file.truncate(self._last_end)
        file.sync()
        file.close()

    # ---- snapshots

    def _newest_snapshot(self) -> tuple[StoreFile, Snapshot]:
        """Return the newest whole snapshot."""
        for entry in reversed(self._files.snapshots):
            try:
                return entry, read_snapshot(self._storage, entry)
            except Malformed as error:
                self.notes.append(f"{entry.path} is damaged ({error}); an older snapshot is used")
        lost = f"transactions 0x1 to {self._last_known():#x} cannot be read"
        if self._files.snapshots:
            damaged = "; ".join(self.notes)
            raise CorruptData(
                f"no snapshot in {self._folder} is whole, so that {lost}: {damaged}; restore one from a copy of the"
                " directory"
            )
        raise CorruptData(
            f"{self._folder} has logs, such as {self._files.logs[0].name}, but no snapshot to start from, so that"
            f" {lost}; restore the file snapshot.* from a copy of the directory, or move {self._folder} and"
            f" {durable_end.NAME} away to start without data"
        )

    def _last_known(self) -> int:
        """Return the highest zxid in the names of the files."""
        noted = self._durable.zxid if self._durable is not None else None
        return max(noted or 0, *(entry.zxid for files in self._files for entry in files))

    # ---- logs

    def _logs_after(self, zxid: int) -> list[StoreFile]:
        """Return the logs that may contain transactions after this one."""
        logs = self._files.logs
        first = max((i for i, log in enumerate(logs) if log.zxid <= zxid + 1), default=0)
        return logs[first:]

    def _replay(self, log: StoreFile, state: ServerState) -> None:
        records = LogRecords(self._storage.read(log.path))
        self.has_own_logs |= records.is_own
        start = records.position
        for record in records:
            zxid = transaction_log.zxid_of(record)
            self._check_order(log, records, start, zxid, state.zxid)
            if zxid > state.zxid:
                self._apply(log, start, record, state)
            start, self._last_read = records.position, zxid
        self._check_end(log, records)

    def _check_order(
        self, log: StoreFile, records: LogRecords, position: int, zxid: int, last: int
    ) -> None:
        """Refuse a record that does not follow the last record that was read. `last`: the zxid of the state.

        A new leader of an ensemble counts from 1 again, in the lower 32 bits. Inside of its logs there may be gaps:
        Apache ZooKeeper uses up a zxid for some malformed multis without logging them.
        """
        if position > len(LOG_HEADER):
            if records.is_own and zxid != self._last_read + 1:
                raise self._lost(
                    log,
                    self._last_read + 1,
                    f"has transaction {zxid:#x} behind {self._last_read:#x} at byte {position}",
                )
            return
        if zxid != log.zxid:
            raise self._lost(
                log,
                zxid,
                f"begins with transaction {zxid:#x} (is it log.{zxid:x}?)",
            )
        is_new_epoch = zxid >> 32 > last >> 32 and zxid & 0xFFFFFFFF <= 1
        if zxid > last + 1 and not is_new_epoch:
            raise self._lost(
                log,
                last + 1,
                f"starts with transaction {zxid:#x}, but the last one before it is {last:#x}: a log file is missing"
                " or was cut",
                zxid - 1,
            )
        if records.is_own and zxid <= self._last_read:
            raise self._lost(
                log,
                zxid,
                f"starts with transaction {zxid:#x}, but the log before it has this one, too",
            )

    def _apply(self, log: StoreFile, position: int, record: bytes, state: ServerState) -> None:
        try:
            transaction = transaction_log.decode(record)
        except Malformed as error:
            zxid = transaction_log.zxid_of(record)
            reason = f"cannot be read at byte {position} ({error})"
            raise self._lost(log, zxid, reason) from None
        state.replay(transaction)
        self._remember_ttl(transaction, transaction.change)
        self.replayed += 1

    def _check_end(self, log: StoreFile, records: LogRecords) -> None:
        """Refuse damage that no crash can cause. Zeros at the end are no damage: they are written in advance."""
        unread, position = records.unread(), records.position
        self._last_end, self._torn = position, unread
        has_records = position > len(LOG_HEADER)
        if has_records:
            self._end = DurableEnd(log.name, position, self._last_read)
        is_older_log = log != self._files.logs[-1]
        is_too_long = len(unread) > BATCH_BYTES_MAX
        is_incomplete = is_older_log and (unread or not has_records)
        if is_incomplete or is_too_long or self._was_durable(log, records):
            first = self._last_read + 1 if has_records else log.zxid
            reason = (
                f"is damaged at byte {position}, where no crash of this server can have damaged it"
            )
            raise self._lost(log, first, reason, is_last=not is_incomplete and not is_too_long)
        if unread:
            self.notes.append(
                f"{log.path}: {len(unread)} bytes of an unfinished write at byte {position} were cut"
            )

    def _was_durable(self, log: StoreFile, records: LogRecords) -> bool:
        """Return True if the unreadable bytes were durable once: `durable-end` or a later record says so."""
        durable = self._durable
        if durable is None:
            return False
        is_noted = durable.name == log.name and records.position < durable.size
        return is_noted or (bool(self._torn) and records.was_durable())

    def refuse_loss(self, reached: int) -> None:
        """Raise CorruptData if the files end with transaction `reached`, but later ones were acknowledged."""
        durable = self._durable
        if durable is None:
            return
        path = f"{self._folder}/{durable.name}"
        is_missing = durable.first_zxid > 0 and durable.name not in [
            log.name for log in self._files.logs
        ]
        # An earlier version noted no zxid: its log has at least the first one.
        if reached < (durable.first_zxid if durable.zxid is None else durable.zxid):
            entry = StoreFile(durable.first_zxid, path if is_missing else self._folder)
            reason = "is missing" if is_missing else f"ends with transaction {reached:#x}"
            raise self._lost(entry, reached + 1, reason, is_last=True)

    def _lost(
        self, file: StoreFile, first: int, reason: str, last: int = 0, *, is_last: bool = False
    ) -> CorruptData:
        """Return the exception for a damaged or missing file.

        `first`, `last`: the zxids that are lost; `last` 0: all from `first` on. `is_last`: the file is the last log, so
        that the advice need not move later logs away.
        """
        if not last and self._durable is not None:
            last = self._durable.zxid or 0
        lost = f"{first:#x} to {last:#x}" if last >= first else f"from {first:#x} on"
        damaged = "".join(f" ({note})" for note in self.notes)
        directory = self._folder.rpartition("/")[0]
        move = "" if is_last else f"move {file.name} and all later logs out of {self._folder}, and "
        return CorruptData(
            f"{file.path} {reason}, so that transactions {lost} cannot be read{damaged};"
            f" {durable_end.ways_out(directory, file.path, first=move)}"
        )

    # ---- what Apache ZooKeeper's data may have

    def _remember_ttl(self, header: LoggedTransaction, change: Change) -> None:
        if type(change) is Created and change.kind == codes.CREATE_TTL:
            self._with_ttl[change.path] = header.zxid
        elif type(change) is Multi:
            for part in change.changes:
                self._remember_ttl(header, part)

    def _refuse_ttl(self, state: ServerState) -> None:
        nodes = state.tree.nodes
        found = [
            path
            for path, zxid in self._with_ttl.items()
            if path in nodes and nodes[path].czxid == zxid
        ]
        for owner, paths in state.tree.ephemerals.items():
            if owner >> 56 == _TTL_OWNER and owner not in state.sessions.open:
                found += paths
        if found:
            more = f" and {len(found) - _SHOWN_MAX} more" if len(found) > _SHOWN_MAX else ""
            raise UnsupportedData(
                f"{self._folder}: nodes with a time to live (TTL), which this server does not support:"
                f" {', '.join(found[:_SHOWN_MAX])}{more}; delete them with Apache ZooKeeper first"
            )


def _cut_file(log: StoreFile, position: int) -> str:
    """Return the path of the file that keeps the bytes that are cut off. No server reads it as a log."""
    return f"{log.path}.cut.{position}"


def _remove_orphans(state: ServerState) -> None:
    """Delete ephemeral nodes whose session is over, as Apache ZooKeeper does at its start."""
    for owner in [owner for owner in state.tree.ephemerals if owner not in state.sessions.open]:
        if owner >> 56 != _TTL_OWNER:
            state.replay(LoggedTransaction(owner, 0, state.zxid, 0, SessionClosed(())))
