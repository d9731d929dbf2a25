"""The rules for topic names.

Invariant: a name that passes is safe as the name of a directory and of a znode. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.base.names import TOPIC_NAME

NAME_LENGTH_MAX: Final = 249


def name_error(name: str) -> str:
    """Return why the name is not allowed, or "" if it is allowed."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return "a topic name cannot be '.' or '..'"
    if len(name) > NAME_LENGTH_MAX:
        return f"a topic name cannot be longer than {NAME_LENGTH_MAX} characters"
    if not TOPIC_NAME.fullmatch(name):
        return "a topic name has only ASCII letters, digits, '.', '_' and '-'"
    return ""


def colliding(name: str, topics: Iterable[str]) -> str | None:
    """Return the topic that differs from `name` only in '.' and '_', which metrics cannot tell apart; or None."""
    flat = name.replace(".", "_")
    for topic in topics:
        if topic != name and topic.replace(".", "_") == flat:
            return topic
    return None


def error_for_unknown(name: str) -> ErrorCode:
    """Return the error for a topic that does not exist and is not to be created."""
    if name_error(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
