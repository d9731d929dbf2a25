"""What was acknowledged, what was read back, and the verdict on the two; pure.

A history is three-valued, as Jepsen's are: a send was *acked* (at
a partition and offset), has *failed* (the client is sure that it was not written), or its outcome is
*unknown*. Invariant: a send is unknown until told otherwise, and an unknown send may be found in the
log or not; neither is an anomaly. Offsets decide what a record is, so that equal payloads (empty
lines, say) are told apart.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeAlias

Payload: TypeAlias = Hashable
"""What makes a record this record: its value, or key and value."""
Reading: TypeAlias = Mapping[int, Sequence[tuple[int, Payload]]]
"""Partition to (offset, payload) in the order in which a consumer delivered them."""

_UNKNOWN: Final = -1
_FAILED: Final = -2
_ACKED_SOMEWHERE: Final = -3


class History:
    """The sends of one producer to one topic, in the order in which the producer was given them."""

    def __init__(self) -> None:
        self.payloads: list[Payload] = []
        self.partitions = array("i")
        self.offsets = array("q")

    def __len__(self) -> int:
        return len(self.payloads)

    def sent(self, payload: Payload) -> int:
        """A send whose outcome is not known yet; its ticket."""
        ticket = len(self.payloads)
        self.payloads.append(payload)
        self.partitions.append(-1)
        self.offsets.append(_UNKNOWN)
        return ticket

    def acked(self, ticket: int, partition: int, offset: int) -> None:
        """It was acknowledged. `offset` < 0: the client was not told where (a retry found a duplicate)."""
        self.partitions[ticket] = partition
        self.offsets[ticket] = offset if offset >= 0 else _ACKED_SOMEWHERE

    def failed(self, ticket: int) -> None:
        """The client is sure that it was not written, and will not be."""
        self.offsets[ticket] = _FAILED

    def counts(self) -> tuple[int, int, int]:
        """Acked, failed and unknown sends."""
        failed = self.offsets.count(_FAILED)
        unknown = self.offsets.count(_UNKNOWN)
        return len(self) - failed - unknown, failed, unknown


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of records. The first five tell how much was looked at, each of the rest is an anomaly."""

    sent: int
    acked: int
    failed: int
    unknown: int
    read: int
    lost: int
    """Acknowledged, and in no place read."""
    moved: int
    """Acknowledged at one offset, read at another only."""
    altered: int
    """Another record was read at the offset of an acknowledged one."""
    duplicated: int
    """A record that was sent once was read again."""
    reordered: int
    """A producer's later record stands before its earlier one in the same partition."""
    aborted: int
    """Its send had failed for sure, and it was read."""
    invented: int
    """Read, and never sent."""
    skipped: int
    """Offsets that a partition's reading left out between its first and its last."""
    repeated: int
    """Deliveries at or below an offset that the reading had passed."""

    @property
    def ok(self) -> bool:
        """Whether there is no anomaly at all."""
        return not self.anomalies()

    def anomalies(self) -> dict[str, int]:
        """Kind to count, those that occurred only."""
        counts = {field.name: int(getattr(self, field.name)) for field in fields(self)[5:]}
        return {kind: count for kind, count in counts.items() if count}

    def __str__(self) -> str:
        bad = self.anomalies()
        found = ", ".join(f"{count} {kind}" for kind, count in bad.items()) or "no anomaly"
        return f"{self.acked} acked, {self.failed} failed, {self.unknown} unknown, {self.read} read: {found}"


def verdict(histories: Sequence[History], reading: Reading) -> Verdict:
    """Compare everything that was sent to one topic with one complete reading of it.

    The histories are those of all producers of the topic; the order is judged within each.
    """
    totals: Counter[str] = Counter()
    for history in histories:
        acked, failed, unknown = history.counts()
        totals.update(sent=len(history), acked=acked, failed=failed, unknown=unknown)
    at = _Placed(histories, totals)
    at.compare(reading)
    for history in histories:
        totals["reordered"] += _reordered(history)
    for deliveries in reading.values():
        skipped, repeated = _steps(offset for offset, _ in deliveries)
        totals.update(read=len(deliveries), skipped=skipped, repeated=repeated)
    return Verdict(*(totals[field.name] for field in fields(Verdict)))


def disagreements(first: Reading, second: Reading) -> list[tuple[int, int]]:
    """(partition, offset) that two readings of one topic saw with different payloads, or that only the first saw.

    `second` is the later one: what it has on top was written since (consumed-then-gone and
    inconsistent-offset of the anomaly list).
    """
    found = []
    for partition, deliveries in first.items():
        later = dict(second.get(partition, ()))
        found += [
            (partition, offset) for offset, payload in deliveries if later.get(offset) != payload
        ]
    return found


class _Placed:
    """The sends of all producers by where they were acknowledged, and what is left to be found by payload."""

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
                # Two acknowledgements of one place: only one of the two records can be there.
                self.somewhere[payload] += 1
            else:
                placed[offset] = payload
        self.known.update(history.payloads)

    def compare(self, reading: Reading) -> None:
        """Fill the counts of the totals that a comparison of payloads gives."""
        missing: Counter[Payload] = Counter()
        surplus: list[Payload] = []
        for partition in self.by_offset.keys() | reading.keys():
            expected = self.by_offset.get(partition, {})
            seen = dict(reading.get(partition, ()))
            for offset, payload in expected.items():
                found = seen.pop(offset, None)
                if found != payload:
                    missing[payload] += 1
                    if found is not None:
                        self.totals["altered"] += 1
                        surplus.append(found)
            surplus += seen.values()
        self._settle(missing, surplus)

    def _settle(self, missing: Counter[Payload], surplus: Iterable[Payload]) -> None:
        """Give what was read at places nobody was told of to those who may own it, strongest claim first."""
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
    """Acknowledged sends whose offset is below that of an earlier send to the same partition."""
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


def _steps(offsets: Iterable[int]) -> tuple[int, int]:
    """Offsets left out, and offsets that did not increase, in one partition's reading."""
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
