"""The check of writes: each record that clients sent is matched with a record in the logs.

A write is matched by its acknowledged offset, otherwise by its value. Of several writes with the same value, the one
that explains the record best is matched first, so that the fewest anomalies are reported.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import FAILED, OK, OPAQUE, shown_key
from minikafka.checks.isolation.findings import Findings
from minikafka.checks.isolation.logs import HIDDEN, VISIBLE, PartitionLog, Stored
from minikafka.checks.isolation.operations import OFFSETS_TOPIC, Fate, Transaction, Write

_CLOCK_SECONDS: Final = 1.0
"""The clocks of a client and a broker may differ by this time."""
Place: TypeAlias = tuple[TopicPartition, int]
Logs: TypeAlias = Mapping[TopicPartition, PartitionLog]


class Matching:
    """The writes of all clients, and the places in the logs that hold them.

    `owners`: the transaction of each record in the logs whose write was found. `certain`: those whose offset was
    acknowledged. The transaction of another record may be an equal try of the same write.
    """

    def __init__(self, logs: Logs, findings: Findings) -> None:
        self.owners: dict[Place, Transaction] = {}
        self.certain: dict[Place, Transaction] = {}
        self._logs = logs
        self._findings = findings
        self._topics = {tp.topic for tp in logs}
        self._places: dict[Write, Place] = {}
        self._unique: set[tuple[str, bytes]] = set()
        """The topic and digest of each value that was sent once, and is in the logs at most once."""

    def check(self, transactions: Sequence[Transaction]) -> None:
        """Match all writes, and report what contradicts the outcomes that the clients know."""
        writes = [
            write for one in transactions for write in one.writes if write.topic in self._topics
        ]
        unplaced = [write for write in writes if not self._match_offset(write)]
        self._match_values(unplaced)
        self._unique = self._unique_values(writes)
        for sent in writes:
            self._check_fate(sent)
        for transaction in transactions:
            if transaction.fate is Fate.UNKNOWN:
                self._check_torn(transaction)
        self._findings.facts["writes"] += len(writes)

    def _match_offset(self, write: Write) -> bool:
        if write.offset < 0 or write.partition is None:
            return False
        tp = TopicPartition(write.topic, write.partition)
        log = self._logs.get(tp)
        record = log.records.get(write.offset) if log else None
        if record is None or (tp, write.offset) in self.owners:
            return False
        if write.digest not in (record.digest, OPAQUE):
            return False
        self._place(write, (tp, write.offset))
        self.certain[tp, write.offset] = write.transaction
        return True

    def _place(self, write: Write, place: Place) -> None:
        self.owners[place] = write.transaction
        self._places[write] = place
        write.transaction.found.append(place)
        record = self._logs[place[0]].records[place[1]]
        write.transaction.producers.add((record.producer_id, record.epoch))

    def _match_values(self, unplaced: Iterable[Write]) -> None:
        left: defaultdict[tuple[str, bytes], list[Write]] = defaultdict(list)
        for write in unplaced:
            left[write.topic, write.digest].append(write)
        sent: defaultdict[tuple[str, bytes], list[Write]] = defaultdict(list)
        for write in (*self._places, *unplaced):
            sent[write.topic, write.digest].append(write)
        for place, outcome in self._unowned():
            tp, offset = place
            record = self._logs[tp].records[offset]
            key = tp.topic, record.digest
            fitting = [one for one in left.get(key, []) if _fits(one, tp.partition, record)]
            if (best := _explanation(fitting, outcome)) is not None:
                left[key].remove(best)
                self._place(best, place)
            elif outcome == VISIBLE and tp.topic != OFFSETS_TOPIC:
                copied = next((one for one in sent[key] if self._may_copy(one, record)), None)
                kind = "duplicated" if copied else "invented"
                owner = copied.transaction if copied else None
                text = "no write explains this record"
                self._findings.add(kind, tp, offset, owner, text, record)

    def _unique_values(self, writes: Iterable[Write]) -> set[tuple[str, bytes]]:
        sent = Counter((write.topic, write.digest) for write in writes)
        stored = Counter(
            (tp.topic, record.digest)
            for tp, log in self._logs.items()
            for record in log.records.values()
        )
        return {key for key, count in sent.items() if count == 1 and stored[key] <= 1}

    def placed(self, writes: Iterable[Write]) -> Iterator[tuple[Place, Write]]:
        """Yield those of the writes whose place is certain: by its offset, or because its value is unique."""
        for write in writes:
            place = self._places.get(write)
            if place is None:
                continue
            is_certain = place[1] == write.offset and place in self.certain
            if is_certain or (write.offset < 0 and (write.topic, write.digest) in self._unique):
                yield place, write

    def _may_copy(self, write: Write, record: Stored) -> bool:
        """True if the record may be a copy of this write, and not an older record with the same value."""
        if write.key is not None and write.key != shown_key(record.key):
            return False
        if write not in self._places or write.invoked is None or record.timestamp < 0:
            return True
        tp, offset = self._places[write]
        own = self._logs[tp].records[offset].timestamp
        return record.timestamp >= min(own, (write.invoked - _CLOCK_SECONDS) * 1000)

    def _unowned(self) -> list[tuple[Place, str]]:
        """Return the places that no acknowledged offset names, visible ones first."""
        found = [
            ((tp, offset), log.outcomes[offset])
            for tp, log in self._logs.items()
            for offset in log.records
            if (tp, offset) not in self.owners
        ]
        return sorted(found, key=lambda one: one[1] != VISIBLE)

    def _check_fate(self, write: Write) -> None:
        place = self._places.get(write)
        if place is None:
            if must_be_visible(write) and not self._was_removed(write):
                self._lost(write, "it is in no log")
            return
        tp, offset = place
        outcome = self._logs[tp].outcomes[offset]
        if outcome == VISIBLE and not may_be_visible(write):
            text = (
                f"its outcome was {write.outcome}, its transaction {write.transaction.fate.value}"
            )
            self._findings.add("aborted_read", tp, offset, write.transaction, text, write)
        elif must_be_visible(write) and outcome == HIDDEN:
            self._lost(write, "the log has an abort marker after it")
        elif must_be_visible(write) and not self._logs[tp].is_readable(offset):
            text = f"the last stable offset is {self._logs[tp].last_stable}"
            self._findings.add("behind_lso", tp, offset, write.transaction, text, write)
        self._findings.facts["visible"] += outcome == VISIBLE

    def _lost(self, write: Write, text: str) -> None:
        tp = None if write.partition is None else TopicPartition(write.topic, write.partition)
        self._findings.add("lost", tp, write.offset, write.transaction, text, write)

    def _was_removed(self, write: Write) -> bool:
        """True if retention or the cleaner may have removed the record from its log."""
        return any(
            log.may_have_removed(write.offset)
            for tp, log in self._logs.items()
            if tp.topic == write.topic and write.partition in (None, tp.partition)
        )

    def _check_torn(self, transaction: Transaction) -> None:
        """Report a transaction with an unknown outcome of which some records are visible and others are not."""
        known = [write for write in transaction.writes if write.outcome == OK]
        states = [(write, self._state(write)) for write in known if write.topic in self._topics]
        if not any(state == VISIBLE for _, state in states):
            return
        for write, state in states:
            if state != VISIBLE and not (state is None and self._was_removed(write)):
                tp, offset = self._places.get(write, (None, write.offset))
                text = f"{state or 'in no log'}, but other records of the transaction are visible"
                self._findings.add("torn", tp, offset, transaction, text, write)

    def _state(self, write: Write) -> str | None:
        place = self._places.get(write)
        return None if place is None else self._logs[place[0]].outcomes[place[1]]


def must_be_visible(write: Write) -> bool:
    """True if a consumer must receive the record."""
    return write.outcome == OK and (
        write.transaction.number is None or write.transaction.fate is Fate.COMMITTED
    )


def may_be_visible(write: Write) -> bool:
    """True if a consumer may receive the record."""
    return write.outcome != FAILED and (
        write.transaction.number is None or write.transaction.fate is not Fate.ABORTED
    )


_BEST: Final[Mapping[bool, tuple[Callable[[Write], bool], ...]]] = {
    True: (must_be_visible, may_be_visible, lambda _: True),
    False: (
        lambda write: not may_be_visible(write),
        lambda write: not must_be_visible(write),
        lambda _: True,
    ),
}
"""Whether a record is visible → which writes explain it, from the best explanation on."""


def _fits(write: Write, partition: int, record: Stored) -> bool:
    """True if the write may have written the record. A transaction has one producer id and epoch."""
    known = write.transaction.producers if write.transaction.number is not None else ()
    return write.partition in (None, partition) and (
        not known or (record.producer_id, record.epoch) in known
    )


def _explanation(fitting: Sequence[Write], outcome: str) -> Write | None:
    for is_good in _BEST[outcome == VISIBLE]:
        for write in fitting:
            if is_good(write):
                return write
    return None
