"""The three layers of a broker's settings."""

from __future__ import annotations

import pytest

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.config.keys import LONG_MAX
from minikafka.base.errors import ConfigError
from minikafka.broker.rpc.messages import SettingChange
from minikafka.broker.settings.dynamic_config import DYNAMIC, DynamicConfig

pytestmark = pytest.mark.row("R71")

UNCLEAN = "unclean.leader.election.enable"
RATE = "leader.replication.throttled.rate"
FOLLOWERS = "follower.replication.throttled.rate"
MOVES = "replica.alter.log.dirs.io.max.bytes.per.second"


def settings(**static: object) -> DynamicConfig:
    keys = {name.replace("_", "."): value for name, value in static.items()}
    return DynamicConfig(BrokerConfig.from_mapping({"broker.id": 1, **keys}))


def test_broker_setting_precedes_the_cluster_setting_which_precedes_the_file() -> None:
    dynamic = settings(min_insync_replicas=2)
    assert dynamic.current.min_insync_replicas == 2
    assert dynamic.load({"min.insync.replicas": "3"}, {})
    assert dynamic.current.min_insync_replicas == 3
    assert dynamic.load({"min.insync.replicas": "3"}, {"min.insync.replicas": "4"})
    assert dynamic.current.min_insync_replicas == 4
    assert dynamic.load({}, {})
    assert dynamic.current == dynamic.static


@pytest.mark.parametrize(
    ("cluster", "own", "rates"),
    [
        ({}, {}, (LONG_MAX, LONG_MAX, LONG_MAX)),
        ({RATE: "5", FOLLOWERS: "6"}, {MOVES: "4"}, (5, 6, 4)),
        ({MOVES: "3"}, {RATE: "7", FOLLOWERS: "8"}, (7, 8, 3)),
        ({RATE: "5", FOLLOWERS: "6"}, {RATE: "7"}, (7, 6, LONG_MAX)),
        ({RATE: "5", FOLLOWERS: "6", MOVES: "3"}, {FOLLOWERS: "0", MOVES: "1"}, (5, 0, 1)),
    ],
)
def test_throttle_of_one_broker_precedes_the_throttle_of_all_brokers(
    cluster: dict[str, str], own: dict[str, str], rates: tuple[int, int, int]
) -> None:
    dynamic = settings()
    dynamic.load(cluster, own)
    assert dynamic.replication_rates == rates


def test_load_returns_false_when_the_effective_config_does_not_change() -> None:
    dynamic = settings()
    assert dynamic.load({UNCLEAN: "true"}, {})
    assert not dynamic.load({UNCLEAN: "true"}, {RATE: "5"})
    assert dynamic.own == {RATE: "5"}


def test_topics_inherit_altered_broker_settings() -> None:
    dynamic = settings()
    dynamic.load({"log.retention.ms": "7", "message.max.bytes": "99"}, {})
    topic = TopicConfig.from_broker(dynamic.current, {})
    assert (topic.retention_ms, topic.max_message_bytes) == (7, 99)


def test_invalid_stored_settings_are_ignored() -> None:
    dynamic = settings()
    dynamic.load(
        {"min.insync.replicas": "0", "num.io.threads": "9", "broker.id": "7", UNCLEAN: "true"}, {}
    )
    assert dynamic.cluster == {UNCLEAN: "true", "num.io.threads": "9"}
    assert dynamic.current.broker_id == 1
    assert dynamic.current.unclean_leader_election_enable


def test_settings_of_the_file_apply_when_stored_settings_contradict_each_other() -> None:
    dynamic = settings()
    dynamic.load(
        {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"}, {}
    )
    assert dynamic.current == dynamic.static


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"broker.rack": "a"}, "broker.rack"),
        ({"listeners": "x", "broker.id": "2"}, "broker.id, listeners"),
        ({"min.insync.replicas": "0"}, "at least 1"),
        ({RATE: "-1"}, "at least 0"),
        ({"inter.broker.protocol.version": "3.9"}, "inter.broker.protocol.version"),
        (
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
            "max.compaction.lag.ms",
        ),
    ],
)
def test_changes_to_static_or_invalid_settings_are_refused_with_the_reason(
    values: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        settings().check(values)


OUT = "listener.name.plaintext.max.connections"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max.connections", "0", "max.connections must be at least 1, got 0"),
        (OUT, "0", f"{OUT} must be at least 1, got 0"),
        (OUT, "many", f"{OUT} must be a whole number"),
        (OUT.replace("plaintext", "out"), "5", "no listener out; its listeners are plaintext"),
        (OUT.replace("connections", "connections.per.ip"), "5", "dynamically: .*per.ip;"),
        ("max.connections.per.ip", "0", "only if max.connections.per.ip.overrides is set"),
        ("max.connections.per.ip.overrides", "somewhere:5", "ADDRESS:NUMBER"),
        ("max.connections.per.ip.overrides", "10.0.0.1:-5", "ADDRESS:NUMBER"),
    ],
)
def test_unusable_limits_of_connections_are_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settings().check({name: value})


