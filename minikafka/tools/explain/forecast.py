"""A plan in sentences: the leaders, ISRs and replicas after a planned change, and the number of requests.

The input is the lines of `minikafka plan`; the module does no I/O. Invariant: every partition that the plan
changes is in a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.base.names import is_internal
from minikafka.broker.ledger.record import ANSWER, DECISION, EVENT, REQUEST, WRITE, partitions_of
from minikafka.tools.explain.past import assignments_in, leadership_in
from minikafka.tools.explain.trace import Line, ids, join_names

_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC: Final = re.compile(r"/brokers/topics/([^/]+)")

_UNNEEDED: Final = (ErrorCode.NONE.name, ErrorCode.ELECTION_NOT_NEEDED.name)
"""Codes of answers that refuse nothing."""

Leadership = tuple[int, tuple[int, ...]]


def forecast(lines: Sequence[Line]) -> list[str]:
    """Return the sentences about a plan. The last sentence counts the plan's writes and requests."""
    elected, refused, deleted = _elected(lines), _refused(lines), _deleted(lines)
    states = {tp: s for tp, s in _states(lines).items() if tp.topic not in deleted}
    assigned = {tp: r for tp, r in _assigned(lines).items() if tp.topic not in deleted}
    led = {tp: state for tp, state in states.items() if tp in elected}
    offline = _offline(lines)
    other = {tp: state for tp, state in states.items() if tp not in elected and tp not in refused}
    kept = {tp: state for tp, state in other.items() if state[0] >= 0}
    without = {tp: "" for tp, state in other.items() if state[0] < 0}
    refusals = {tp: reason for tp, reason in refused.items() if tp not in elected}
    left = {tp: reason for tp, reason in refusals.items() if tp in offline}
    unmoved = {tp: reason for tp, reason in refusals.items() if tp not in offline}
    waiting = _marked(lines) - deleted
    rejected = {tp: why for tp, why in _rejected(lines).items() if tp not in refused}
    return [
        *(
            f"{names} would be led by broker {to}, ISR {ids(isr)}"
            for (to, isr), names in _grouped(led)
        ),
        *(f"{names} would keep leader {to}, ISR {ids(isr)}" for (to, isr), names in _grouped(kept)),
        *(f"{names} would have the replicas {ids(to)}" for to, names in _grouped(assigned)),
        *(f"{names} would have no leader{why}" for why, names in _grouped(without)),
        *(f"{names} would have no leader{_because(why)}" for why, names in _grouped(left)),
        *(f"{names} would be led as before{_because(why)}" for why, names in _grouped(unmoved)),
        *(f"the request for {names} would be rejected: {why}" for why, names in _grouped(rejected)),
        *(f"topic {topic} would be deleted" for topic in sorted(deleted)),
        *(
            f"topic {topic} would stay marked for deletion until every replica can be deleted"
            for topic in sorted(waiting)
        ),
        _cost(lines),
    ]


def _because(reason: str) -> str:
    return f": the partition {reason}"


def _grouped(values: Mapping[TopicPartition, Any]) -> Iterator[tuple[Any, str]]:
    """Yield each distinct value once, with the names of all partitions that have this value.

    The values are in the order of their first partitions, those of users' topics first.
    """
    groups: dict[Any, list[TopicPartition]] = {}
    for tp in sorted(values, key=lambda tp: (is_internal(tp.topic), tp)):
        groups.setdefault(values[tp], []).append(tp)
    for value, partitions in groups.items():
        yield value, join_names(partitions)


def _decisions(lines: Sequence[Line], verdict: str) -> Iterator[Line]:
    for line in lines:
        if line["kind"] == DECISION and (line["verdict"], line["machine"]) == (
            verdict,
            "partition",
        ):
            yield line


def _elected(lines: Sequence[Line]) -> set[TopicPartition]:
    """Return the partitions for which the plan elects a leader."""
    chosen = (line for line in _decisions(lines, "choose") if line.get("election"))
    return {tp for line in chosen for tp in partitions_of(line["partitions"])}


def _refused(lines: Sequence[Line]) -> dict[TopicPartition, str]:
    """Return, by partition, the reason why the plan elects no leader."""
    return {
        tp: line["reason"]
        for line in _decisions(lines, "refuse")
        for tp in partitions_of(line["partitions"])
    }


def _rejected(lines: Sequence[Line]) -> dict[TopicPartition, str]:
    """Return, by partition, the error with which the controller would answer the request."""
    found = {}
    for result in (r for line in lines if line["kind"] == ANSWER for r in line["results"]):
        for tp in partitions_of(result["partitions"]):
            if result["code"] not in _UNNEEDED:
                found[tp] = f"{result['code']}: {result['message']}"
    return found


def _offline(lines: Sequence[Line]) -> set[TopicPartition]:
    """Return the partitions that the plan takes offline."""
    moves = (line for line in _decisions(lines, "move") if line.get("to") == "OfflinePartition")
    return {tp for line in moves for tp in partitions_of(line["partitions"])}


def _writes(lines: Sequence[Line]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        if line["kind"] == WRITE and line["outcome"] == "ok":
            yield from line["operations"]


def _states(lines: Sequence[Line]) -> dict[TopicPartition, Leadership]:
    """Return the last (leader, ISR) that the plan writes, by partition."""
    found = {}
    for operation in _writes(lines):
        match = _STATE.fullmatch(operation["path"])
        if match and (leadership := leadership_in(operation.get("data"))):
            leader, _, isr = leadership
            found[TopicPartition(match[1], int(match[2]))] = (leader, isr)
    return found


def _assigned(lines: Sequence[Line]) -> dict[TopicPartition, tuple[int, ...]]:
    """Return, by partition, the replicas after the plan; only for partitions that the plan reassigns."""
    events = (line for line in lines if line["kind"] == EVENT)
    moving = {TopicPartition(*t[:2]) for line in events for t in line.get("targets") or ()}
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for operation in _writes(lines):
        match = _TOPIC.fullmatch(operation["path"])
        if not match or operation["op"] != "set" or not operation.get("data"):
            continue
        for number, assignment in assignments_in(operation["data"]).items():
            tp = TopicPartition(match[1], number)
            found[tp] = assignment.replicas
            if assignment.adding or assignment.removing:
                moving.add(tp)
    return {tp: replicas for tp, replicas in found.items() if tp in moving}


def _deleted(lines: Sequence[Line]) -> set[str]:
    deletions = (operation for operation in _writes(lines) if operation["op"] == "delete")
    matches = (_TOPIC.fullmatch(operation["path"]) for operation in deletions)
    return {match[1] for match in matches if match}


def _marked(lines: Sequence[Line]) -> set[str]:
    """Return the topics that the plan marks for deletion."""
    return {
        topic for line in lines if line["kind"] == "assumed" for topic in line.get("topics") or ()
    }


def _cost(lines: Sequence[Line]) -> str:
    """Return the sentence with the number of writes and requests, and the brokers that receive requests."""
    writes = sum(line["kind"] == WRITE for line in lines)
    requests = [line for line in lines if line["kind"] == REQUEST]
    if not writes and not requests:
        return "nothing would change"
    receivers = sorted({line["to"] for line in requests})
    name = "broker" if len(receivers) == 1 else "brokers"
    to = f" to {name} {ids(receivers)}" if receivers else ""
    return f"{_many(writes, 'write')} to ZooKeeper, {_many(len(requests), 'request')}{to}"


def _many(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"
