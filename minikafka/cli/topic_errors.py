"""Errors about topics that a broker does not know or refuses; the text contains the reason or a helpful command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from minikafka.base.errors import ErrorCode, KafkaError


def unknown_topics(names: Sequence[str]) -> KafkaError:
    """Return the error for topics that do not exist. The text contains the command to create the first topic."""
    text = f"{', '.join(names)}: no such topic; to create it: minikafka topics create {names[0]}"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


@contextmanager
def explain_topic_errors(topic: str) -> Iterator[None]:
    """Replace errors that the `with` block raises about `topic` by errors with a reason or a helpful command.

    Such an error means that `topic` does not exist, lacks a partition, or cannot be created.
    """
    try:
        yield
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_REPLICATION_FACTOR and error.detail == topic:
            why = "default.replication.factor is larger than the number of running brokers"
            hint = f"to use fewer: minikafka topics create {topic} --replication-factor N"
            raise KafkaError(error.code, f"{topic}: {why}; {hint}") from None
        if error.code is ErrorCode.INVALID_TOPIC_EXCEPTION and error.detail == topic:
            why = "a topic name has 1 to 249 ASCII letters, digits, '.', '_' and '-', and is not '.' or '..'"
            raise KafkaError(error.code, f"{topic}: {why}") from None
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        if error.detail == topic:
            raise unknown_topics([topic]) from error
        if not re.fullmatch(rf"{re.escape(topic)}-[0-9]+", error.detail):
            raise
        hint = f"to list its partitions: minikafka topics describe {topic}"
        raise KafkaError(error.code, f"{error.detail}: no such partition; {hint}") from error
