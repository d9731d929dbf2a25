"""The start and the end of a query: offsets or times, for all partitions or for single partitions.

If several options set the start (or the end), Spark's order decides: a time for all partitions comes first,
then times by partition, then offsets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.base.names import parse_topic, read_json
from minikafka.spark.option_map import OptionMap
from minikafka.spark.source.subscription import Subscription
from minikafka.spark.wire.protocol import EARLIEST, LATEST

STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_TIME: Final = re.compile(r"0*[0-9]{1,19}")
_SHOWN_MAX: Final = 100
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
"""A partition number without leading zeros. Otherwise "0" and "00" would name the same partition twice."""


@dataclass(frozen=True)
class Bound:
    """The start or the end of the range to read. `option`: the name of the option that sets this bound."""

    option: str
    numbers: int | Mapping[TopicPartition, int]
    """One number for all partitions, or one number for each partition."""
    by_time: bool = False
    """True if the numbers are Unix milliseconds instead of offsets. EARLIEST and LATEST keep their meaning."""

    def number(self, tp: TopicPartition) -> int:
        """Return the offset or time for one partition, or EARLIEST, or LATEST."""
        return self.numbers if isinstance(self.numbers, int) else self.numbers[tp]


def parse(
    options: OptionMap,
    names: tuple[str, str, str],
    subscription: Subscription,
    *,
    default: int,
    refused: int | None,
) -> Bound:
    """Return the bound that the user has set, or a bound at the offset `default`. Raises `ConfigError`.

    `names`: the names of three options: for one time, for times by partition, and for offsets. `refused`: an
    offset that is not allowed (LATEST for the start of a batch read, EARLIEST for its end); None if all offsets
    are allowed. `refused` does not apply to times by partition, which may always be LATEST or EARLIEST, as in
    Spark's own source.
    """
    time, times, offsets = names
    if value := options.optional(time):
        return Bound(time, _milliseconds(time, value), by_time=True)
    if value := options.optional(times):
        return Bound(times, _by_partition(times, value, subscription), by_time=True)
    if value := options.optional(offsets):
        word = _WORDS.get(value.lower())
        numbers = _by_partition(offsets, value, subscription) if word is None else word
        bound = Bound(offsets, numbers)
        _refuse(bound, refused)
        return bound
    return Bound(offsets, default)


def _refuse(bound: Bound, refused: int | None) -> None:
    numbers = bound.numbers
    found = [numbers] if isinstance(numbers, int) else numbers.values()
    if refused is not None and refused in found:
        name = next(name for name, number in _WORDS.items() if number == refused)
        raise ConfigError(
            f"option {bound.option}: {name} ({refused}) is not allowed for a batch read"
        )


def _milliseconds(option: str, value: str) -> int:
    if not _TIME.fullmatch(value) or int(value) >= 2**63:
        raise ConfigError(f"option {option} must be Unix milliseconds, not {value[:_SHOWN_MAX]!r}")
    return int(value)


def _by_partition(option: str, value: str, subscription: Subscription) -> dict[TopicPartition, int]:
    words = "earliest, latest or " if option.endswith("Offsets") else ""
    topic = subscription.topics[0] if subscription.topics else "events"
    example = f'{option} must be {words}JSON such as {{"{topic}":{{"0":23,"1":-2}}}}'
    try:
        tree = read_json(value)
        entries = [
            (parse_topic(topic), key, number)
            for topic, numbers in tree.items()
            for key, number in numbers.items()
        ]
    except ValueError as error:
        raise ConfigError(f"option {example}: {error}") from error
    except AttributeError as error:
        raise ConfigError(f"option {example}, not {value[:_SHOWN_MAX]!r}") from error
    found = {}
    for topic, partition, number in entries:
        if not _PARTITION.fullmatch(partition):
            raise ConfigError(f"option {example}; {topic}: {partition!r} is not a partition")
        if type(number) is not int or not EARLIEST <= number < 2**63:
            raise ConfigError(f"option {example}; {topic} {partition}: {number!r} is not an offset")
        tp = TopicPartition(topic, int(partition))
        if not subscription.selects(tp):
            raise ConfigError(f"option {option} names {tp}, which {subscription.option} does not")
        found[tp] = number
    return found
