"""Comparison of the records that producers sent with the records that a consumer read, without I/O.

The outcome of a send is one of three, as in Jepsen's histories: *acked* (at a partition and
offset), *failed* (the client is sure that nothing was written) or *unknown*. Invariant: a send is
unknown until its outcome is recorded. The record of an unknown send may be in the log or missing from
it; both cases are allowed. Records are identified by offset, so that records with equal payloads (such as
empty lines) are distinguished.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

from minikafka.checks.histories import FAILED, OK, READ, UNKNOWN, WRITE, Event, digest_of, row_of

Payload: TypeAlias = Hashable
"""The content of a record, for comparison: the value, or the pair of key and value."""
Reading: TypeAlias = Mapping[int, Sequence[tuple[int, Payload]]]
"""By partition, the (offset, payload) of each record, in the order in which a consumer received the records."""

_UNKNOWN: Final = -1
_FAILED: Final = -2
_ACKED_SOMEWHERE: Final = -3
_NO_RECORD: Final = object()
"""Stands for the payload of an offset without a record. A payload may be None: a null value."""


class History:
    """The sends of one producer to one topic, in the order of the calls to the producer."""

    def __init__(self) -> None:
        self.payloads: list[Payload] = []
        self.partitions = array("i")
        self.offsets = array("q")

    def __len__(self) -> int:
        return len(self.payloads)

    def sent(self, payload: Payload) -> int:
        """Add a send with an unknown outcome; return its ticket, the argument of `acked` and `failed`."""
        ticket = len(self.payloads)
        self.payloads.append(payload)
        self.partitions.append(-1)
        self.offsets.append(_UNKNOWN)
        return ticket

    def acked(self, ticket: int, partition: int, offset: int) -> None:
        """Record that the send was acknowledged.

        A negative `offset` means that the client does not know the offset, because the broker
        recognized a retry as a duplicate.
        """
        self.partitions[ticket] = partition
        self.offsets[ticket] = offset if offset >= 0 else _ACKED_SOMEWHERE

    def failed(self, ticket: int) -> None:
        """Record that the send failed for certain: the record was not written and will not be written."""
        self.offsets[ticket] = _FAILED

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of acked, failed and unknown sends."""
        failed = self.offsets.count(_FAILED)
        unknown = self.offsets.count(_UNKNOWN)
        return len(self) - failed - unknown, failed, unknown

    def events(self, client: str, topic: str) -> Iterator[Event]:
        """Yield each send as a write of a client without transactions.

        Each payload must be a value, or a pair of key and value.
        """
        outcomes = {_FAILED: FAILED, _UNKNOWN: UNKNOWN}
        columns = zip(self.payloads, self.partitions, self.offsets, strict=True)
        for number, (payload, partition, offset) in enumerate(columns):
            outcome = outcomes.get(offset, OK)
            digest = _digest(payload)
            event = Event(client, number, WRITE, outcome, topic=topic, digest=digest)
            if outcome == OK:
                event = event._replace(partition=partition, offset=max(offset, -1))
            yield event

    def rows(self, producer: str, topic: str) -> Iterator[dict[str, Any]]:
        """Yield the events as rows of plain lines, with the columns that docs/pipelines.md lists for producers."""
        for event in self.events(producer, topic):
            row = row_of(event)
            del row["event"]
            yield {"producer": row.pop("client"), "sequence": row.pop("number"), **row}


def reads(client: str, topic: str, reading: Reading) -> Iterator[Event]:
    """Yield each record of a reading as a read. Each payload must be a value, or a pair of key and value."""
    number = 0
    for partition, deliveries in reading.items():
        for offset, payload in deliveries:
            event = Event(client, number, READ, OK, topic=topic, digest=_digest(payload))
            yield event._replace(partition=partition, offset=offset)
            number += 1


def _digest(payload: Payload) -> bytes:
    value = payload[-1] if isinstance(payload, tuple) else payload
    assert value is None or isinstance(value, bytes)
    return digest_of(value)


@dataclass(frozen=True, slots=True)
class HistoryComparison:
    """The result of a comparison: five counts of records, then one count for each kind of anomaly."""

    sent: int
    acked: int
    failed: int
    unknown: int
    read: int
    lost: int
    """Records that were acknowledged but never read."""
    moved: int
    """Records that were acknowledged at one offset but read only at another offset."""
    altered: int
    """Offsets of acknowledged records at which a different record was read."""
    duplicated: int
    """Extra reads of a record that was sent once."""
    reordered: int
    """Acknowledged records whose offset is at or below the offset of an earlier record, sent by the same
    producer to the same partition."""
    aborted: int
    """Records that were read although their send failed for certain."""
    invented: int
    """Records that were read but never sent."""
    skipped: int
    """Offsets missing between the first and the last offset read from a partition."""
    repeated: int
    """Records delivered at or below an offset that the consumer had already passed."""

    @property
    def ok(self) -> bool:
        """True if there is no anomaly."""
        return not self.anomalies()

    def anomalies(self) -> dict[str, int]:
        """Return the count of each kind of anomaly that occurred."""
        counts = {field.name: int(getattr(self, field.name)) for field in fields(self)[5:]}
        return {kind: count for kind, count in counts.items() if count}

    def __str__(self) -> str:
        bad = self.anomalies()
        found = ", ".join(f"{count} {kind}" for kind, count in bad.items()) or "no anomaly"
        return f"{self.acked} acked, {self.failed} failed, {self.unknown} unknown, {self.read} read: {found}"


