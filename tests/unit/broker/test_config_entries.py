"""Configurations as they are shown."""

from __future__ import annotations

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.broker.config_entries import ConfigEntry, Source, broker_entries, topic_entries
from minikafka.broker.dynamic_config import DynamicConfig

BROKER = BrokerConfig.from_mapping(
    {
        "broker.id": 1,
        "log.roll.hours": 2,
        "min.insync.replicas": 2,
        "minikafka.cluster.secret": "a secret that is never shown",
    }
)
SETTINGS = DynamicConfig(BROKER)


def by_name(entries: list[ConfigEntry]) -> dict[str, ConfigEntry]:
    return {entry.key.name: entry for entry in entries}


def test_a_topics_key_comes_from_the_topic_the_broker_or_the_default() -> None:
    entries = by_name(
        topic_entries(TopicConfig.from_broker(BROKER, {"retention.ms": "5"}), SETTINGS)
    )
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == ("5", Source.TOPIC)
    least = entries["min.insync.replicas"]
    assert (least.value, least.source) == ("2", Source.STATIC_BROKER)
    assert entries["segment.bytes"].source == Source.DEFAULT
    assert entries["segment.ms"].value == "7200000"
    assert not least.read_only


def test_synonyms_tell_every_place_in_the_order_in_which_they_count() -> None:
    config = TopicConfig.from_broker(BROKER, {"min.insync.replicas": "1"})
    synonyms = by_name(topic_entries(config, SETTINGS))["min.insync.replicas"].synonyms
    assert synonyms == (
        ("min.insync.replicas", "1", Source.TOPIC),
        ("min.insync.replicas", "2", Source.STATIC_BROKER),
        ("min.insync.replicas", "1", Source.DEFAULT),
    )


def test_a_broker_shows_what_user_interfaces_ask_for() -> None:
    entries = by_name(broker_entries(SETTINGS))
    assert entries["inter.broker.protocol.version"].value == "3.3-IV3"
    assert entries["delete.topic.enable"].value == "true"
    assert entries["broker.id"].source == Source.STATIC_BROKER
    assert entries["broker.id"].read_only
    assert not entries["log.retention.ms"].read_only


def test_a_secret_is_never_shown() -> None:
    secret = by_name(broker_entries(SETTINGS))["minikafka.cluster.secret"]
    assert secret.key.sensitive
    assert secret.source == Source.STATIC_BROKER
    assert secret.value is None
    assert all(synonym.value is None for synonym in secret.synonyms)
