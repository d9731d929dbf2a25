"""Errors for a name that does not exist, with the nearest names that do."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Final

from minikafka.tools.cluster.directory import ClusterError

_NEAR: Final = 3
"""Number of similar names in an error."""


def nearest_names(name: str, known: Iterable[str]) -> str:
    """Return the known names that are most similar to `name`, the best first, for an error."""
    names = sorted(known)
    found = get_close_matches(name, names, n=_NEAR, cutoff=0.0)
    return ", ".join(found or names[:_NEAR])


def step_names() -> Collection[str]:
    """Return the names of all steps."""
    from minikafka.broker.step_gate import NAMES

    return NAMES


def check_step(step: str) -> None:
    """Raise ClusterError if no step has this name; the error has the nearest names."""
    if step not in (known := step_names()):
        raise ClusterError(
            f"there is no step {step!r}; the nearest names are {nearest_names(str(step), known)}"
        )
