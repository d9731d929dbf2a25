"""Configuration entries of DescribeConfigs."""

from __future__ import annotations

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.config.keys import ConfigType
from minikafka.broker.settings.config_entries import (
    ConfigEntry,
    ConfigSource,
    broker_entries,
    cluster_entries,
    topic_entries,
)
from minikafka.broker.settings.dynamic_config import DynamicConfig

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


def test_topic_config_value_comes_from_the_topic_or_the_broker_or_the_default() -> None:
    entries = by_name(
        topic_entries(TopicConfig.from_broker(BROKER, {"retention.ms": "5"}), SETTINGS)
    )
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == (
        "5",
        ConfigSource.TOPIC,
    )
    least = entries["min.insync.replicas"]
    assert (least.value, least.source) == ("2", ConfigSource.STATIC_BROKER)
    assert entries["segment.bytes"].source == ConfigSource.DEFAULT
    assert entries["segment.ms"].value == "7200000"
    assert not least.read_only


def test_synonyms_are_listed_in_order_of_precedence() -> None:
    config = TopicConfig.from_broker(BROKER, {"min.insync.replicas": "1"})
    synonyms = by_name(topic_entries(config, SETTINGS))["min.insync.replicas"].synonyms
    assert synonyms == (
        ("min.insync.replicas", "1", ConfigSource.TOPIC),
        ("min.insync.replicas", "2", ConfigSource.STATIC_BROKER),
        ("min.insync.replicas", "1", ConfigSource.DEFAULT),
    )


def test_broker_config_entries_have_the_values_and_flags_that_user_interfaces_read() -> None:
    entries = by_name(broker_entries(SETTINGS))
    assert entries["inter.broker.protocol.version"].value == "3.3-IV3"
    assert entries["delete.topic.enable"].value == "true"
    assert entries["broker.id"].source == ConfigSource.STATIC_BROKER
    assert entries["broker.id"].read_only
    assert not entries["log.retention.ms"].read_only


def test_config_entry_of_the_cluster_secret_has_no_value() -> None:
    secret = by_name(broker_entries(SETTINGS))["minikafka.cluster.secret"]
    assert secret.key.sensitive
    assert secret.source == ConfigSource.STATIC_BROKER
    assert secret.value is None
    assert all(synonym.value is None for synonym in secret.synonyms)


def test_user_defined_setting_is_shown_without_its_value() -> None:
    settings = DynamicConfig(BROKER)
    settings.load({"team.contact": "a@b"}, {"team.contact": "c@d"})
    sources = [ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER]
    for entries, expected in (
        (broker_entries(settings), sources),
        (cluster_entries(settings), sources[1:]),
    ):
        entry = by_name(entries)["team.contact"]
        assert (entry.key.kind, entry.value, entry.source) == (
            ConfigType.UNKNOWN,
            None,
            expected[0],
        )
        assert entry.key.sensitive
        assert entry.read_only
        assert entry.synonyms == tuple(("team.contact", None, source) for source in expected)


def test_limit_of_a_listener_is_shown_with_its_value_and_its_sources() -> None:
    name = "listener.name.plaintext.max.connections"
    static = BrokerConfig.from_mapping({"broker.id": 1, name: "7"})
    settings = DynamicConfig(static)
    settings.load({name: "5"}, {})
    for entries in (broker_entries(settings), cluster_entries(settings)):
        entry = by_name(entries)[name]
        assert (entry.key.kind, entry.value, entry.read_only) == (ConfigType.INT, "5", True)
        assert entry.source == ConfigSource.DYNAMIC_DEFAULT_BROKER
    assert by_name(broker_entries(settings))[name].synonyms == (
        (name, "5", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (name, "7", ConfigSource.STATIC_BROKER),
        ("max.connections", "2147483647", ConfigSource.DEFAULT),
    )
