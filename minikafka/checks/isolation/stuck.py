"""The check for what does not get on: sends, transactions and consumers that have stood still for a limit of time.

Times are those of the history. A client that was killed has nothing pending, because it waits for nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import OK, READ
from minikafka.checks.isolation.findings import Findings
from minikafka.checks.isolation.groups import Reader, reads_of
from minikafka.checks.isolation.logs import OPEN, PartitionLog
from minikafka.checks.isolation.operations import OFFSETS_TOPIC, Clients, Transaction, Wish, Write
from minikafka.checks.isolation.writes import Logs


@dataclass(frozen=True, slots=True)
class StuckLimit:
    """When something counts as stuck."""

    seconds: float
    now: float | None = None
    """The time of the check; None: the time of the last event."""
    committed: Mapping[Reader, int] = field(default_factory=dict)
    """The committed offsets of groups, as their coordinators know them."""


def check_stuck(clients: Clients, logs: Logs, limit: StuckLimit, findings: Findings) -> None:
    """Report what has stood still for the limit. Histories without times are not checked."""
    now = clients.last if limit.now is None else limit.now
    if now is not None:
        check = _Check(clients, logs, limit, now, findings)
        for transaction in clients.transactions:
            check.sends(transaction)
            check.transaction(transaction)
        check.consumers()


class _Check:
    def __init__(
        self, clients: Clients, logs: Logs, limit: StuckLimit, now: float, findings: Findings
    ) -> None:
        self._clients = clients
        self._logs = logs
        self._limit = limit
        self._now = now
        self._findings = findings

    def sends(self, transaction: Transaction) -> None:
        """Report the writes of a client that have no outcome."""
        end = self._clients.closed.get(transaction.client)
        if end is not None and end.outcome != OK:
            return
        for write in transaction.writes:
            if write.ended is not None or write.invoked is None:
                continue
            waited = self._now - write.invoked
            if end is None and waited < self._limit.seconds:
                self._findings.facts["pending"] += 1
                continue
            self._add_send(write, "its client was closed" if end else f"{waited:.1f} s passed")

    def _add_send(self, write: Write, why: str) -> None:
        what = "commit of offsets" if write.topic == OFFSETS_TOPIC else "send"
        where = None if write.partition is None else TopicPartition(write.topic, write.partition)
        topic = "" if where or write.topic == OFFSETS_TOPIC else f" to {write.topic}"
        text = f"a {what}{topic} has no outcome: {why}"
        self._findings.add("stuck", where, -1, write.transaction, text, write)

    def transaction(self, one: Transaction) -> None:
        """Report a transaction that does not end: its client waits for the end, or the logs hold it open."""
        if one.number is None or one.began is None:
            return
        if one.ending is not None and one.client not in self._clients.closed:
            waited = self._now - one.ending
            if waited >= self._limit.seconds:
                text = f"its commit or abort has no outcome: {waited:.1f} s passed"
                self._findings.add("stuck", None, -1, one, text, one.ending)
                return
        waited = self._now - one.began
        open_at = [place for place in one.found if self._logs[place[0]].outcomes[place[1]] == OPEN]
        if open_at and waited >= self._limit.seconds:
            text = f"the transaction is still open after {waited:.1f} s"
            self._findings.add("stuck", *open_at[0], one, text, one.began)

    def consumers(self) -> None:
        """Report each group, or client without a group, that does not read records that are there."""
        wanted: defaultdict[Reader, list[Wish]] = defaultdict(list)
        for wish in self._clients.wishes:
            if wish.client not in self._clients.closed:
                for tp in self._logs:
                    if tp.topic == wish.topic and wish.partition in (None, tp.partition):
                        wanted[_name(wish.client, wish.group), tp].append(wish)
        reached, moved = self._progress()
        for reader, wishes in wanted.items():
            log = self._logs[reader[1]]
            last = max(moved.get(reader, 0.0), min(wish.time or 0.0 for wish in wishes))
            position = self._position(reader, reached.get(reader), wishes, log)
            there = [at for at in log.records if at >= position and log.is_readable(at)]
            if there:
                self._add_reader(reader, last, there[0], len(there))

    def _progress(self) -> tuple[dict[Reader, int], dict[Reader, float]]:
        """Return the offset behind the last record of each reader, and the time at which it received that record."""
        reached: dict[Reader, int] = {}
        moved: dict[Reader, float] = {}
        for client, read in reads_of(self._clients):
            reader = _name(client, read.group), read.tp
            time = read.time or 0.0
            if time >= moved.get(reader, 0.0):
                reached[reader] = read.offset + (read.kind == READ)
                moved[reader] = time
        return reached, moved

    def _position(
        self, reader: Reader, reached: int | None, wishes: Iterable[Wish], log: PartitionLog
    ) -> int:
        committed = self._limit.committed.get(reader)
        known = [one for one in (reached, committed) if one is not None]
        if known:
            return max(known)
        starts = [self._start(wish, log) for wish in wishes]
        return max(min(starts), log.start)

    def _start(self, wish: Wish, log: PartitionLog) -> int:
        """Return the first offset that a client without a position wants."""
        if wish.offset is not None:
            return wish.offset
        began = (wish.time or 0.0) * 1000
        later = (at for at, record in log.records.items() if record.timestamp >= began)
        return min(later, default=max(log.records, default=-1) + 1)

    def _add_reader(self, reader: Reader, last: float, first: int, count: int) -> None:
        name, tp = reader
        record = self._logs[tp].records[first]
        written = record.timestamp / 1000
        since = written if last < written <= self._now else last
        waited = self._now - since
        if waited < self._limit.seconds:
            self._findings.facts["unread"] += count
            return
        text = f"{name} has not read on for {waited:.1f} s, although records are there: {count}"
        self._findings.add("stuck", tp, first, None, text, since)


def _name(client: str, group: str | None) -> str:
    return client if group is None else f"group {group}"
