"""The controller's requests and the brokers' answers as lines of the ledger tell them; pure.

Invariant: two requests that say the same are told alike, whoever tells: the controller that sends one,
and the plan that foresees it.
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
from minikafka.ledger.record import Partitions, by_topic, in_parts

NAMES: Final = {
    LeaderAndIsrRequest: "LeaderAndIsr",
    UpdateMetadataRequest: "UpdateMetadata",
    StopReplicaRequest: "StopReplica",
}


def name_of(request: ControllerRequest) -> str:
    """Kafka's name of the request, as lines have it."""
    return NAMES[type(request)]


def request_lines(request: ControllerRequest) -> Iterator[dict[str, Any]]:
    """What the lines of a request hold besides to whom it goes."""
    head: dict[str, Any] = {"request": name_of(request), "broker_epoch": request.broker_epoch}
    if isinstance(request, UpdateMetadataRequest):
        head["live_brokers"] = [broker.id for broker in request.live_brokers]
        tellings = _tell_states(request.partitions)
    elif isinstance(request, LeaderAndIsrRequest):
        tellings = _tell_states.__wrapped__(request.partitions)
    else:
        tellings = [(_stops(run), part) for run, part in in_parts(request.partitions)]
    for states, part in tellings:
        yield {**head, "states": states, **part}


_told_of: Final = attrgetter(
    "leader", "leader_epoch", "isr", "is_new", "adding", "removing", "offline"
)


@lru_cache(maxsize=1)
def _tell_states(
    states: tuple[PartitionState, ...],
) -> list[tuple[list[dict[str, Any]], dict[str, int]]]:
    """In parts. Remembered, because every broker gets the same metadata, in one and the same tuple."""
    return [(_leaderships(run), part) for run, part in in_parts(states)]


def _leaderships(states: Sequence[PartitionState]) -> list[dict[str, Any]]:
    """Partitions that are told the same leadership stand together."""
    groups: defaultdict[tuple[Any, ...], list[TopicPartition]] = defaultdict(list)
    for state in states:
        groups[_told_of(state)].append(state.tp)
    return [_leadership(key, tps) for key, tps in groups.items()]


def _leadership(key: tuple[Any, ...], partitions: list[TopicPartition]) -> dict[str, Any]:
    leader, leader_epoch, isr, is_new, adding, removing, offline = key
    told: dict[str, Any] = {"leader": leader, "leader_epoch": leader_epoch, "isr": isr}
    extras = {"is_new": is_new, "adding": adding, "removing": removing, "offline": offline}
    told.update((name, value) for name, value in extras.items() if value)
    told["partitions"] = by_topic(partitions)
    return told


def _stops(stops: Sequence[StopReplicaPartition]) -> list[dict[str, Any]]:
    groups: dict[tuple[int, bool], list[TopicPartition]] = {}
    for stop in stops:
        groups.setdefault((stop.leader_epoch, stop.delete), []).append(stop.tp)
    return [
        {"delete": delete, "leader_epoch": epoch, "partitions": by_topic(tps)}
        for (epoch, delete), tps in groups.items()
    ]


def response_line(request: ControllerRequest, response: ControllerResponse) -> dict[str, Any]:
    """What the line of an answer holds besides from whom it came."""
    return {
        "request": name_of(request),
        "error": response.error,
        "errors": by_code((tp, code) for tp, code in response.partitions if code),
    }


def by_code(results: Iterable[tuple[TopicPartition, int]]) -> dict[str, Partitions]:
    """Partitions by the error code that each got; JSON has texts for keys."""
    groups: dict[int, list[TopicPartition]] = {}
    for tp, code in results:
        groups.setdefault(int(code), []).append(tp)
    return {str(code): by_topic(tps) for code, tps in groups.items()}


def received_lines(request: ControllerRequest) -> Iterator[dict[str, Any]]:
    """What a broker notes as it gets a request; nothing of UpdateMetadata, which changes no replica."""
    if isinstance(request, UpdateMetadataRequest):
        return
    told: Sequence[PartitionState | StopReplicaPartition] = request.partitions
    for run, part in in_parts(told):
        yield {
            **_effect(request, "received"),
            "partitions": by_topic(state.tp for state in run),
            **part,
        }


def completed_lines(
    broker_id: BrokerId, request: ControllerRequest, response: ControllerResponse
) -> Iterator[dict[str, Any]]:
    """What a broker notes when it has carried a request out, or refused it as a whole."""
    head = {**_effect(request, "completed"), "error": response.error}
    if isinstance(request, UpdateMetadataRequest):
        brokers = [broker.id for broker in request.live_brokers]
        yield {**head, "partition_count": len(request.partitions), "live_brokers": brokers}
    elif response.error:
        yield head
    else:
        codes = dict(response.partitions)
        told: Sequence[PartitionState | StopReplicaPartition] = request.partitions
        for run, part in in_parts(told):
            groups: dict[tuple[Any, ...], list[TopicPartition]] = {}
            for state in run:
                key = (codes.get(state.tp, 0), *_became(broker_id, state))
                groups.setdefault(key, []).append(state.tp)
            yield {**head, "results": [_result(*group) for group in groups.items()], **part}


def failed_line(request: ControllerRequest, error: str) -> dict[str, Any]:
    """What a broker notes when it could not carry a request out; the controller sends it again."""
    return {**_effect(request, "failed"), "error": error}


def _effect(request: ControllerRequest, phase: str) -> dict[str, Any]:
    return {
        "phase": phase,
        "request": name_of(request),
        "from": request.controller_id,
        "controller_epoch": request.controller_epoch,
    }


def _became(broker_id: BrokerId, told: PartitionState | StopReplicaPartition) -> tuple[Any, ...]:
    if isinstance(told, StopReplicaPartition):
        return "deleted" if told.delete else "stopped", told.leader_epoch
    role = "leader" if told.leader == broker_id else "follower"
    return role, told.leader_epoch, told.leader, told.isr


def _result(key: tuple[Any, ...], partitions: list[TopicPartition]) -> dict[str, Any]:
    error, became, *told = key
    return {
        "became": "refused" if error else became,
        "error": error,
        **dict(zip(("leader_epoch", "leader", "isr"), told, strict=False)),
        "partitions": by_topic(partitions),
    }
