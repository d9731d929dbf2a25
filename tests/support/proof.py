"""The level of a test: how much of a real cluster the test used. Cluster classes and fixtures note their level.

A test has level TABLE if nothing that it used notes a higher level.
"""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """The levels of tests, in rising order. docs/conformance.md explains the levels."""

    TABLE = 1
    MEMORY = 2
    REAL = 3

    @property
    def label(self) -> str:
        return self.name.lower()


_noted = Level.TABLE


def begin() -> None:
    """Reset the recorded level to TABLE. Called at the start of each test."""
    global _noted
    _noted = Level.TABLE


def note(level: Level) -> None:
    """Record the level of a cluster that the current test uses; the highest level counts."""
    global _noted
    _noted = max(_noted, level)


def strongest() -> Level:
    """Return the highest level noted since `begin`."""
    return _noted
