"""How much of a cluster a test ran on: noted by the clusters, fixtures and folders that it used.

A test is a proof of level TABLE unless something that it used notes more.
"""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """The levels of a proof, the weakest first; docs/conformance.md explains them."""

    TABLE = 1
    MEMORY = 2
    REAL = 3

    @property
    def label(self) -> str:
        return self.name.lower()


_noted = Level.TABLE


def begin() -> None:
    """Forget what earlier tests used."""
    global _noted
    _noted = Level.TABLE


def note(level: Level) -> None:
    """Note that the running test uses a cluster of this level."""
    global _noted
    _noted = max(_noted, level)


def strongest() -> Level:
    """Return the highest level noted since `begin`."""
    return _noted
