"""Why a broker, or its replica of a partition, does not work: the leaves of most explanations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from minikafka.tools.explain.evidence import (
    DOWN,
    PAUSED,
    SILENT,
    UNREACHABLE,
    UNTOLD,
    PartitionEvidence,
)
from minikafka.tools.explain.finding import Finding

_STATES: Final = {
    SILENT: "runs but does not answer",
    PAUSED: "is paused (SIGSTOP)",
    UNREACHABLE: "cannot be reached from here",
}


def why_not_serving(evidence: PartitionEvidence, broker: int) -> list[Finding]:
    """Return findings that explain why the broker or its replica does not work; [] if both work."""
    found = evidence.brokers.get(broker)
    about = (broker,)
    if found is None:
        text = _with_cause(evidence, broker, f"there is no broker {broker} in this cluster")
        return [Finding("no-such-broker", text, about)]
    gone = tuple(evidence.past.broker_lost(broker))
    if found.process == DOWN:
        text = _with_cause(evidence, broker, f"broker {broker} is down: it has no process")
        return [Finding("broker-down", text, about, gone)]
    if found.process in _STATES:
        state = _STATES[found.process]
        text = _with_cause(
            evidence, broker, f"broker {broker} {state}", _registration(evidence, broker)
        )
        return [Finding("broker-silent", text, about, gone)]
    if found.answer is None:  # it serves clients, but does not tell
        return []
    if failed := list(_failed_directory(evidence, broker)):
        return failed
    if found.answer["session_state"] != "connected":
        state = found.answer["session_state"].replace("_", " ")
        text = f"broker {broker} has no connection to ZooKeeper (its session: {state})"
        return [Finding("no-session", text, about, gone)]
    if evidence.is_registered(broker) is False:
        text = f"broker {broker} runs but is not registered in ZooKeeper"
        return [Finding("not-registered", text, about, gone)]
    return list(_why_replica_not_serving(evidence, broker))


def _registration(evidence: PartitionEvidence, broker: int) -> str:
    is_registered = evidence.is_registered(broker)
    if is_registered is None:
        return ""
    return f", and is {'still' if is_registered else 'no longer'} registered in ZooKeeper"


def _with_cause(evidence: PartitionEvidence, broker: int, text: str, more: str = "") -> str:
    """Return the text of the root cause that concerns the broker, else `text`; add `more`, then the remedy."""
    for cause in evidence.causes:
        if cause.broker == broker and cause.name.startswith(("broker-", "control-")):
            return f"{cause.text}{more}; {cause.remedy}"
    return text + more


def _failed_directory(evidence: PartitionEvidence, broker: int) -> Iterator[Finding]:
    """Yield a finding if the log directory with the broker's replica has failed."""
    replica = evidence.brokers[broker].replica
    known = (evidence.controller["partition"] if evidence.controller else None) or {}
    if not (replica and replica["role"] == "offline") and broker not in known.get(
        "lost_directories", ()
    ):
        return
    events = tuple(evidence.past.directory_failed(broker))
    causes = [c for c in evidence.causes if c.name == "directory-failed" and c.broker == broker]
    for cause in causes:
        yield Finding("directory-failed", cause.sentence, (broker,), events)
    if not causes:
        text = f"the log directory of the replica on broker {broker} has failed"
        yield Finding("directory-failed", text, (broker,), events)


def _why_replica_not_serving(evidence: PartitionEvidence, broker: int) -> Iterator[Finding]:
    replica, view = evidence.brokers[broker].replica, evidence.controller
    answer = evidence.brokers[broker].answer
    is_leaving = not evidence.has_controller and answer is not None and answer.get("leaving")
    if is_leaving or (view and broker in view["shutting_down"]):
        yield Finding("shutting-down", f"broker {broker} is shutting down", (broker,))
    elif replica is None:
        text = f"broker {broker} has no replica yet{waiting(evidence, broker)}"
        yield Finding("no-replica", text, (broker,), tuple(evidence.past.oldest_unanswered(broker)))


def waiting(evidence: PartitionEvidence, broker: int) -> str:
    """Return a phrase with the number of requests that wait for the broker; "" if there are none."""
    waiting = evidence.backlog(broker)
    if not waiting:
        return ""
    if evidence.has_controller:
        return f"; requests from the controller that it has not answered: {waiting}"
    return f"; requests in its queue: {waiting}"


def unseen_leader(evidence: PartitionEvidence) -> list[Finding]:
    """Return a finding if the leader may serve clients, but tells nothing here; [] if not."""
    leader = evidence.brokers.get(evidence.leader)
    if leader is None or leader.process not in (UNREACHABLE, UNTOLD):
        return []
    is_away = leader.process == UNREACHABLE
    if is_away and evidence.is_registered(leader.id) is False:
        return []
    how = "cannot be reached from here" if is_away else "does not tell its state"
    text = f"the leader, broker {leader.id}, {how}: its offsets and followers are not known"
    because = tuple(why_not_serving(evidence, leader.id))
    return [Finding("leader-unseen", text, (leader.id,), (), because, is_problem=is_away)]
