"""The findings of `why` that only the leader-coordinated mode has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from minikafka.tools.explain.evidence import PartitionEvidence
from minikafka.tools.explain.finding import Finding
from minikafka.tools.explain.trace import ids

_WAITING: Final = ("waiting", "electing")
"""The statuses of a replica that has no leader (`deciders/leaders/model.py`)."""


def held_brokers(evidence: PartitionEvidence) -> list[Finding]:
    """Return a finding for each unreadable node and each broker that is held at a step of a test."""
    faults = evidence.nodes.faults if evidence.nodes else {}
    found = [
        Finding("unreadable-node", f"nothing is decided while {path} is not readable: {fault}")
        for path, fault in faults.items()
    ]
    for broker in evidence.brokers.values():
        if broker.answer and (step := broker.answer.get("held_at")):
            text = f"broker {broker.id} is held at step {step}"
            found.append(Finding("held-at-step", text, (broker.id,)))
    return found


def opening_leader(evidence: PartitionEvidence) -> list[Finding]:
    """Return a finding about a leader that does not serve clients yet; [] if it does."""
    replica = evidence.leader_replica
    missing = replica.get("opening") if replica else None
    if missing is None:
        return []
    text = f"leader {evidence.leader} does not serve clients before {ids(missing)} of the ISR have caught up"
    return [Finding("opening", text, (evidence.leader, *missing))]


def not_leading(evidence: PartitionEvidence) -> Finding:
    """Return the finding about a broker that was elected and has not taken its role."""
    text = f"broker {evidence.leader} was elected in epoch {evidence.leader_epoch} but does not lead yet"
    because = tuple(held_brokers(evidence))
    return Finding("not-leading", text, (evidence.leader,), because=because)


def waiting_replicas(evidence: PartitionEvidence) -> Iterator[Finding]:
    """Yield a finding for each live replica that has no leader, with the reason why it does not elect itself."""
    for broker in evidence.assignment.replicas:
        status = evidence.replica_status(broker)
        if status is not None and status["status"] in _WAITING:
            why = f": {status['refusal']}" if status["refusal"] else ""
            text = f"replica {broker} waits for a leader{why}"
            yield Finding("waits-for-leader", text, (broker,))


def unfinished_requests(
    evidence: PartitionEvidence, why_not_serving: Callable[[PartitionEvidence, int], list[Finding]]
) -> list[Finding]:
    """Return a finding about a partition that is being created or deleted; [] for any other partition."""
    nodes = evidence.nodes
    if nodes is None or not (nodes.is_marked or nodes.is_being_created):
        return []
    because = held_brokers(evidence)
    if nodes.is_being_created:
        text = f"{evidence.tp} is being created: its replica list is not written yet"
        return [Finding("not-created", text, because=tuple(because))]
    for broker in evidence.assignment.replicas:
        if waiting := nodes.backlog.get(broker, 0):
            text = f"broker {broker} has not handled the requests in its queue: {waiting}"
            away = tuple(why_not_serving(evidence, broker))
            because.append(Finding("requests-waiting", text, (broker,), because=away))
    text = f"{evidence.tp} is being deleted and not deleted yet"
    return [Finding("not-deleted", text, because=tuple(because))]
