"""All checks of the isolation checker, and their result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import Event
from minikafka.checks.isolation.cycles import check_clients, check_information, check_order
from minikafka.checks.isolation.findings import Anomaly, Findings
from minikafka.checks.isolation.groups import check_groups
from minikafka.checks.isolation.logs import PartitionLog, Stored
from minikafka.checks.isolation.operations import OFFSETS_TOPIC, Fate, join
from minikafka.checks.isolation.reads import check_reads
from minikafka.checks.isolation.stuck import StuckLimit, check_stuck
from minikafka.checks.isolation.writes import Matching

_SHOWN_PER_KIND: Final = 5
EMPTY: Final[Mapping[TopicPartition, int]] = MappingProxyType({})


@dataclass
class Verdict:
    """The result of a check. `facts`: counts that are no anomalies, such as the number of writes."""

    anomalies: Sequence[Anomaly]
    counts: Mapping[str, int]
    facts: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if there is no anomaly."""
        return not self.anomalies

    def lines(self) -> Iterator[str]:
        """Yield the first anomalies of each kind."""
        for kind in self.counts:
            found = [anomaly for anomaly in self.anomalies if anomaly.kind == kind]
            yield from map(str, found[:_SHOWN_PER_KIND])

    def __str__(self) -> str:
        found = ", ".join(f"{count} {kind}" for kind, count in self.counts.items()) or "no anomaly"
        facts = ", ".join(f"{count:,} {name}" for name, count in self.facts.items())
        return f"{facts}: {found}"


def check(
    history: Iterable[Event],
    replicas: Mapping[TopicPartition, Mapping[int, Sequence[Stored]]],
    *,
    limit: StuckLimit | None = None,
    starts: Mapping[TopicPartition, int] = EMPTY,
) -> Verdict:
    """Compare the histories of all clients with the logs of all replicas.

    `history` must cover every client that wrote to the topics of `replicas`. `replicas`: the logs of each
    partition by broker, up to the high watermark. `limit`: when something counts as stuck; None: never. `starts`: the
    log start offset of each partition, where it is known.
    """
    findings = Findings()
    clients = join(history)
    for fate in Fate:
        transactions = [one for one in clients.transactions if one.number is not None]
        findings.facts[fate.value] = sum(one.fate is fate for one in transactions)
    logs = {
        tp: agreed_log(tp, copies, findings, starts.get(tp, 0)) for tp, copies in replicas.items()
    }
    matching = Matching(logs, findings)
    matching.check(clients.transactions)
    check_reads(clients.reads, logs, matching.owners, findings)
    check_groups(clients, logs, findings)
    check_order(logs, matching.certain, findings)
    # The offsets of one call have no order.
    sent = (w for one in clients.transactions for w in one.writes if w.topic != OFFSETS_TOPIC)
    in_order = sorted(sent, key=lambda write: write.number)
    check_clients(matching.placed(in_order), matching.owners, findings)
    check_information(clients.reads, clients.transactions, matching.owners, findings)
    if limit is not None:
        check_stuck(clients, logs, limit, findings)
    return Verdict(findings.anomalies, findings.counts(), findings.facts)


def agreed_log(
    tp: TopicPartition,
    copies: Mapping[int, Sequence[Stored]],
    findings: Findings,
    log_start: int = 0,
) -> PartitionLog:
    """Return the longest replica's log, and report each offset at which another replica differs."""
    logs = {broker: {one.offset: one for one in copy} for broker, copy in copies.items()}
    start = max((min(log, default=0) for log in logs.values()), default=0)
    longest = max(copies.values(), key=len, default=())
    for entry in longest:
        if entry.offset >= start:
            others = {broker: log.get(entry.offset) for broker, log in logs.items()}
            wrong = sorted(broker for broker, other in others.items() if other != entry)
            if wrong:
                text = f"brokers {', '.join(map(str, wrong))} differ"
                findings.add("diverging", tp, entry.offset, None, text)
    return PartitionLog(longest, log_start)
