"""TopicTraffic: the counters of each topic, and their total."""

from __future__ import annotations

from minikafka.base.traffic import TopicTraffic


def test_total_traffic_keeps_the_counts_of_deleted_topics() -> None:
    topics = TopicTraffic()
    topics.of("a").bytes_in += 5
    topics.of("b").bytes_in += 7
    assert topics.of("a") is topics.of("a")
    assert topics.total({"a", "b"}).bytes_in == 12
    assert topics.total({"b"}).bytes_in == 12
    assert list(topics.by_topic) == ["b"]
    topics.of("a").bytes_in += 1
    assert topics.total({"a", "b"}).bytes_in == 13
