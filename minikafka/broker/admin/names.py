"""The rules for topic names.

Invariant: an allowed name is safe as the name of a directory and of a znode. This module does no I/O.
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
        return "a topic name may contain only ASCII letters, digits, '.', '_' and '-'"
    return ""


def may_exist(name: str) -> bool:
    """Return False if the name is too long for a topic. The caller then need not look up the name."""
    return len(name) <= NAME_LENGTH_MAX


class TakenNames:
    """The topic names in use. A new name collides with a name that differs only in '.' and '_'.

    Metric names do not distinguish '.' from '_'.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._by_flat: dict[str, dict[str, None]] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Add a topic name that is in use."""
        self._by_flat.setdefault(_flat(name), {})[name] = None

    def colliding(self, name: str) -> str | None:
        """Return a topic name in use that differs from `name` only in '.' and '_', or None."""
        return next((topic for topic in self._by_flat.get(_flat(name), ()) if topic != name), None)


def _flat(name: str) -> str:
    return name.replace(".", "_")


def error_for_unknown(name: str) -> ErrorCode:
    """Return the error code for a topic that does not exist: an invalid name, or an unknown topic."""
    if name_error(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
