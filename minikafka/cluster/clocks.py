"""Sentences about brokers whose wall clocks differ from those of the others, from the brokers' own measurements."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_low
from typing import Any, Final

WARN_MS: Final = 10_000
"""Difference from which a clock is named; the brokers log the same differences."""


def clock_notes(answers: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each broker whose clock is far from the median of all clocks.

    `answers`: the brokers' answers to the call `state`, by broker id. Of two clocks, the one that is behind counts
    as right.
    """
    measured = {id_: {id_: 0, **_offsets(answer)} for id_, answer in answers.items()}
    clocks = max(measured.values(), key=len, default={})
    if not clocks:
        return []
    middle = median_low(clocks.values())
    return [
        f"the clock of broker {id_} is {abs(ahead - middle) / 1000:.1f} s "
        f"{'ahead of' if ahead > middle else 'behind'} the clocks of the others; set it"
        for id_, ahead in sorted(clocks.items())
        if abs(ahead - middle) >= WARN_MS
    ]


def _offsets(answer: Mapping[str, Any]) -> dict[int, int]:
    return {int(id_): offset for id_, offset in answer["clock_offsets_ms"].items()}
