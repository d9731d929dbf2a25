"""Work in steps: generators that yield after each step and return the result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable
from typing import Any, Final, TypeVar

from minikafka.base.model import TopicPartition

STEP_ROWS: Final = 64
"""A step of a loop over rows, such as partitions, ends after this many rows."""

Result = TypeVar("Result")


def finished(steps: Generator[Any, None, Result]) -> Result:
    """Run a generator of steps to its end; return the generator's result."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result: Result = done.value
        return result


def by_topic_in_steps(
    partitions: Iterable[TopicPartition],
) -> Generator[None, None, dict[str, list[TopicPartition]]]:
    """Group partitions by topic, as a generator that yields between steps and returns the groups."""
    by_topic: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for number, tp in enumerate(partitions, 1):
        by_topic[tp.topic].append(tp)
        if not number % STEP_ROWS:
            yield
    return by_topic
