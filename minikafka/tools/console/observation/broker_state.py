"""The newest state of one broker, kept from answers of which each has only what has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class AnsweredChange(NamedTuple):
    """What an answer has changed. `rows`: replicas. `gone`: names of removed ones. `is_whole`: `rows` has all."""

    rows: Sequence[Mapping[str, Any]]
    gone: Sequence[str]
    is_whole: bool


class BrokerAnswers:
    """What one broker has told. Brokers of older versions, which ignore `since`, tell all of it each time."""

    def __init__(self) -> None:
        self.position = ""
        """For the next question: `since`."""
        self._rows: dict[str, Mapping[str, Any]] = {}

    def apply(self, answer: Mapping[str, Any]) -> AnsweredChange:
        """Keep an answer to the question `state`, and return what it changes."""
        self.position = answer.get("position", "")
        rows, is_whole = answer["replicas"], answer.get("is_whole", True)
        gone = [f"{topic}-{number}" for topic, number in answer.get("gone", ())]
        if is_whole:
            self._rows.clear()
        for name in gone:
            self._rows.pop(name, None)
        self._rows.update((f"{row['topic']}-{row['partition']}", row) for row in rows)
        return AnsweredChange(rows, gone, is_whole)

    def whole(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an answer with all replicas in the place of those that have changed."""
        return {**answer, "replicas": self._rows.values()}
