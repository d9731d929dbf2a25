"""The ledger's fields for the controller's requests and the brokers' responses.

Invariant: equal requests give equal fields. So `minikafka plan` predicts exactly the fields that the
controller writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from minikafka.base.model import (
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.broker.ledger.record import Partitions, by_topic, in_parts

NAMES: Final = {
    LeaderAndIsrRequest: "LeaderAndIsr",
    UpdateMetadataRequest: "UpdateMetadata",
    StopReplicaRequest: "StopReplica",
}


def name_of(request: ControllerRequest) -> str:
    """Return Kafka's name for the request. This name is the value of the field `request`."""
    return NAMES[type(request)]


def request_lines(request: ControllerRequest) -> Iterator[dict[str, Any]]:
    """Yield the fields of each line about a request, except `to` and `queued`, which the caller adds."""
    head: dict[str, Any] = {"request": name_of(request), "broker_epoch": request.broker_epoch}
    if isinstance(request, UpdateMetadataRequest):
        head["live_brokers"] = [broker.id for broker in request.live_brokers]
        if request.suspects:
            head["suspects"] = request.suspects
        parts = _state_parts(request.partitions)
    elif isinstance(request, LeaderAndIsrRequest):
        parts = _state_parts.__wrapped__(request.partitions)
    else:
        parts = [(_stops(run), part) for run, part in in_parts(request.partitions)]
    for states, part in parts:
        yield {**head, "states": states, **part}


_leadership_key: Final = attrgetter(
    "leader", "leader_epoch", "isr", "is_new", "adding", "removing", "offline"
)


@lru_cache(maxsize=1)
def _state_parts(
    states: tuple[PartitionState, ...],
) -> list[tuple[list[dict[str, Any]], dict[str, int]]]:
    """Return the partition states, split into parts that fit in a line.

    The result is cached, because the controller sends the same tuple of states to every broker.
    """
    return [(_leaderships(run), part) for run, part in in_parts(states)]


def _leaderships(states: Sequence[PartitionState]) -> list[dict[str, Any]]:
    """Return the distinct leaderships (leader, epoch, ISR, …) in the states, each with its partitions."""
    groups: defaultdict[tuple[Any, ...], list[TopicPartition]] = defaultdict(list)
    for state in states:
        groups[_leadership_key(state)].append(state.tp)
    return [_leadership(key, tps) for key, tps in groups.items()]


def _leadership(key: tuple[Any, ...], partitions: list[TopicPartition]) -> dict[str, Any]:
    leader, leader_epoch, isr, is_new, adding, removing, offline = key
    fields: dict[str, Any] = {"leader": leader, "leader_epoch": leader_epoch, "isr": isr}
    extras = {"is_new": is_new, "adding": adding, "removing": removing, "offline": offline}
    fields.update((name, value) for name, value in extras.items() if value)
    fields["partitions"] = by_topic(partitions)
    return fields


def _stops(stops: Sequence[StopReplicaPartition]) -> list[dict[str, Any]]:
    groups: dict[tuple[int, bool], list[TopicPartition]] = {}
    for stop in stops:
        groups.setdefault((stop.leader_epoch, stop.delete), []).append(stop.tp)
    return [
        {"delete": delete, "leader_epoch": epoch, "partitions": by_topic(tps)}
        for (epoch, delete), tps in groups.items()
    ]


def response_line(request: ControllerRequest, response: ControllerResponse) -> dict[str, Any]:
    """Return the fields of a line about a response, without the sender."""
    return {
        "request": name_of(request),
        "error": response.error,
        "errors": by_code((tp, code) for tp, code in response.partitions if code),
    }


def by_code(results: Iterable[tuple[TopicPartition, int]]) -> dict[str, Partitions]:
    """Return the partitions by error code. The codes are strings, because keys in JSON must be strings."""
    groups: dict[int, list[TopicPartition]] = {}
    for tp, code in results:
        groups.setdefault(int(code), []).append(tp)
    return {str(code): by_topic(tps) for code, tps in groups.items()}


def received_lines(request: ControllerRequest) -> Iterator[dict[str, Any]]:
    """Yield the fields of a broker's lines about receiving a request. UpdateMetadata has no such line."""
    if isinstance(request, UpdateMetadataRequest):
        return
    states: Sequence[PartitionState | StopReplicaPartition] = request.partitions
    for run, part in in_parts(states):
        yield {
            **_effect(request, "received"),
            "partitions": by_topic(state.tp for state in run),
            **part,
        }


def completed_lines(
    broker_id: BrokerId, request: ControllerRequest, response: ControllerResponse
) -> Iterator[dict[str, Any]]:
    """Yield the fields of the lines that a broker writes after it has executed or refused a request.

    `broker_id`: the broker that received the request.
    """
    head = {**_effect(request, "completed"), "error": response.error}
    if isinstance(request, UpdateMetadataRequest):
        brokers = [broker.id for broker in request.live_brokers]
        yield {**head, "partition_count": len(request.partitions), "live_brokers": brokers}
    elif response.error:
        yield head
    else:
        codes = dict(response.partitions)
        states: Sequence[PartitionState | StopReplicaPartition] = request.partitions
        for run, part in in_parts(states):
            groups: dict[tuple[Any, ...], list[TopicPartition]] = {}
            for state in run:
                key = (codes.get(state.tp, 0), *_became(broker_id, state))
                groups.setdefault(key, []).append(state.tp)
            yield {**head, "results": [_result(*group) for group in groups.items()], **part}


def failed_line(request: ControllerRequest, error: str) -> dict[str, Any]:
    """Return the fields of a broker's line about a failed request. The controller will repeat the request."""
    return {**_effect(request, "failed"), "error": error}


def _effect(request: ControllerRequest, phase: str) -> dict[str, Any]:
    return {
        "phase": phase,
        "request": name_of(request),
        "from": request.controller_id,
        "controller_epoch": request.controller_epoch,
    }


def _became(broker_id: BrokerId, state: PartitionState | StopReplicaPartition) -> tuple[Any, ...]:
    if isinstance(state, StopReplicaPartition):
        return "deleted" if state.delete else "stopped", state.leader_epoch
    role = "leader" if state.leader == broker_id else "follower"
    return role, state.leader_epoch, state.leader, state.isr


def _result(key: tuple[Any, ...], partitions: list[TopicPartition]) -> dict[str, Any]:
    error, became, *state = key
    return {
        "became": "refused" if error else became,
        "error": error,
        **dict(zip(("leader_epoch", "leader", "isr"), state, strict=False)),
        "partitions": by_topic(partitions),
    }
