"""The result of a verdict: what the clients suffered, with the records and the moments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from minikafka.base.errors import MinikafkaError

LOST: Final = "lost"
DUPLICATED: Final = "duplicated"
REORDERED: Final = "reordered"
ABORTED_READ: Final = "aborted_read"
STUCK: Final = "stuck"
KINDS: Final = (LOST, DUPLICATED, REORDERED, ABORTED_READ, STUCK)
_SHOWN_PER_KIND: Final = 5
_WALL_MIN: Final = 1e9
"""Smaller times of a history are not those of a calendar."""


class VerdictError(MinikafkaError):
    """The verdict could not be made; the text is one sentence that says why."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class ClientFinding:
    """One anomaly. `kind`: one of `KINDS`, or a rarer kind of docs/isolation.md.

    `client`: who sent or read the record. `time`: the seconds of the history, which `minikafka.history` writes as Unix
    time. `ledger`: what the brokers' ledgers tell about the partition around this time.
    """

    kind: str
    detail: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    key: str | None = None
    value: str | None = None
    client: str = ""
    time: float | None = None
    ledger: tuple[str, ...] = ()

    def __str__(self) -> str:
        record = "".join(
            f", {name} {text!r}"
            for name, text in (("key", self.key), ("value", self.value))
            if text
        )
        place = "" if self.topic is None else f" {self._place()}"
        moment = "" if self.time is None else f" at {moment_of(self.time)}"
        client = f" ({self.client})" if self.client else ""
        return f"{self.kind}{place}{moment}{record}{client}: {self.detail}"

    def _place(self) -> str:
        partition = "" if self.partition is None else f"-{self.partition}"
        offset = "" if self.offset is None else f" offset {self.offset}"
        return f"{self.topic}{partition}{offset}"


def moment_of(time: float) -> str:
    """Return a time of a history as text."""
    if time < _WALL_MIN:
        return f"{time:.3f} s"
    return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S.%f")[:-3] + " UTC"


@dataclass(frozen=True, slots=True)
class ClientVerdict:
    """The result of a check of clients. `facts`: counts that are no anomalies."""

    findings: Sequence[ClientFinding]
    facts: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not self.findings

    @property
    def lost(self) -> list[ClientFinding]:
        """Records that were acknowledged and are not in the log, or that a consumer or its group passed over."""
        return self.of(LOST)

    @property
    def duplicated(self) -> list[ClientFinding]:
        """Surplus copies in the log, and records that were received again after their offset was committed."""
        return self.of(DUPLICATED)

    @property
    def reordered(self) -> list[ClientFinding]:
        """Records that lie before records that their client had sent earlier."""
        return self.of(REORDERED)

    @property
    def aborted_read(self) -> list[ClientFinding]:
        """Records of transactions that were not committed, or of failed sends, that are visible or were read."""
        return self.of(ABORTED_READ)

    @property
    def stuck(self) -> list[ClientFinding]:
        """Sends, transactions and consumers that did not get on within the limit."""
        return self.of(STUCK)

    @property
    def others(self) -> list[ClientFinding]:
        """Anomalies of rarer kinds, such as transactions of which only a part is visible."""
        return [finding for finding in self.findings if finding.kind not in KINDS]

    def of(self, kind: str) -> list[ClientFinding]:
        """Return the findings of one kind."""
        return [finding for finding in self.findings if finding.kind == kind]

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings of each kind that was found."""
        found = Counter(finding.kind for finding in self.findings)
        return {kind: found[kind] for kind in (*KINDS, *sorted(found)) if found[kind]}

    def __str__(self) -> str:
        found = ", ".join(f"{count} {kind}" for kind, count in self.counts.items()) or "no anomaly"
        facts = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in self.facts.items())
        return f"{found} ({facts})" if facts else found

    def lines(self) -> Iterator[str]:
        """Yield the first findings of each kind with the ledger's lines, then the counts."""
        told: tuple[str, ...] = ()
        for kind, count in self.counts.items():
            for finding in self.of(kind)[:_SHOWN_PER_KIND]:
                yield str(finding)
                if finding.ledger != told:
                    yield from (f"    {line}" for line in finding.ledger)
                    told = finding.ledger
            if count > _SHOWN_PER_KIND:
                yield f"{kind}: {count - _SHOWN_PER_KIND} more"
        yield str(self)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON-able values."""
        return {
            "ok": self.ok,
            "counts": self.counts,
            "findings": [asdict(finding) for finding in self.findings],
            "facts": dict(self.facts),
        }
