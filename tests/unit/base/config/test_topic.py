"""A topic inherits the settings of its broker that it does not override."""

from __future__ import annotations

import pytest

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.errors import ConfigError

HOUR_MS = 3_600_000


def inherited(overrides: dict[str, str], **keys: object) -> TopicConfig:
    """Return the settings of a topic on a broker with these keys."""
    values = {name.replace("_", "."): value for name, value in keys.items()}
    return TopicConfig.from_broker(BrokerConfig.from_mapping({"broker.id": 1} | values), overrides)


def test_topic_defaults_equal_the_broker_defaults():
    assert inherited({}) == TopicConfig()


def test_setting_of_a_topic_takes_precedence_over_the_setting_of_the_broker():
    topic = inherited({"segment.bytes": "2000"}, log_segment_bytes=1_000_000, min_insync_replicas=2)

    assert (topic.segment_bytes, topic.min_insync_replicas) == (2000, 2)
    assert topic.given == {"segment.bytes"}


@pytest.mark.parametrize(
    ("keys", "retention_ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log_retention_hours": 1}, HOUR_MS),
        ({"log_retention_minutes": 2, "log_retention_hours": 1}, 120_000),
        ({"log_retention_ms": 5, "log_retention_minutes": 2}, 5),
        ({"log_retention_hours": -1}, -1),
        ({"log_retention_ms": -1, "log_retention_hours": 1}, -1),
    ],
)
def test_milliseconds_take_precedence_over_minutes_and_hours(keys, retention_ms):
    assert inherited({}, **keys).retention_ms == retention_ms


@pytest.mark.parametrize(
    "overrides",
    [{"segment.bytes": "13"}, {"cleanup.policy": "shred"}, {"min.insync.replicas": "0"}, {"log.segment.bytes": "99"},
     {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, {"retention.ms": "-2"}],
)  # fmt: skip
def test_invalid_topic_settings_are_refused(overrides):
    with pytest.raises(ConfigError):
        inherited(overrides)


def test_unknown_topic_key_is_named_in_the_words_of_kafka():
    with pytest.raises(ConfigError, match=r"^Unknown topic config name: bad_option; docs/"):
        inherited({"bad_option": "1"})


@pytest.mark.parametrize(
    ("version", "is_accepted"),
    [
        ("0.10.2", True),
        ("0.11.0-IV2", True),
        ("1.1", True),
        ("2.8.1", True),
        ("3.9", True),
        ("3.9-IV0", True),
        ("", False),
        ("4.0", False),
        ("2", False),
        ("v3.0", False),
    ],
)
@pytest.mark.key("message.format.version")
def test_record_format_may_be_any_version_of_kafka(version: str, is_accepted: bool) -> None:
    row = TopicConfig.keys()["message.format.version"]
    if is_accepted:
        assert row.parse(version) == version
        return
    with pytest.raises(ConfigError, match=r"message\.format\.version"):
        row.parse(version)
