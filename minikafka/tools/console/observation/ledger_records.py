"""Ledger lines in the form that the console sends: with their sentence, and the names of their partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import minikafka.tools.explain.groups.words as group_words
from minikafka.broker.ledger.record import GROUP, ISR, LOST, STATE_CHANGE, partitions_of
from minikafka.tools.explain.trace import describe

TEXT_MAX: Final = 2_000
_LARGE: Final = (list, tuple, dict)
_KEPT: Final = ("before", "isr")
"""Lists of the brokers of one partition, which are short."""
_NAMES_MAX: Final = 50
"""Maximum number of partitions that a record names."""


def as_record(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ledger line with its description as `text` and its `partitions`, without other lists than `_KEPT`.

    The lists may have 500 partitions with their states, and consoles keep thousands of records.
    """
    record = {
        key: value for key, value in line.items() if key in _KEPT or not isinstance(value, _LARGE)
    }
    record["text"] = text_of(line)[:TEXT_MAX]
    if names := [*_names(line)][:_NAMES_MAX]:
        record["partitions"] = names
    return record


def text_of(line: Mapping[str, Any]) -> str:
    """Return the description of a ledger line."""
    if line["kind"] == GROUP:
        return group_words.describe(line)
    if line["kind"] == LOST:
        return f"{line['lines']} lines are missing: {line['error']}"
    return describe(line)


def _names(line: Mapping[str, Any]) -> Iterator[str]:
    if line["kind"] in (ISR, STATE_CHANGE):
        yield f"{line['topic']}-{line['partition']}"
        return
    for group in (line, *(line.get("states") or ()), *(line.get("results") or ())):
        if isinstance(group.get("partitions"), Mapping):
            yield from map(str, partitions_of(group["partitions"]))
