"""The page about metrics calls a bean one of Kafka's only if Kafka has it."""

from __future__ import annotations

import re
from pathlib import Path

from support.kafka.beans import recorded

PAGE = Path(__file__).parents[3] / "docs/metrics.md"


def beans(table: str) -> list[str]:
    """Return the beans in the rows of a table."""
    return re.findall(r"^\| `\w+` \| `(kafka\.[^`]+)` \|", table, re.MULTILINE)


def test_beans_of_the_first_table_are_exactly_those_recorded_from_kafka() -> None:
    of_kafka, own = PAGE.read_text().split("Only minikafka has these")
    assert sorted(beans(of_kafka)) == sorted(recorded())
    assert beans(own)
    assert recorded().isdisjoint(beans(own))