def test_limit_of_a_listener_is_altered_for_one_broker_or_all() -> None:
    dynamic = settings(listener_name_plaintext_max_connections=7)
    dynamic.check({OUT: "5", "max.connections.per.ip.overrides": "127.0.0.1:3"})
    for cluster, own, most in (({OUT: "5"}, {}, 5), ({OUT: "5"}, {OUT: "6"}, 6), ({}, {}, 7)):
        assert dynamic.load(cluster, own)
        assert dynamic.current.listener_keys[OUT] == most


def test_file_reload_lists_and_applies_keys_of_listeners() -> None:
    changes, has_effect = (dynamic := settings()).reload(
        wanted(
            listener_name_plaintext_max_connections=5,
            listener_name_plaintext_ssl_keystore_type="PEM",
            listener_name_plaintext_ssl_keystore_password="secret",
        )
    )
    assert has_effect
    assert changes == [
        SettingChange(OUT, None, "5", "now"),
        SettingChange("listener.name.plaintext.ssl.keystore.type", None, "PEM", "restart"),
    ]
    assert dynamic.current.listener_keys == {OUT: 5}


def test_dynamic_keys_include_kafkas_dynamic_keys_and_no_static_keys() -> None:
    assert {"log.retention.ms", "log.roll.ms", "message.max.bytes", "compression.type"} <= set(
        DYNAMIC
    )
    assert not {"log.retention.hours", "broker.id", "num.partitions"} & set(DYNAMIC)
    settings().check(dict.fromkeys(("log.retention.ms", "log.segment.bytes", RATE), "1000"))


def test_user_defined_settings_are_kept_without_effect() -> None:
    dynamic = settings()
    dynamic.check({"team.contact": "a@b", UNCLEAN: "true"})
    assert not dynamic.load({"team.contact": "a@b"}, {"team.room": "7"})
    assert (dynamic.cluster, dynamic.own) == ({"team.contact": "a@b"}, {"team.room": "7"})
    assert dynamic.current == dynamic.static


def wanted(**static: object) -> BrokerConfig:
    return settings(**static).static


def test_file_reload_applies_changes_that_need_no_restart_and_lists_all_changes() -> None:
    dynamic = settings(min_insync_replicas=2, num_partitions=3)
    changes, has_effect = dynamic.reload(wanted(num_partitions=6, log_retention_ms=5))
    assert has_effect
    assert changes == [
        SettingChange("num.partitions", "3", "6", "restart"),
        SettingChange("min.insync.replicas", "2", "1", "now"),
        SettingChange("log.retention.ms", None, "5", "now"),
    ]
    current = dynamic.current
    assert (current.min_insync_replicas, current.log_retention_ms) == (1, 5)
    assert current.num_partitions == 3
    assert current.given == {"broker.id", "num.partitions", "log.retention.ms"}
    again, has_effect = dynamic.reload(wanted(num_partitions=6, log_retention_ms=5))
    assert ([change.name for change in again], has_effect) == (["num.partitions"], False)


def test_reload_has_no_effect_on_a_setting_that_was_altered_at_run_time() -> None:
    dynamic = settings()
    dynamic.load({"min.insync.replicas": "3"}, {})
    changes, has_effect = dynamic.reload(wanted(min_insync_replicas=2))
    overridden = SettingChange("min.insync.replicas", "3", "2", "overridden")
    assert changes == [overridden]
    assert (dynamic.current.min_insync_replicas, has_effect) == (3, False)
    assert dynamic.reload(wanted(min_insync_replicas=2)) == ([overridden], False)
    assert dynamic.reload(wanted(min_insync_replicas=3)) == ([], False)
    dynamic.reload(wanted(min_insync_replicas=2))
    dynamic.load({}, {})
    assert dynamic.current.min_insync_replicas == 2


def test_reload_of_an_unchanged_file_changes_nothing() -> None:
    assert settings(min_insync_replicas=2).reload(wanted(min_insync_replicas=2)) == ([], False)