def verdict(histories: Sequence[History], reading: Reading) -> HistoryComparison:
    """Compare all records sent to one topic with one complete reading of the topic.

    `histories` must cover all producers of the topic; the order is checked within each history.
    """
    totals: Counter[str] = Counter()
    for history in histories:
        acked, failed, unknown = history.counts()
        totals.update(sent=len(history), acked=acked, failed=failed, unknown=unknown)
    comparison = _Comparison(histories, totals)
    comparison.compare(reading)
    for history in histories:
        totals["reordered"] += _reordered(history)
    for deliveries in reading.values():
        skipped, repeated = _count_gaps(offset for offset, _ in deliveries)
        totals.update(read=len(deliveries), skipped=skipped, repeated=repeated)
    return HistoryComparison(*(totals[field.name] for field in fields(HistoryComparison)))


class _Comparison:
    """The sends of all producers, by acknowledged offset. Sends without a known offset are counted by payload."""

    def __init__(self, histories: Sequence[History], totals: Counter[str]) -> None:
        self.totals = totals
        self.by_offset: dict[int, dict[int, Payload]] = {}
        self.somewhere: Counter[Payload] = Counter()
        self.unknown: Counter[Payload] = Counter()
        self.failed: Counter[Payload] = Counter()
        self.known: set[Payload] = set()
        for history in histories:
            self._place(history)

    def _place(self, history: History) -> None:
        others = {_UNKNOWN: self.unknown, _FAILED: self.failed, _ACKED_SOMEWHERE: self.somewhere}
        by_offset = self.by_offset
        columns = zip(history.payloads, history.partitions, history.offsets, strict=True)
        for payload, partition, offset in columns:
            if offset < 0:
                others[offset][payload] += 1
                continue
            placed = by_offset.setdefault(partition, {})
            if offset in placed:
                # Two records were acknowledged at one offset, but the log holds only one of them.
                self.somewhere[payload] += 1
            else:
                placed[offset] = payload
        self.known.update(history.payloads)

    def compare(self, reading: Reading) -> None:
        """Compare the records that were read with the records that were sent, and add the anomalies to `totals`."""
        missing: Counter[Payload] = Counter()
        surplus: list[Payload] = []
        for partition in self.by_offset.keys() | reading.keys():
            expected = self.by_offset.get(partition, {})
            seen = dict(reading.get(partition, ()))
            for offset, payload in expected.items():
                found = seen.pop(offset, _NO_RECORD)
                if found != payload:
                    missing[payload] += 1
                    if found is not _NO_RECORD:
                        self.totals["altered"] += 1
                        surplus.append(found)
            surplus += seen.values()
        self._match_surplus(missing, surplus)

    def _match_surplus(self, missing: Counter[Payload], surplus: Iterable[Payload]) -> None:
        """Match each payload that was read at an unexpected offset with a send that may explain it.

        The most certain explanation is tried first. A payload without an explanation is duplicated or invented.
        """
        claims = (
            (self.somewhere, None),
            (missing, "moved"),
            (self.unknown, None),
            (self.failed, "aborted"),
        )
        for payload in surplus:
            for owners, anomaly in claims:
                if owners[payload] > 0:
                    owners[payload] -= 1
                    if anomaly:
                        self.totals[anomaly] += 1
                    break
            else:
                self.totals["duplicated" if payload in self.known else "invented"] += 1
        self.totals["lost"] += missing.total() + self.somewhere.total()


def _reordered(history: History) -> int:
    """Return the number of acknowledged sends that are out of order.

    A send is out of order if an earlier send to the same partition has the same or a higher offset. A send is earlier
    if the producer was called earlier.
    """
    highest: dict[int, int] = {}
    count = 0
    for partition, offset in zip(history.partitions, history.offsets, strict=True):
        if offset < 0:
            continue
        if offset <= highest.get(partition, -1):
            count += 1
        else:
            highest[partition] = offset
    return count


def _count_gaps(offsets: Iterable[int]) -> tuple[int, int]:
    """Return (skipped offsets, offsets that did not increase): two counts over the offsets read from a partition."""
    skipped = repeated = 0
    last = None
    for offset in offsets:
        if last is not None and offset <= last:
            repeated += 1
            continue
        if last is not None:
            skipped += offset - last - 1
        last = offset
    return skipped, repeated
