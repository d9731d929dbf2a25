"""The kinds of anomalies of transactions, and the collection of what the checks find."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import shown_key
from minikafka.checks.isolation.logs import Stored
from minikafka.checks.isolation.operations import Read, Transaction, Write

KINDS: Final = {
    "lost": "acknowledged in a committed transaction, but not visible in the logs",
    "behind_lso": "committed, but held back by a transaction that is open in the log",
    "torn": "of a transaction that is visible only in part",
    "duplicated": "in the logs more often than sent",
    "aborted_read": "of a transaction that was not committed, but visible or read (G1a)",
    "intermediate_read": "read before the commit, or without other records of the transaction (G1b)",
    "skipped_read": "visible, but passed over by a consumer",
    "read_back": "read at or below an offset that the consumer had passed",
    "read_differs": "read, but different from the logs",
    "write_cycle": "written before a record of a transaction that had ended earlier (G0)",
    "information_cycle": "transactions that read from each other in a circle (G1c)",
    "reordered": "in another order than their client sent them",
    "zombie_write": "written with a producer epoch below an earlier one",
    "invented": "in the logs, but sent by no client",
    "diverging": "offsets at which replicas differ",
    "stuck": "sends, transactions and consumers that did not get on within the limit",
}
"""The kinds of anomalies. Each text says what is counted."""


class Anomaly(NamedTuple):
    """One finding of a check."""

    kind: str
    tp: TopicPartition | None
    offset: int
    transaction: str
    detail: str
    time: float | None = None
    """When it happened, in the seconds of the history; None if that is not known."""
    key: str | None = None
    value: str | None = None
    """The key and the value of the record as text, where they are known."""

    def __str__(self) -> str:
        place = "" if self.tp is None else f" at {self.tp.topic}-{self.tp.partition}"
        offset = "" if self.offset < 0 else f" offset {self.offset}"
        owner = f" of {self.transaction}" if self.transaction else ""
        return f"{self.kind}{place}{offset}{owner}: {self.detail}"


class Findings:
    """The anomalies that were found (`anomalies`), and counts of harmless facts (`facts`)."""

    def __init__(self) -> None:
        self.anomalies: list[Anomaly] = []
        self.facts: Counter[str] = Counter()

    def add(
        self,
        kind: str,
        tp: TopicPartition | None,
        offset: int,
        transaction: Transaction | None,
        detail: str,
        about: Write | Read | Stored | float | None = None,
    ) -> None:
        """Add an anomaly. `about`: the record that it concerns, or its time."""
        assert kind in KINDS
        owner = "" if transaction is None else str(transaction)
        self.anomalies.append(Anomaly(kind, tp, offset, owner, detail, *_record(about)))

    def counts(self) -> dict[str, int]:
        """Return the number of anomalies of each kind that was found, in the order of `KINDS`."""
        found = Counter(anomaly.kind for anomaly in self.anomalies)
        return {kind: found[kind] for kind in KINDS if found[kind]}


def _record(
    about: Write | Read | Stored | float | None,
) -> tuple[float | None, str | None, str | None]:
    """Return the time, key and value of a record."""
    if isinstance(about, Write):
        return about.ended or about.invoked, about.key, about.value
    if isinstance(about, Stored):
        time = about.timestamp / 1000 if about.timestamp >= 0 else None
        return time, shown_key(about.key), about.value
    if isinstance(about, Read):
        return about.time, about.key, about.value
    return about, None, None
