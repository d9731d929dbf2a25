"""What may be the name of a topic.

Invariant: a name that passes is safe as a directory and as a znode. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from minikafka.base.errors import ErrorCode

NAME_LENGTH_MAX: Final = 249
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def name_error(name: str) -> str:
    """Why this cannot be a topic's name, or nothing; a name becomes a directory and a znode."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return "a topic name cannot be '.' or '..'"
    if len(name) > NAME_LENGTH_MAX:
        return f"a topic name cannot be longer than {NAME_LENGTH_MAX} characters"
    if not _NAME.fullmatch(name):
        return "a topic name has only ASCII letters, digits, '.', '_' and '-'"
    return ""


def colliding(name: str, topics: Iterable[str]) -> str | None:
    """A topic whose metrics would have the same name, as '.' becomes '_' in them."""
    flat = name.replace(".", "_")
    for topic in topics:
        if topic != name and topic.replace(".", "_") == flat:
            return topic
    return None


def error_for_unknown(name: str) -> ErrorCode:
    """What to say of a topic that is not there and is not to be created."""
    if name_error(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
