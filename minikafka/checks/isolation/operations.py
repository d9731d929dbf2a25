"""The operations of all clients, joined from the events of their histories, and the transactions that they form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.checks import histories
from minikafka.checks.histories import FAILED, INVOKED, OK, UNKNOWN, Event


class Fate(Enum):
    """The end of a transaction, as far as its client knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """It was aborted, or its client never asked for a commit: it must never become visible."""
    UNKNOWN = "unknown"
    """Its client asked for a commit and does not know the outcome: all of it is visible, or nothing."""


@dataclass(slots=True, eq=False)
class Transaction:
    """A transaction of one client, or all writes of a client outside transactions. Times are seconds, or None."""

    client: str
    number: int | None
    """None for the writes outside transactions: each of them is committed when it is acknowledged."""
    fate: Fate = Fate.ABORTED
    began: float | None = None
    commit_invoked: float | None = None
    ended: float | None = None
    """The time at which the client received the outcome of its commit or abort."""
    ending: float | None = None
    """The time at which the client asked for a commit or abort that has no outcome yet."""
    writes: list[Write] = field(default_factory=list)
    found: list[tuple[TopicPartition, int]] = field(default_factory=list)
    """Where the logs hold records of this transaction, visible or not."""
    producers: set[tuple[int, int]] = field(default_factory=set)
    """The producer id and epoch of these records."""

    def __str__(self) -> str:
        return self.client if self.number is None else f"{self.client}/{self.number}"


@dataclass(slots=True, eq=False)
class Write:
    """A record that a client sent. `offset`: -1 if the client does not know it."""

    number: int
    transaction: Transaction
    topic: str
    partition: int | None
    offset: int
    digest: bytes
    outcome: str
    invoked: float | None = None
    ended: float | None = None
    value: str | None = None
    key: str | None = None
    returned: int = -1
    """The number of the client's next operation when the call of this write returned."""


class Read(NamedTuple):
    """A step of a reader: a record that it received, or a position (`SEEK`, `REACHED`)."""

    kind: str
    tp: TopicPartition
    offset: int
    digest: bytes
    transaction: Transaction | None
    time: float | None
    group: str | None = None
    value: str | None = None
    key: str | None = None


class Wish(NamedTuple):
    """A client that wants the records of a topic. `partition`: None for all. `offset`: None to begin at the end."""

    client: str
    group: str | None
    topic: str
    partition: int | None
    offset: int | None
    time: float | None


class OffsetCommit(NamedTuple):
    """An offset that a consumer committed, and when its client knew it."""

    group: str
    tp: TopicPartition
    offset: int
    time: float | None
    transaction: Transaction | None = None
    """The transaction that the offset is part of."""


@dataclass(slots=True)
class Clients:
    """Everything that the clients did."""

    transactions: list[Transaction] = field(default_factory=list)
    """In the order of each client."""
    reads: dict[str, list[Read]] = field(default_factory=dict)
    """The reads of each client, in order."""
    wishes: list[Wish] = field(default_factory=list)
    committed: list[OffsetCommit] = field(default_factory=list)
    closed: dict[str, Event] = field(default_factory=dict)
    """The end of each client that has ended."""
    last: float | None = None
    """The time of the last event."""


def join(history: Iterable[Event]) -> Clients:
    """Return the operations of a history. The events of one client must be in order."""
    joined = _Joined()
    for event in history:
        joined.add(event)
    return joined.clients()


class _Joined:
    """The operations so far. An operation holds its latest event, and the time of its invocation."""

    def __init__(self) -> None:
        self._operations: dict[tuple[str, int], tuple[Event, float | None]] = {}

    def add(self, event: Event) -> None:
        key = event.client, event.number
        first = self._operations.get(key)
        if first is None:
            self._operations[key] = event, event.time
            return
        before, invoked = first
        if before.outcome != INVOKED or before.kind != event.kind:
            raise histories.HistoryError(
                f"client {event.client}, number {event.number}: {event.kind} {event.outcome}"
                f" after {before.kind} {before.outcome}; an operation is invoked once and ends once"
            )
        self._operations[key] = _merged(before, event), invoked

    def clients(self) -> Clients:
        made = Clients()
        known: dict[tuple[str, int | None], Transaction] = {}
        for event, invoked in self._operations.values():
            key = event.client, event.transaction
            if event.time is not None:
                made.last = max(event.time, made.last or event.time)
            if _apply_consumer(event, made):
                continue
            if key not in known and not (event.kind in _READS and event.transaction is None):
                known[key] = Transaction(event.client, event.transaction)
                made.transactions.append(known[key])
            _apply(event, invoked, known.get(key), made)
            if event.kind == histories.OFFSETS:
                made.committed.append(_committed(event, known[key]))
        return made


