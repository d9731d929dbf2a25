"""The check of histories against logs, and the translation of its result to the kinds that users know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import ASSIGNED, INVOKED, OFFSETS, OK, READ, WRITE, Event
from minikafka.checks.isolation.findings import Anomaly
from minikafka.checks.isolation.logs import PartitionLog, Stored
from minikafka.checks.isolation.stuck import StuckLimit
from minikafka.checks.isolation.verdict import check
from minikafka.tools.verdict import logs
from minikafka.tools.verdict.report import (
    DUPLICATED,
    LOST,
    STUCK,
    ClientFinding,
    ClientVerdict,
    VerdictError,
)

STUCK_SECONDS: Final = 30.0
"""The default of the limit after which something counts as stuck."""
_KNOWN_AS: Final = {"skipped_read": LOST, "read_back": DUPLICATED, "behind_lso": STUCK}
"""How the verdict calls the kinds of the isolation checker that have another name there."""
_FOREIGN: Final = "invented"
"""Records of producers that are in no history: no anomaly here, because topics may have other producers."""
_FACTS: Final = ("writes", "reads", "redelivered", "pending", "unread", "held_back")
Replicas = Mapping[TopicPartition, Mapping[int, Sequence[Stored]]]


def topics_of(events: Iterable[Event]) -> set[str]:
    """Return the topics that clients used."""
    return {event.topic for event in events if event.topic is not None and event.kind != OFFSETS}


def groups_of(events: Iterable[Event]) -> set[str]:
    """Return the groups of consumers."""
    return {event.group for event in events if event.kind == ASSIGNED and event.group is not None}


def judge(
    events: Sequence[Event], found: logs.ReadLogs, seconds: float, now: float | None = None
) -> ClientVerdict:
    """Return the verdict. `seconds`: after this time without progress, something counts as stuck.

    `now`: the time of the verdict in the seconds of the history; None: the time of the last event. Raises HistoryError,
    and VerdictError if a topic with acknowledged or received records does not exist, or if nothing was found but some
    logs could not be read.
    """
    _check_exist(events, found.missing)
    last = max((event.time for event in events if event.time is not None), default=None)
    limit = StuckLimit(seconds, now, found.committed)
    result = check(events, found.replicas, limit=limit, starts=found.starts)
    facts = Counter({name: count for name, count in result.facts.items() if name in _FACTS})
    findings = []
    for anomaly in result.anomalies:
        if anomaly.kind == _FOREIGN:
            facts["of_other_producers"] += 1
        elif anomaly.kind == "behind_lso" and _is_young(
            anomaly, found.replicas, seconds, last if now is None else now
        ):
            facts["held_back"] += 1
        else:
            findings.append(_finding(anomaly))
    if found.unreadable and not findings:
        raise VerdictError("; ".join(found.unreadable))
    return ClientVerdict(findings, {name: count for name, count in facts.items() if count})


def _check_exist(events: Iterable[Event], missing: Collection[str]) -> None:
    gone = {
        event.topic
        for event in events
        if event.topic in missing and event.kind in (WRITE, READ) and event.outcome == OK
    }
    if gone:
        named = ", ".join(sorted(map(str, gone)))
        raise VerdictError(
            f"the clients used the topic {named}, which does not exist (any more): "
            "make the verdict before the topic is deleted"
        )


def _is_young(anomaly: Anomaly, replicas: Replicas, seconds: float, now: float | None) -> bool:
    """True if the transaction that holds a record back has not been open for the limit."""
    if anomaly.tp is None or now is None:
        return False
    longest: Sequence[Stored] = max(replicas[anomaly.tp].values(), key=len)
    log = PartitionLog(longest)
    if log.last_stable is None:
        return False
    return now - log.records[log.last_stable].timestamp / 1000 < seconds


def _finding(anomaly: Anomaly) -> ClientFinding:
    tp = anomaly.tp
    return ClientFinding(
        _KNOWN_AS.get(anomaly.kind, anomaly.kind),
        anomaly.detail,
        tp.topic if tp else None,
        tp.partition if tp else None,
        anomaly.offset if anomaly.offset >= 0 else None,
        anomaly.key,
        anomaly.value,
        anomaly.transaction,
        anomaly.time,
    )


def count_outcomes(events: Iterable[Event]) -> Counter[str]:
    """Return the number of writes of each outcome; `INVOKED` for those without one."""
    last: dict[tuple[str, int], str] = {}
    for event in events:
        if event.kind == WRITE:
            last[event.client, event.number] = event.outcome
    counts = Counter(last.values())
    counts["unknown"] += counts.pop(INVOKED, 0)
    return counts
