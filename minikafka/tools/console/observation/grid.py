"""The newest state of every partition, combined from the answers of single brokers, in rows that are cheap to send.

Invariants: of several brokers that claim to lead a partition, the claim in the newest epoch counts. A broker that does
not answer claims nothing. `update`, `change` and `forget` return exactly the partitions whose rows they have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

Row: TypeAlias = list[Any]
"""leader, leader epoch, replicas, ISR, offline replicas, high watermark, log end, log start, adding, removing, and the
last stable offset if it is below the high watermark, else None."""
LEADER, EPOCH, REPLICAS, ISR, OFFLINE, HIGH_WATERMARK, LOG_END, LOG_START = range(8)
ADDING, REMOVING, LAST_STABLE = range(8, 11)
_FIELDS: Final = (
    "role",
    "leader_epoch",
    "replicas",
    "isr",
    "high_watermark",
    "log_end_offset",
    "log_start_offset",
    "last_stable_offset",
    "opening",
    "size",
)


class _Claim(NamedTuple):
    """What one broker says about its replica of a partition."""

    role: str
    epoch: int
    replicas: list[int]
    isr: list[int]
    high_watermark: int
    log_end: int
    log_start: int
    last_stable: int
    opening: list[int] | None
    size: int | None
    adding: list[int]
    removing: list[int]

    @property
    def leads(self) -> bool:
        """True if the broker claims to lead and to serve clients."""
        return self.role == "leader" and self.opening is None


class PartitionGrid:
    """The rows of all partitions, by name (`topic-0`)."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.sizes: dict[str, int] = {}
        """By partition with a leader: the bytes of the leader's log."""
        self._claims: dict[int, dict[str, _Claim]] = {}
        self._counts: dict[int, list[int]] | None = None
        """The result of `counts`; None after a change of leaders or replicas."""

    def update(self, broker: int, answers: Iterable[Mapping[str, Any]]) -> set[str]:
        """Replace what a broker says about its replicas; return the partitions whose rows have changed."""
        before = self._claims.get(broker, {})
        now = {f"{row['topic']}-{row['partition']}": _claim(row) for row in answers}
        self._claims[broker] = now
        touched = {name for name, claim in now.items() if before.get(name) != claim}
        return self._combine(touched | (before.keys() - now.keys()))

    def change(
        self, broker: int, answers: Iterable[Mapping[str, Any]], gone: Iterable[str]
    ) -> set[str]:
        """Apply what has changed of a broker's replicas; return the partitions whose rows have changed."""
        known = self._claims.setdefault(broker, {})
        touched = {name for name in gone if known.pop(name, None) is not None}
        for row in answers:
            name, claim = f"{row['topic']}-{row['partition']}", _claim(row)
            if known.get(name) != claim:
                known[name] = claim
                touched.add(name)
        return self._combine(touched)

    def forget(self, broker: int) -> set[str]:
        """Drop what a broker said, because it does not answer; return the partitions whose rows have changed."""
        return self._combine(self._claims.pop(broker, {}).keys())

    def _combine(self, names: Iterable[str]) -> set[str]:
        changed = set()
        for name in names:
            claims = {b: some[name] for b, some in self._claims.items() if name in some}
            row = self._row(name, claims)
            if row != self.rows.get(name):
                changed.add(name)
                self._set(name, row)
        return changed

    def _set(self, name: str, row: Row | None) -> None:
        former = self.rows.get(name)
        if row is None or former is None or _placement(row) != _placement(former):
            self._counts = None
        if row is None:
            del self.rows[name]
        else:
            self.rows[name] = row

    def _row(self, name: str, claims: Mapping[int, _Claim]) -> Row | None:
        """Return the row of a partition; None if no broker that answers has a replica, and none that is away had one.

        A partition whose brokers are all away stays, without a leader.
        """
        self.sizes.pop(name, None)
        if not claims:
            return self._without_answer(name)
        leader = max(claims, key=lambda broker: (claims[broker].epoch, claims[broker].leads))
        best = claims[leader]
        some = claims.values()
        offline = [
            one for one in best.replicas if one not in claims or claims[one].role == "offline"
        ]
        if best.leads:
            if best.size is not None:
                self.sizes[name] = best.size
            stable = None if best.last_stable == best.high_watermark else best.last_stable
            ends = [best.high_watermark, best.log_end, best.log_start]
        else:
            stable = None
            ends = [max(c.high_watermark for c in some), max(c.log_end for c in some)]
            ends.append(min(c.log_start for c in some))
        head = [leader if best.leads else None, best.epoch, best.replicas, best.isr, offline]
        return [*head, *ends, best.adding, best.removing, stable]

    def _without_answer(self, name: str) -> Row | None:
        last = self.rows.get(name)
        if last is None or all(replica in self._claims for replica in last[REPLICAS]):
            return None
        row = [*last]
        row[LEADER], row[OFFLINE], row[LAST_STABLE] = None, last[REPLICAS], None
        return row

    def counts(self) -> dict[int, list[int]]:
        """Return by broker id: partitions that it leads, that it is the preferred leader of, and that it replicates."""
        if self._counts is not None:
            return self._counts
        found: dict[int, list[int]] = {}
        for row in self.rows.values():
            for replica in row[REPLICAS]:
                found.setdefault(replica, [0, 0, 0])[2] += 1
            for preferred in row[REPLICAS][:1]:
                found[preferred][1] += 1
            leader = row[LEADER]
            if leader is not None:
                found.setdefault(leader, [0, 0, 0])[0] += 1
        self._counts = found
        return found


def _placement(row: Row) -> tuple[Any, Any]:
    return row[LEADER], row[REPLICAS]


def _claim(row: Mapping[str, Any]) -> _Claim:
    # Brokers of older versions do not send the last two.
    return _Claim._make(
        [*map(row.__getitem__, _FIELDS), row.get("adding", []), row.get("removing", [])]
    )


def topic_of(name: str) -> str:
    """Return the topic in the name of a partition."""
    return name.rpartition("-")[0]
