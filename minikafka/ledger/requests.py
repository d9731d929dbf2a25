"""The controller's requests and the brokers' answers as lines of the ledger tell them; pure.

Invariant: two requests that say the same are told alike, whoever tells: the controller that sends one,
and the plan that foresees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from minikafka.base.model import (
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


@lru_cache(maxsize=1)
def _tell_states(
    states: tuple[PartitionState, ...],
) -> list[tuple[list[dict[str, Any]], dict[str, int]]]:
    """In parts. Remembered, because every broker gets the same metadata, in one and the same tuple."""
    return [(_leaderships(run), part) for run, part in in_parts(states)]


def _leaderships(states: Sequence[PartitionState]) -> list[dict[str, Any]]:
    """Partitions that are told the same leadership stand together."""
    groups: dict[tuple[Any, ...], list[TopicPartition]] = {}
    for s in states:
        key = (s.leader, s.leader_epoch, s.isr, s.is_new, s.adding, s.removing, s.offline)
        group = groups.get(key)
        if group is None:
            groups[key] = [s.tp]
        else:
            group.append(s.tp)
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
