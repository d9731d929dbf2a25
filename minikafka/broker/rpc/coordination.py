"""Calls between brokers of the leader-coordinated mode, about requests of administrators.

They decide nothing about replicas: what is decided is written to ZooKeeper by the broker whose decision it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.names import parse_topic

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
        return parse_topic(_fields(body, "topic")["topic"])
    except ValueError as error:
        raise _invalid(str(error)) from error


def encode_answer(*, in_work: bool) -> dict[str, Any]:
    """Return the response to a call `TOPIC_IN_WORK`."""
    return {"in_work": in_work}


def decode_answer(body: object) -> bool:
    """Return whether the called broker works on the topic. Raises KafkaError INVALID_REQUEST."""
    return _fields(body, "in_work")["in_work"] is True


def encode_look(look: LookReason, partitions: Iterable[TopicPartition]) -> dict[str, Any]:
    """Return the request of a call `LOOK_AGAIN`."""
    return {"look": look.value, "partitions": [list(tp) for tp in partitions]}


def decode_look(body: object) -> LookAgainRequest:
    """Return the content of a call `LOOK_AGAIN`. Raises KafkaError INVALID_REQUEST."""
    fields = _fields(body, "look", "partitions")
    rows = fields["partitions"]
    if not isinstance(rows, list) or len(rows) > PARTITIONS_MAX:
        raise _invalid(f"expected a list of at most {PARTITIONS_MAX} partitions")
    try:
        return LookAgainRequest(LookReason(fields["look"]), tuple(map(_partition, rows)))
    except (ValueError, TypeError) as error:
        raise _invalid(str(error)) from error


def _partition(row: object) -> TopicPartition:
    if not isinstance(row, list) or len(row) != 2:
        raise ValueError("a partition is a list of topic and number")
    topic, number = row
    if type(number) is not int or not 0 <= number <= _INT32_MAX:
        raise ValueError("the number of a partition is not a whole number from 0")
    return TopicPartition(parse_topic(topic), number)


def _fields(body: object, *names: str) -> dict[str, Any]:
    if not isinstance(body, dict) or body.keys() != set(names):
        raise _invalid(f"expected a map with {', '.join(names)}")
    return body


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, detail)
