"""Calls between brokers of the leader-coordinated mode, about requests of administrators.

They decide nothing about replicas: what is decided is written to ZooKeeper by the broker whose decision it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.base.names import parse_topic
from minikafka.broker.rpc.fields import as_map, as_row, invalid

TOPIC_IN_WORK: Final = "topic_in_work"
"""Read-only call. Request: a topic. Response: whether the called broker creates, extends or deletes it now."""
LOOK_AGAIN: Final = "look_again"
"""Request to a broker that hosts replicas: a `LookReason` and partitions. Response, after the reads: an empty map."""
PARTITIONS_MAX: Final = 10_000
_INT32_MAX: Final = 2**31 - 1


class LookReason(StrEnum):
    """The reason why a broker reads partitions again."""

    PREFERRED = "preferred"
    """An administrator wants the preferred replicas to lead: give up leaderships for them (C29)."""
    UNCLEAN = "unclean"
    """An administrator allows this broker to lead although it may lack records."""
    ISR = "isr"
    """A broker that shuts down has left the ISR of partitions that the called broker leads."""


class LookAgainRequest(NamedTuple):
    """The content of a call `LOOK_AGAIN`."""

    look: LookReason
    partitions: tuple[TopicPartition, ...]


def encode_topic(topic: str) -> dict[str, Any]:
    """Return the request of a call `TOPIC_IN_WORK`."""
    return {"topic": topic}


def decode_topic(body: object) -> str:
    """Return the topic of a call `TOPIC_IN_WORK`. Raises KafkaError INVALID_REQUEST."""
    try:
        topic = as_map(body, {"topic": ""})["topic"]
        return parse_topic(topic) if topic else ""
    except ValueError as error:
        raise invalid(str(error)) from error


def encode_answer(*, in_work: bool) -> dict[str, Any]:
    """Return the response to a call `TOPIC_IN_WORK`."""
    return {"in_work": in_work}


def decode_answer(body: object) -> bool:
    """Return whether the called broker works on the topic. Raises KafkaError INVALID_REQUEST."""
    return as_map(body, {"in_work": False})["in_work"] is True


def encode_look(look: LookReason, partitions: Iterable[TopicPartition]) -> dict[str, Any]:
    """Return the request of a call `LOOK_AGAIN`."""
    return {"look": look.value, "partitions": [list(tp) for tp in partitions]}


def decode_look(body: object) -> LookAgainRequest:
    """Return the content of a call `LOOK_AGAIN`. Raises KafkaError INVALID_REQUEST."""
    fields = as_map(body, {"look": LookReason.ISR, "partitions": []})
    rows = fields["partitions"]
    if not isinstance(rows, list) or len(rows) > PARTITIONS_MAX:
        raise invalid(f"expected a list of at most {PARTITIONS_MAX} partitions")
    try:
        return LookAgainRequest(LookReason(fields["look"]), tuple(map(_partition, rows)))
    except (ValueError, TypeError) as error:
        raise invalid(str(error)) from error


def _partition(row: object) -> TopicPartition:
    topic, number = as_row(row, 2)
    if type(number) is not int or not 0 <= number <= _INT32_MAX:
        raise ValueError("the number of a partition is not a whole number from 0")
    return TopicPartition(parse_topic(topic), number)
