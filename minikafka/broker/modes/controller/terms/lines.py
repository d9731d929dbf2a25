"""The ledger lines of the controller's events, decisions, writes and answers (`ledger/record.py`).

Invariant: a line depends only on the event, decision, write or answer that the line describes. A plan and a real
term therefore produce equal lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

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
from minikafka.controller.events import (
    AnswerAdmin,
    AnswerControlledShutdown,
    AssignmentChanged,
    BrokersChanged,
    BrokerSuspected,
    ControlledShutdownRequested,
    ControllerElected,
    DeletionsChanged,
    ElectionRequested,
    ExternalEvent,
    IsrChanged,
    LeaderAndIsrAnswered,
    LogDirsFailed,
    PreferredElectionSubmitted,
    ReassignmentsRequested,
    ReassignmentsSubmitted,
    StepReached,
    StopReplicaAnswered,
    SuspicionEnded,
    TopicsChanged,
    UncleanElectionEnabled,
)
from minikafka.controller.state_change_log import Decision
from minikafka.ledger.record import DATA_MAX, PARTITIONS_MAX, by_topic, in_parts
from minikafka.ledger.requests import by_code

Fields: TypeAlias = dict[str, Any]


# Events: one line each, more for an event with a long list.


def event_lines(event: ExternalEvent) -> Iterator[Fields]:
    """Yield the ledger lines of an event, at least one line."""
    head: Fields = {"event": type(event).__name__}
    lines = _LINES_OF.get(type(event))
    if lines is not None:
        for fields in lines(event):
            yield head | fields
    else:
        yield head


def _elected(event: ControllerElected) -> Iterator[Fields]:
    yield {
        "brokers": {str(id_): broker.epoch for id_, broker in event.brokers.items()},
        "topic_count": len(event.topics),
        "partition_count": sum(len(image.assignment) for image in event.topics.values()),
        "deletions": sorted(event.deletions)[:PARTITIONS_MAX],
        "targets": _targets(list(event.reassignments.items())[:PARTITIONS_MAX]),
        "preferred_elections": by_topic((event.preferred_elections or ())[:PARTITIONS_MAX]),
        **({"suspects": _epochs(event.suspects)} if event.suspects else {}),
    }


def _epochs(of: Mapping[int, int]) -> Fields:
    """Return broker id -> broker epoch with the ids as text, because keys in JSON must be strings."""
    return {str(id_): epoch for id_, epoch in of.items()}


def _brokers(event: BrokersChanged) -> Iterator[Fields]:
    yield {"brokers": {str(id_): broker.epoch for id_, broker in event.brokers.items()}}


def _suspicion(event: BrokerSuspected | SuspicionEnded) -> Iterator[Fields]:
    evidence = {"evidence": event.evidence} if isinstance(event, BrokerSuspected) else {}
    yield {"of": event.broker_id, "broker_epoch": event.broker_epoch, **evidence}


def _topics(event: TopicsChanged) -> Iterator[Fields]:
    removed = list(event.removed)
    for run, part in in_parts(list(event.added.items())):
        added = {topic: len(image.assignment) for topic, image in run}
        yield {"added": added, "removed": removed[:PARTITIONS_MAX], **part}
        removed = removed[PARTITIONS_MAX:]


def _assignment(event: AssignmentChanged) -> Iterator[Fields]:
    yield {"topic": event.topic, "partition_count": len(event.assignment)}


def _deletions(event: DeletionsChanged) -> Iterator[Fields]:
    for run, part in in_parts(sorted(event.topics)):
        yield {"topics": run, **part}


def _isr(event: IsrChanged) -> Iterator[Fields]:
    for run, part in in_parts(list(event.states.items())):
        yield {"notifications": event.notifications, "states": _states(run), **part}


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


def _log_dirs(event: LogDirsFailed) -> Iterator[Fields]:
    yield {"brokers_with_failures": event.brokers, "notifications": event.notifications}


def _leader_and_isr_answered(event: LeaderAndIsrAnswered) -> Iterator[Fields]:
    for run, part in in_parts([found for found in event.response.partitions if found[1]]):
        yield {"of": event.broker_id, "broker_epoch": event.broker_epoch} | {
            "errors": by_code(run),
            **part,
        }


def _stop_replica_answered(event: StopReplicaAnswered) -> Iterator[Fields]:
    for run, part in in_parts(list(event.deleted.items())):
        yield {"of": event.broker_id, "broker_epoch": event.broker_epoch} | {
            "deleted": by_code(run),
            **part,
        }


def _controlled_shutdown(event: ControlledShutdownRequested) -> Iterator[Fields]:
    yield {"ticket": event.ticket, "of": event.broker_id, "broker_epoch": event.broker_epoch}


def _targets(
    targets: Sequence[tuple[TopicPartition, tuple[int, ...] | None]],
) -> list[list[object]]:
    """Return [topic, partition, replicas] of each reassignment; replicas are None for a cancelled reassignment."""
    return [[tp.topic, tp.partition, replicas] for tp, replicas in targets]


def _reassignments(event: ReassignmentsSubmitted | ReassignmentsRequested) -> Iterator[Fields]:
    ticket = {"ticket": event.ticket} if isinstance(event, ReassignmentsRequested) else {}
    targets: list[tuple[TopicPartition, tuple[int, ...] | None]] = [*event.targets.items()]
    for run, part in in_parts(targets):
        yield {**ticket, "targets": _targets(run), **part}


def _preferred(event: PreferredElectionSubmitted) -> Iterator[Fields]:
    for run, part in in_parts(event.partitions):
        yield {"partitions": by_topic(run), **part}


def _election(event: ElectionRequested) -> Iterator[Fields]:
    head: Fields = {"ticket": event.ticket, "unclean": event.unclean}
    if event.partitions is None:
        yield {**head, "partitions": None}
        return
    for run, part in in_parts(event.partitions):
        yield {**head, "partitions": by_topic(run), **part}


def _unclean(event: UncleanElectionEnabled) -> Iterator[Fields]:
    yield {"topics": event.topics and event.topics[:PARTITIONS_MAX]}


_LINES_OF: Final[dict[type, Callable[[Any], Iterator[Fields]]]] = {
    ControllerElected: _elected,
    BrokersChanged: _brokers,
    BrokerSuspected: _suspicion,
    SuspicionEnded: _suspicion,
    TopicsChanged: _topics,
    AssignmentChanged: _assignment,
    DeletionsChanged: _deletions,
    IsrChanged: _isr,
    LogDirsFailed: _log_dirs,
    LeaderAndIsrAnswered: _leader_and_isr_answered,
    StopReplicaAnswered: _stop_replica_answered,
    ControlledShutdownRequested: _controlled_shutdown,
    ReassignmentsSubmitted: _reassignments,
    ReassignmentsRequested: _reassignments,
    PreferredElectionSubmitted: _preferred,
    ElectionRequested: _election,
    UncleanElectionEnabled: _unclean,
}


def step_lines(step: StepReached) -> Iterator[Fields]:
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
    return {
        "op": _OPS[type(operation)],
        "path": operation.path,
        "expected": None if isinstance(operation, Create) else operation.version,
        "actual": None if stat is None else stat.version,
        "data": data.decode("utf-8", "replace") if 0 < len(data) <= DATA_MAX else None,
    }


# Answers.


def answer_lines(answer: AnswerAdmin | AnswerControlledShutdown) -> Iterator[Fields]:
    """Yield the ledger lines of the controller's answer to one request.

    For a controlled shutdown, the lines list the partitions that the broker still leads.
    """
    if isinstance(answer, AnswerControlledShutdown):
        for run, part in in_parts(answer.remaining):
            result = {"code": answer.error.name, "message": "", "partitions": by_topic(run)}
            yield {"ticket": answer.ticket, "results": [result], **part}
        return
    for run_of_results, part in in_parts(list(answer.results.items())):
        groups: dict[PartitionResult, list[TopicPartition]] = {}
        for tp, result_of in run_of_results:
            groups.setdefault(result_of, []).append(tp)
        results = [
            {"code": result.code.name, "message": result.message, "partitions": by_topic(tps)}
            for result, tps in groups.items()
        ]
        yield {"ticket": answer.ticket, "results": results, **part}
