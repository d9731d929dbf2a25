"""A finding: a fact about a partition or a consumer group, with its causes. `why` explains both with findings.

Invariant: a finding states a fact and the source of the fact. A guess is worded as a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from minikafka.tools.cluster.observation.causes import Cause
from minikafka.tools.explain.past import Reference


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about a partition or a consumer group.

    `brokers`: the brokers that cause the problem. `because`: the findings that cause this finding.
    """

    name: str
    text: str
    brokers: tuple[int, ...] = ()
    events: tuple[Reference, ...] = ()
    because: tuple[Finding, ...] = ()
    is_problem: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return the finding and its causes as JSON-able values."""
        return {
            "name": self.name,
            "text": self.text,
            "problem": self.is_problem,
            "brokers": list(self.brokers),
            "events": [event._asdict() for event in self.events],
            "because": [finding.as_json() for finding in self.because],
        }

    def blocking_brokers(self) -> set[int]:
        """Return all brokers that cause this finding or one of its causes."""
        return {*self.brokers, *(b for finding in self.because for b in finding.blocking_brokers())}


def root_findings(
    causes: Iterable[Cause], concerned: Collection[int] | None = None
) -> list[Finding]:
    """Return a finding for each root cause that concerns the whole cluster.

    `concerned`: the brokers whose broken links count; None: all.
    """
    return [
        Finding(cause.name, cause.sentence, cause.between)
        for cause in causes
        if cause.broker is None
        and cause.name != "no-controller"
        and (not cause.between or concerned is None or {*cause.between} <= {*concerned})
    ]


def leaves(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield the texts of the findings that have no cause among the findings."""
    for finding in findings:
        reasons = [reason for reason in finding.because if reason.is_problem]
        if reasons:
            yield from leaves(reasons)
        else:
            yield finding.text


def as_json(found: Iterable[Finding]) -> dict[str, Any]:
    """Return the JSON-able fields of an explanation: the findings, and the brokers that cause the problems."""
    found = list(found)
    problems = [finding for finding in found if finding.is_problem]
    return {
        "healthy": not problems,
        "blocking_brokers": sorted({b for finding in problems for b in finding.blocking_brokers()}),
        "findings": [finding.as_json() for finding in found],
    }
