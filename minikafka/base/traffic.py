"""The traffic counters of the topics on one broker, with `__slots__` because every batch adds to the counters."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final


class Traffic:
    """The counters of Kafka's BrokerTopicMetrics.

    When a log writes its pending batches to the file, the log adds all these batches to the counters at once.
    `produce_requests` counts appended batches; a refused batch counts in `failed_produce_requests`
    only.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "messages_in",
        "produce_requests",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.produce_requests = 0
        self.failed_produce_requests = 0
        self.fetch_requests = 0
        self.failed_fetch_requests = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def add(self, other: Traffic) -> None:
        """Add each count of `other` to the same count of this object."""
        for name in FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


FIELDS: Final = Traffic.__slots__


class TopicTraffic:
    """The counters of every topic on one broker. The total includes topics that are no longer hosted."""

    def __init__(self) -> None:
        self.by_topic: dict[str, Traffic] = {}
        self._gone = Traffic()

    def of(self, topic: str) -> Traffic:
        """Return the counters of a topic. While the topic is hosted, every call returns the same object."""
        traffic = self.by_topic.get(topic)
        if traffic is None:
            traffic = self.by_topic[topic] = Traffic()
        return traffic

    def total(self, hosted: Collection[str]) -> Traffic:
        """Return the counts of all topics; drop the counters of topics that are no longer hosted."""
        for topic in [topic for topic in self.by_topic if topic not in hosted]:
            self._gone.add(self.by_topic.pop(topic))
        total = Traffic()
        for traffic in (self._gone, *self.by_topic.values()):
            total.add(traffic)
        return total
