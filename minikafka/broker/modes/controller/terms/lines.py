"""The ledger lines of the controller's events, decisions, writes and answers (`broker/ledger/record.py`).

Invariant: a line depends only on the event, decision, write or answer that the line describes. A plan and a real
term therefore produce equal lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from minikafka.base.errors import (
    BadVersion,
    CoordinationError,
    MultiFailed,
    NodeExists,
    NoNode,
    OutcomeUnknown,
)
from minikafka.base.model import LeaderAndIsr, PartitionResult, TopicPartition
from minikafka.base.ports import Check, Create, Delete, MultiOp, Set, Stat
from minikafka.broker.ledger.record import DATA_MAX, PARTITIONS_MAX, by_topic, in_parts
from minikafka.broker.ledger.requests import by_code
from minikafka.deciders.controller.commands import AnnounceStep, ShutdownResponse
from minikafka.deciders.controller.events import (
    AssignmentChanged,
    BrokersChanged,
    BrokerSuspected,
    ControlledShutdownRequested,
    ControllerElected,
    DeletionsChanged,
    ElectionRequested,
    Event,
    IsrChanged,
    LeaderAndIsrAnswered,
    LogDirsFailed,
    PreferredElectionSubmitted,
    ReassignmentsRequested,
    ReassignmentsSubmitted,
    StopReplicaAnswered,
    SuspicionEnded,
    TopicsChanged,
    UncleanElectionEnabled,
)
from minikafka.deciders.controller.state_change_log import Decision
from minikafka.deciders.decider import Answer
from minikafka.zookeeper.nodes import layout

Fields: TypeAlias = dict[str, Any]
Item = TypeVar("Item")


# Events: one line each, more for an event with a long list.


def event_lines(event: Event) -> Iterator[Fields]:
    """Yield the ledger lines of an event, at least one line."""
    head: Fields = {"event": type(event).__name__}
    for fields in _fields_of(event):
        yield head | fields


def _fields_of(event: Event) -> Iterable[Fields]:  # noqa: C901, PLR0912 - one case per event
    match event:
        case ControllerElected():
            return [_elected(event)]
        case BrokersChanged():
            return [{"brokers": {str(id_): one.epoch for id_, one in event.brokers.items()}}]
        case BrokerSuspected():
            return [_registration(event) | {"evidence": event.evidence}]
        case SuspicionEnded():
            return [_registration(event)]
        case TopicsChanged():
            return _topics(event)
        case AssignmentChanged():
            return [{"topic": event.topic, "partition_count": len(event.assignment)}]
        case DeletionsChanged():
            return _in_parts(sorted(event.topics), lambda run: {"topics": run})
        case IsrChanged():
            head: Fields = {"notifications": event.notifications}
            states = list(event.states.items())
            return _in_parts(states, lambda run: head | {"states": _states(run)})
        case LogDirsFailed():
            named = {"brokers_with_failures": event.brokers, "notifications": event.notifications}
            return [named]
        case LeaderAndIsrAnswered():
            errors = [found for found in event.response.partitions if found[1]]
            return _in_parts(errors, lambda run: _registration(event) | {"errors": by_code(run)})
        case StopReplicaAnswered():
            deleted = list(event.deleted.items())
            return _in_parts(deleted, lambda run: _registration(event) | {"deleted": by_code(run)})
        case ControlledShutdownRequested():
            return [{"ticket": event.caller, **_registration(event)}]
        case ReassignmentsSubmitted():
            return _in_parts([*event.targets.items()], lambda run: {"targets": _targets(run)})
        case ReassignmentsRequested():
            head = {"ticket": event.caller}
            return _in_parts(
                [*event.targets.items()], lambda run: head | {"targets": _targets(run)}
            )
        case PreferredElectionSubmitted():
            return _in_parts(event.partitions, lambda run: {"partitions": by_topic(run)})
        case ElectionRequested():
            head = {"ticket": event.caller, "unclean": event.unclean}
            if event.partitions is None:
                return [{**head, "partitions": None}]
            return _in_parts(event.partitions, lambda run: head | {"partitions": by_topic(run)})
        case UncleanElectionEnabled():
            return [{"topics": event.topics and event.topics[:PARTITIONS_MAX]}]
        case _:
            return [{}]


def _in_parts(
    items: Sequence[Item], fields: Callable[[Sequence[Item]], Fields]
) -> Iterator[Fields]:
    """Yield the lines of a list that is too long for one line. `fields`: part of the list -> fields of its line."""
    for run, part in in_parts(items):
        yield fields(run) | part


def _registration(
    event: BrokerSuspected
    | SuspicionEnded
    | LeaderAndIsrAnswered
    | StopReplicaAnswered
    | ControlledShutdownRequested,
) -> Fields:
    return {"of": event.broker_id, "broker_epoch": event.broker_epoch}


def _elected(event: ControllerElected) -> Fields:
    fields: Fields = {
        "brokers": {str(id_): broker.epoch for id_, broker in event.brokers.items()},
        "topic_count": len(event.topics),
        "partition_count": sum(len(image.assignment) for image in event.topics.values()),
        "deletions": sorted(event.deletions)[:PARTITIONS_MAX],
        "targets": _targets(list(event.reassignments.items())[:PARTITIONS_MAX]),
        "preferred_elections": by_topic((event.preferred_elections or ())[:PARTITIONS_MAX]),
    }
    if event.suspects:
        fields["suspects"] = {str(id_): epoch for id_, epoch in event.suspects.items()}
    return fields


def _topics(event: TopicsChanged) -> Iterator[Fields]:
    removed = list(event.removed)
    for run, part in in_parts(list(event.added.items())):
        added = {topic: len(image.assignment) for topic, image in run}
        yield {"added": added, "removed": removed[:PARTITIONS_MAX], **part}
        removed = removed[PARTITIONS_MAX:]


def _states(states: Sequence[tuple[TopicPartition, LeaderAndIsr]]) -> list[Fields]:
    groups: dict[tuple[Any, ...], list[TopicPartition]] = {}
    for tp, state in states:
        key = (state.leader, state.leader_epoch, state.isr, state.state_version)
        groups.setdefault(key, []).append(tp)
    names = ("leader", "leader_epoch", "isr", "zk_version")
    return [
        {**dict(zip(names, key, strict=True)), "partitions": by_topic(tps)}
        for key, tps in groups.items()
    ]


def _targets(
    targets: Sequence[tuple[TopicPartition, tuple[int, ...] | None]],
) -> list[list[object]]:
    """Return [topic, partition, replicas] of each reassignment; replicas are None for a cancelled reassignment."""
    return [[tp.topic, tp.partition, replicas] for tp, replicas in targets]


def step_lines(step: AnnounceStep) -> Iterator[Fields]:
    """Yield the ledger lines which say that an operation of the controller has reached this step."""
    for run, part in in_parts(step.partitions):
        head = {"operation": step.operation, "step": step.step}
        yield {**head, "partitions": by_topic(run), **part}


def decision_lines(decisions: Mapping[Decision, Sequence[TopicPartition]]) -> Iterator[Fields]:
    """Yield the ledger lines of state machine decisions; fields without a value are left out."""
    for decision, partitions in decisions.items():
        named = {
            "verdict": decision.verdict,
            "machine": decision.machine,
            "replica": decision.replica,
            "from": decision.source or None,
            "to": decision.target or None,
            "election": decision.election or None,
            "leader": decision.leader,
            "leader_epoch": decision.leader_epoch,
            "isr": decision.isr,
            "reason": decision.reason or None,
        }
        head = {name: value for name, value in named.items() if value is not None}
        for run, part in in_parts(partitions):
            yield {**head, "partitions": by_topic(run), **part}


# Writes.

_OPS: Final = {Check: "check", Create: "create", Set: "set", Delete: "delete"}


def write_line(
    check: Check,
    operations: Sequence[MultiOp],
    *,
    stats: Sequence[Stat | None] = (),
    error: CoordinationError | None = None,
) -> Fields:
    """Return the ledger line of a multi that contains `check` and `operations`.

    `check`: the check of the controller epoch. `stats`: the Stats of the operations if the multi succeeded.
    `error`: the error if the multi failed.
    """
    zxid = next((stat.mzxid for stat in stats if stat is not None), None)
    found = stats or [None] * len(operations)
    line: Fields = {
        "check": {"path": check.path, "version": check.version},
        "outcome": _outcome(error),
        "zxid": zxid,
    }
    if error is not None:
        line["error"] = f"{type(error).__name__} {error}".strip()
    if isinstance(error, MultiFailed) and error.index > 0:
        line["failed"] = error.index - 1
    return line | {
        "operations": [_operation(*pair) for pair in zip(operations, found, strict=True)],
    }


def _outcome(error: CoordinationError | None) -> str:
    if error is None:
        return "ok"
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    if isinstance(error, MultiFailed):
        if error.index == 0:
            return "fenced"
        if isinstance(error.error, BadVersion | NoNode | NodeExists):
            return "conflict"
    return "failed"


def _operation(operation: MultiOp, stat: Stat | None) -> Fields:
    data = b"" if isinstance(operation, Delete | Check) else operation.data
    is_shown = 0 < len(data) <= DATA_MAX and not layout.has_secrets(operation.path)
    return {
        "op": _OPS[type(operation)],
        "path": operation.path,
        "expected": None if isinstance(operation, Create) else operation.version,
        "actual": None if stat is None else stat.version,
        "data": data.decode("utf-8", "replace") if is_shown else None,
    }


# Answers.


def answer_lines(answer: Answer) -> Iterator[Fields]:
    """Yield the ledger lines of the controller's answer to one request.

    For a controlled shutdown, the lines list the partitions that the broker still leads.
    """
    ticket = {"ticket": answer.caller}
    if isinstance(answer.response, ShutdownResponse):
        code = answer.response.error.name
        for run, part in in_parts(answer.response.remaining):
            result = {"code": code, "message": "", "partitions": by_topic(run)}
            yield {**ticket, "results": [result], **part}
        return
    for run_of_results, part in in_parts(list(answer.response.items())):
        groups: dict[PartitionResult, list[TopicPartition]] = {}
        for tp, result_of in run_of_results:
            groups.setdefault(result_of, []).append(tp)
        results = [
            {"code": result.code.name, "message": result.message, "partitions": by_topic(tps)}
            for result, tps in groups.items()
        ]
        yield {**ticket, "results": results, **part}
