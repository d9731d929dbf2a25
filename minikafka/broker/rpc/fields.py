"""The checked values of control-plane bodies: integers, texts, rows and maps.

A row is a list of fields, to which a later version may append. Invariant: a function returns a value only if it has the
type and the range that the function names. All other values raise KafkaError(INVALID_REQUEST).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.names import TOPIC_NAME

ROWS_MAX: Final = 262_144
"""Maximum number of partitions, brokers or topics in one body."""
INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

Body: TypeAlias = dict[str, Any]
T = TypeVar("T")


def as_map(body: object, defaults: Body) -> Body:
    """Return the fields of the body that `defaults` names, with their defaults if they are missing.

    Fields that only a later version knows are ignored. Raises KafkaError if the body is not a map.
    """
    if not isinstance(body, dict):
        raise invalid("the body must be a map")
    return {name: body.get(name, default) for name, default in defaults.items()}


def as_rows(value: object, decode_row: Callable[[object], T]) -> tuple[T, ...]:
    """Return the decoded rows. Raises KafkaError if `value` is not a list, or has more than `ROWS_MAX` rows."""
    if not isinstance(value, list) or len(value) > ROWS_MAX:
        raise invalid(f"expected a list of at most {ROWS_MAX} rows")
    return tuple([decode_row(row) for row in value])


def as_row(value: object, length: int) -> list[Any]:
    """Return the first `length` fields of the row; only a later version knows the others.

    Raises KafkaError if it is not a list of at least this length.
    """
    if not isinstance(value, list) or len(value) < length:
        raise invalid(f"expected a row of {length} fields")
    return value if len(value) == length else value[:length]


def as_broker_id(value: object) -> int:
    """Return the broker id. Raises KafkaError if it is not an integer of at least 0."""
    return as_integer(value, 0, INT32_MAX)


def as_error(value: object) -> int:
    """Return the Kafka error code. Raises KafkaError if it is not one."""
    return as_integer(value, -1, INT16_MAX)


def as_integer(value: object, low: int, high: int) -> int:
    """Return the integer. Raises KafkaError if it is not one between the two bounds."""
    if type(value) is not int or not low <= value <= high:
        raise invalid(f"expected an integer in {low}..{high}")
    return value


def as_boolean(value: object) -> bool:
    """Return the boolean. Raises KafkaError if it is not one."""
    if not isinstance(value, bool):
        raise invalid("expected true or false")
    return value


def as_text(value: object, pattern: re.Pattern[str]) -> str:
    """Return the text. Raises KafkaError if it does not match the pattern."""
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise invalid("expected a text of the allowed characters")
    return value


def as_topic_partition(row: object) -> TopicPartition:
    """Return the partition. Raises KafkaError if the row is not a topic and a partition number."""
    topic, partition = as_row(row, 2)
    return TopicPartition(as_text(topic, TOPIC_NAME), as_integer(partition, 0, INT32_MAX))


def invalid(detail: str) -> KafkaError:
    """Return the error for a body that cannot be decoded."""
    return KafkaError(ErrorCode.INVALID_REQUEST, detail)
