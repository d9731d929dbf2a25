"""The commands of the controller's state machine as lines of text, for transcripts (`tests/unit/deciders/controller`).

Requests with the same content are one line, with the ids of all brokers that receive the request. `0@7` is broker 0 in
broker epoch 7; the epoch 1 is left out. `replicas` of a partition are left out where they are equal to the ISR, and
topic ids where they are the usual id of the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from support.controller_world import ID, Request

from minikafka.base.errors import ErrorCode
from minikafka.base.model import (
    Broker,
    LeaderAndIsr,
    LeaderAndIsrRequest,
    PartitionState,
    ReplicaAssignment,
    StopReplicaPartition,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.deciders.controller.commands import (
    NO_NODE,
    AnnounceStep,
    DeleteDeletionMarks,
    DeleteIsrChanges,
    DeleteLogDirEvents,
    DeletePreferredElection,
    DeleteTopicNodes,
    GiveTopicIds,
    ReadElectionSettings,
    ReadLeaderAndIsr,
    SendRequest,
    ShutdownResponse,
    StartChannel,
    StopChannel,
    TrimReassignments,
    UnwatchStates,
    WatchStates,
    WriteAssignments,
    WriteLeaderAndIsr,
    WrittenStates,
)
from minikafka.deciders.decider import Answer


def lines_of(happened: Iterable[object]) -> Iterator[str]:
    """Yield the lines that tell commands. A text is a line already."""
    recipients: list[str] = []
    content = ""
    for one in happened:
        to = ""
        if isinstance(one, SendRequest):
            to = _broker(one.broker_id, one.request.broker_epoch)
            if to not in recipients and _request(one.request) == content:
                recipients.append(to)
                continue
        if recipients:
            yield _sent(recipients, content)
            recipients = []
        if isinstance(one, SendRequest):
            recipients, content = [to], _request(one.request)
        else:
            yield from [one] if isinstance(one, str) else _TOLD[type(one)](one)
    if recipients:
        yield _sent(recipients, content)


def _sent(recipients: list[str], content: str) -> str:
    kind, _, rest = content.partition(" ")
    return f"{kind} to {','.join(recipients)}: {rest}"


def _broker(broker_id: int, epoch: int) -> str:
    return str(broker_id) if epoch == 1 else f"{broker_id}@{epoch}"


def _request(request: Request) -> str:
    kind = type(request).__name__.removesuffix("Request")
    parts: list[str] = []
    if isinstance(request, UpdateMetadataRequest):
        live = f"live={','.join(map(_live, request.live_brokers))}"
        parts.append(live + _named("suspects", request.suspects))
    parts += [
        _stop(state) if isinstance(state, StopReplicaPartition) else _state(state)
        for state in request.partitions
    ]
    if isinstance(request, UpdateMetadataRequest | LeaderAndIsrRequest):
        parts += [f"id of {t}: {id_.decode().strip()}" for t, id_ in request.topic_ids if id_ != ID]
    return f"{kind} {'; '.join(parts)}"


def _live(broker: Broker) -> str:
    host = broker.endpoints[0].host
    return f"{broker.id}" if host == "127.0.0.1" else f"{broker.id} on host {host}"


def _state(state: PartitionState) -> str:
    return (
        f"{state.tp} leader={state.leader} isr={ids(state.isr)} epoch={state.leader_epoch}"
        f"{_named('replicas', state.replicas if state.replicas != state.isr else ())}"
        f"{_named('adding', state.adding)}{_named('removing', state.removing)}"
        f"{_named('offline', state.offline)}{' new' * state.is_new}"
    )


def _stop(stop: StopReplicaPartition) -> str:
    return f"{stop.tp} epoch={stop.leader_epoch}{' delete' * stop.delete}"


def _named(name: str, brokers: Iterable[int]) -> str:
    return f" {name}={ids(brokers)}" if brokers else ""


def ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def leadership(state: LeaderAndIsr) -> str:
    return f"leader={state.leader} isr={ids(state.isr)} epoch={state.leader_epoch}"


def assignment(found: ReplicaAssignment) -> str:
    return (
        f"replicas={ids(found.replicas)}"
        f"{_named('adding', found.adding)}{_named('removing', found.removing)}"
    )


def _partitions(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, partitions))


def _write(command: WriteLeaderAndIsr) -> Iterator[str]:
    yield "write " + "; ".join(
        f"{tp} {leadership(state)} "
        + (
            "as a new node"
            if state.state_version == NO_NODE
            else f"at version {state.state_version}"
        )
        for tp, state in command.states.items()
    )


def failures_of(value: object, question: object) -> Iterator[str]:
    """Yield the lines that tell which writes of a question failed: accepted writes need no line."""
    if isinstance(value, WrittenStates):
        if value.conflicts:
            yield f"not written, the version has changed: {_partitions(value.conflicts)}"
        for tp, reason in value.failed.items():
            yield f"not written: {tp}, {reason}"
    elif isinstance(question, WriteAssignments | DeleteTopicNodes):
        verb = "written" if isinstance(question, WriteAssignments) else "deleted"
        assert isinstance(value, Mapping)
        for topic, reason in value.items():
            yield f"not {verb}: {topic}, {reason}"


def _answer(command: Answer) -> Iterator[str]:
    response = command.response
    if not isinstance(response, ShutdownResponse):
        for tp, result in response.items():
            message = f": {result.message}" if result.message else ""
            yield f"answer {tp} {result.code.name}{message}"
    elif response.error is not ErrorCode.NONE:
        yield f"answer {response.error.name}"
    elif response.remaining:
        yield f"answer that the broker still leads {_partitions(response.remaining)}"
    else:
        yield "answer that the broker leads nothing"


def _assignments(command: WriteAssignments) -> Iterator[str]:
    for topic, changes in command.topics.items():
        for number, found in changes.items():
            tp = TopicPartition(topic, number)
            yield (
                f"assign {tp} {assignment(found)}" if found else f"remove {tp} from its topic node"
            )


def _ids(command: GiveTopicIds) -> Iterator[str]:
    for topic, topic_id in command.topics.items():
        yield f"write the id of {topic} again" if topic_id else f"give {topic} an id"


_TOLD: Mapping[type, Callable[[Any], Iterator[str]]] = {
    StartChannel: lambda c: iter([f"connect to {_broker(c.broker.id, c.broker.epoch)}"]),
    StopChannel: lambda c: iter([f"disconnect from {c.broker_id}"]),
    WriteLeaderAndIsr: _write,
    ReadLeaderAndIsr: lambda c: iter([f"read the state of {_partitions(c.partitions)}"]),
    ReadElectionSettings: lambda c: iter([f"read the settings of {','.join(c.topics)}"]),
    WriteAssignments: _assignments,
    DeleteTopicNodes: lambda c: iter([f"delete the nodes of {','.join(c.topics)}"]),
    GiveTopicIds: _ids,
    DeleteIsrChanges: lambda c: iter([f"delete notification {','.join(c.names)}"]),
    DeleteLogDirEvents: lambda c: iter([f"delete notification {','.join(c.names)}"]),
    DeleteDeletionMarks: lambda c: iter([f"delete the deletion mark of {','.join(c.topics)}"]),
    DeletePreferredElection: lambda _: iter(["delete /admin/preferred_replica_election"]),
    TrimReassignments: lambda c: iter(
        [f"trim /admin/reassign_partitions by {_partitions(c.finished)}"]
    ),
    Answer: _answer,
    WatchStates: lambda c: iter([f"watch the state of {_partitions(c.partitions)}"]),
    UnwatchStates: lambda c: iter([f"stop watching the state of {_partitions(c.partitions)}"]),
    AnnounceStep: lambda c: iter([f"step {c.operation} {c.step}: {_partitions(c.partitions)}"]),
}
