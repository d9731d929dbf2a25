"""The partitions that a query reads, from exactly one of `assign`, `subscribe` or `subscribePattern`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.base.names import parse_topic, read_json
from minikafka.spark.option_map import OptionMap
from minikafka.spark.staged_topics import is_staged

ASSIGN: Final = "assign"
SUBSCRIBE: Final = "subscribe"
PATTERN: Final = "subscribePattern"
_SHOWN_MAX: Final = 100
_WAYS: Final = (ASSIGN, SUBSCRIBE, PATTERN)


@dataclass(frozen=True)
class Subscription:
    """The topics or partitions that the user named. `option`: the option in which the user named them."""

    option: str
    topics: tuple[str, ...] = ()
    """The named topics; empty for a pattern, because only the cluster knows the matching topics."""
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[TopicPartition] | None = None
    """The assigned partitions; None for all partitions of the topics."""

    def names(self, existing: Iterable[str]) -> tuple[str, ...]:
        """Return the topics to read: the named topics, or the existing topics that match the pattern."""
        if self.pattern is None:
            return self.topics
        return tuple(sorted(filter(self._matches, existing)))

    def selects(self, tp: TopicPartition) -> bool:
        """True if the subscription includes this partition. Does not check that the partition exists."""
        if self.partitions is not None:
            return tp in self.partitions
        return self._matches(tp.topic) if self.pattern else tp.topic in self.topics

    def _matches(self, topic: str) -> bool:
        """True if the pattern includes a topic. No pattern includes the topics in which a sink stages rows."""
        assert self.pattern is not None
        return self.pattern.search(topic) is not None and not is_staged(topic)


def parse(options: OptionMap) -> Subscription:
    """Return the subscription that the options set. Raises `ConfigError`."""
    given = [name for name in _WAYS if options.optional(name)]
    if len(given) != 1:
        found = f"not both {' and '.join(given)}" if given else "none is given"
        raise ConfigError(f"one of the options {', '.join(_WAYS)} must be given: {found}")
    value = options.text(given[0])
    return {ASSIGN: _assigned, SUBSCRIBE: _subscribed, PATTERN: _matched}[given[0]](value)


def _subscribed(value: str) -> Subscription:
    topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not topics:
        raise ConfigError(f"option {SUBSCRIBE} names no topic: {value!r}")
    try:
        return Subscription(SUBSCRIBE, tuple(map(parse_topic, topics)))
    except ValueError as error:
        raise ConfigError(f"option {SUBSCRIBE}: {error}") from error


def _matched(value: str) -> Subscription:
    try:
        return Subscription(PATTERN, pattern=re.compile(value))
    except re.error as error:
        raise ConfigError(f"option {PATTERN} {value!r} is not a pattern: {error}") from error


def _assigned(value: str) -> Subscription:
    form = f'option {ASSIGN} must be JSON such as {{"events":[0,1]}}'
    wrong = f"{form}, not {value[:_SHOWN_MAX]!r}"
    try:
        tree = read_json(value)
        entries = [
            (parse_topic(topic), index) for topic, indexes in tree.items() for index in indexes
        ]
    except ValueError as error:
        raise ConfigError(f"{form}: {error}") from error
    except (AttributeError, TypeError) as error:
        raise ConfigError(wrong) from error
    if not entries or any(type(index) is not int or not 0 <= index < 2**31 for _, index in entries):
        raise ConfigError(wrong)
    partitions = frozenset(TopicPartition(*entry) for entry in entries)
    return Subscription(ASSIGN, tuple(tree), partitions=partitions)
