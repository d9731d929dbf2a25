"""The names of the topics in which tasks leave encoded rows for the driver. No pattern of a read matches them."""

from __future__ import annotations

from typing import Final

_PREFIX: Final = "__minikafka-staged-"


def staged_topic(transactional_id: str) -> str:
    """Return the topic for the tasks of a transactional id."""
    return _PREFIX + transactional_id


def is_staged(topic: str) -> bool:
    """True if the topic has encoded rows of tasks."""
    return topic.startswith(_PREFIX)