_READS: Final = (histories.READ, histories.SEEK, histories.REACHED)


def _merged(invoked: Event, ended: Event) -> Event:
    """Return the end of an operation, with the fields that only its invocation has."""
    fields = zip(invoked, ended, strict=True)
    return Event._make(first if last is None or last == b"" else last for first, last in fields)


def _apply_consumer(event: Event, made: Clients) -> bool:
    """Apply an event that no transaction concerns; return False for another event."""
    if event.kind == histories.CLOSED:
        made.closed[event.client] = event
    elif event.kind == histories.ASSIGNED:
        assert event.topic is not None
        made.closed.pop(event.client, None)
        where = event.topic, event.partition, event.offset
        made.wishes.append(Wish(event.client, event.group, *where, event.time))
    elif event.kind == histories.OFFSETS and event.transaction is None:
        if event.outcome == OK:
            made.committed.append(_committed(event, None))
    else:
        return False
    return True


def _committed(event: Event, transaction: Transaction | None) -> OffsetCommit:
    assert event.topic is not None
    tp = TopicPartition(event.topic, event.partition or 0)
    return OffsetCommit(event.group or "", tp, event.offset or 0, event.time, transaction)


def _apply(
    event: Event, invoked: float | None, transaction: Transaction | None, made: Clients
) -> None:
    if event.kind in _READS:
        assert event.topic is not None
        assert event.partition is not None
        assert event.offset is not None
        tp = TopicPartition(event.topic, event.partition)
        where = event.kind, tp, event.offset
        content = event.value, event.key
        step = Read(*where, event.digest, transaction, event.time, event.group, *content)
        made.reads.setdefault(event.client, []).append(step)
        return
    assert transaction is not None
    if event.kind in (histories.WRITE, histories.OFFSETS):
        transaction.writes.append(_write(event, transaction, invoked))
    elif event.kind == histories.BEGIN:
        transaction.began = invoked
    else:
        _end(event, invoked, transaction)


def _write(event: Event, transaction: Transaction, invoked: float | None) -> Write:
    outcome = UNKNOWN if event.outcome == INVOKED else event.outcome
    if event.kind == histories.OFFSETS:
        return offsets_write(event, transaction, outcome)
    assert event.topic is not None
    offset = -1 if event.offset is None or outcome != OK else event.offset
    place = event.number, transaction, event.topic, event.partition, offset
    ended = None if event.outcome == INVOKED else event.time
    content = event.value, event.key
    returned = event.number + 1 if event.returned is None else event.returned
    return Write(*place, event.digest, outcome, invoked, ended, *content, returned)


OFFSETS_TOPIC: Final = "__consumer_offsets"


def offsets_write(event: Event, transaction: Transaction, outcome: str) -> Write:
    """Return the commit of an offset as a write to `__consumer_offsets`."""
    assert event.topic is not None
    assert event.partition is not None
    tp = TopicPartition(event.topic, event.partition)
    digest = offset_digest(event.group or "", tp, event.offset or 0)
    return Write(event.number, transaction, OFFSETS_TOPIC, None, -1, digest, outcome)


def offset_digest(group: str, tp: TopicPartition, offset: int) -> bytes:
    """Return the identity of a committed offset in histories and logs."""
    return histories.digest_of(f"{group} {tp.topic} {tp.partition} {offset}".encode())


def _end(event: Event, invoked: float | None, transaction: Transaction) -> None:
    """Apply a commit or an abort. The last outcome that is certain decides."""
    is_commit = event.kind == histories.COMMIT
    if is_commit and transaction.commit_invoked is None:
        transaction.commit_invoked = invoked
    transaction.ending = invoked if event.outcome == INVOKED else None
    if event.outcome == OK:
        transaction.fate = Fate.COMMITTED if is_commit else Fate.ABORTED
        transaction.ended = event.time
    elif is_commit and event.outcome != FAILED:
        transaction.fate = Fate.UNKNOWN
