"""Configs are valid, and their tables agree with Kafka 3.9."""

from __future__ import annotations

from dataclasses import fields

import pytest

from minikafka.base.config import BrokerConfig, ClusterConfig, TopicConfig
from minikafka.base.errors import ConfigError
from minikafka.base.keys import Kind

HOUR_MS = 3_600_000
ONE = {"broker.id": 1}


def broker(**keys) -> BrokerConfig:
    return BrokerConfig.from_mapping(
        ONE | {name.replace("_", "."): value for name, value in keys.items()}
    )


KAFKA_DEFAULTS = {
    "num.partitions": 1,
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    "unclean.leader.election.enable": False,
    "auto.create.topics.enable": True,
    "delete.topic.enable": True,
    "replica.lag.time.max.ms": 30_000,
    "replica.fetch.max.bytes": 1_048_576,
    "replica.fetch.wait.max.ms": 500,
    "replica.fetch.min.bytes": 1,
    "replica.fetch.backoff.ms": 1_000,
    "replica.fetch.response.max.bytes": 10_485_760,
    "replica.high.watermark.checkpoint.interval.ms": 5_000,
    "controlled.shutdown.max.retries": 3,
    "controlled.shutdown.retry.backoff.ms": 5_000,
    "zookeeper.session.timeout.ms": 18_000,
    "log.segment.bytes": 1_073_741_824,
    "log.index.interval.bytes": 4_096,
    "log.index.size.max.bytes": 10_485_760,
    "log.roll.hours": 168,
    "log.retention.hours": 168,
    "message.max.bytes": 1_048_588,
    "socket.request.max.bytes": 104_857_600,
    "connections.max.idle.ms": 600_000,
    "producer.id.expiration.ms": 86_400_000,
    "log.flush.offset.checkpoint.interval.ms": 60_000,
}


@pytest.mark.parametrize(("name", "default"), KAFKA_DEFAULTS.items())
def test_defaults_are_kafkas(name, default):
    assert BrokerConfig.keys()[name].default == default


def test_only_keys_of_minikafka_differ_from_kafkas():
    keys = BrokerConfig.keys()

    assert [name for name in keys if name.startswith("minikafka")] == [
        "minikafka.cluster.secret",
        "minikafka.metrics.enable",
    ]
    assert keys["minikafka.cluster.secret"].sensitive


@pytest.mark.parametrize("config", [BrokerConfig, TopicConfig])
def test_every_field_except_given_is_a_key_with_a_valid_default(config):
    keys = config.keys()

    assert {field.name for field in fields(config)} - {key.attribute for key in keys.values()} == {
        "given"
    }
    for name, key in keys.items():
        if name != "broker.id" and key.default not in (None, (), ""):
            assert key.parse(key.default) == key.default


def test_topic_defaults_equal_the_broker_defaults():
    inherited = TopicConfig.from_broker(broker(), {})

    assert inherited == TopicConfig()


def test_topic_value_takes_precedence_over_the_brokers():
    config = broker(log_segment_bytes=1_000_000, min_insync_replicas=2)

    topic = TopicConfig.from_broker(config, {"segment.bytes": "2000"})

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
    assert TopicConfig.from_broker(broker(**keys), {}).retention_ms == retention_ms


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({}, "broker.id is required"),
        ({"broker.id": -1}, "at least 0"),
        (ONE | {"num.partitions": 0}, "at least 1"),
        (ONE | {"log.segment.byte": 1}, "did you mean log.segment.bytes"),
        (ONE | {"ssl.keystore.location": "x"}, "unknown key"),
        (ONE | {"log.dirs": "a,b,a"}, "^log.dirs contains a twice; remove one$"),
        (ONE | {"replica.fetch.wait.max.ms": 500, "replica.lag.time.max.ms": 400}, "at most"),
        (ONE | {"listeners": "PLAINTEXT://0.0.0.0:9092"}, "advertised.listeners"),
        (ONE | {"listeners": "SSL://h:1"}, "inter.broker.listener.name"),
        (ONE | {"listener.security.protocol.map": "PLAINTEXT:SSL"}, "No security protocol"),
        (ONE | {"zookeeper.connect": "h:2181/"}, "chroot"),
        (
            ONE | {"log.cleaner.min.compaction.lag.ms": 2, "log.cleaner.max.compaction.lag.ms": 1},
            "min.compaction.lag.ms",
        ),
    ],
)
def test_invalid_broker_settings_are_refused_with_a_reason(keys, reason):
    with pytest.raises(ConfigError, match=reason.replace(".", r"\.")):
        BrokerConfig.from_mapping(keys)


@pytest.mark.parametrize(
    "overrides",
    [{"segment.bytes": "13"}, {"cleanup.policy": "shred"}, {"min.insync.replicas": "0"}, {"log.segment.bytes": "99"},
     {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, {"retention.ms": "-2"}],
)  # fmt: skip
def test_invalid_topic_settings_are_refused(overrides):
    with pytest.raises(ConfigError):
        TopicConfig.from_broker(broker(), overrides)


def test_endpoints_are_read_from_the_listener_keys():
    config = broker(
        listeners="INSIDE://127.0.0.1:1,OUTSIDE://0.0.0.0:2,ADMIN://127.0.0.1:3",
        advertised_listeners=[
            "INSIDE://127.0.0.1:1",
            "OUTSIDE://kafka.example:2",
            "ADMIN://127.0.0.1:3",
        ],
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,ADMIN:PLAINTEXT",
        control_plane_listener_name="ADMIN",
        inter_broker_listener_name="INSIDE",
    )

    assert [str(item) for item in config.endpoints.kafka] == [
        "INSIDE://127.0.0.1:1",
        "OUTSIDE://0.0.0.0:2",
    ]
    assert str(config.endpoints.control) == "ADMIN://127.0.0.1:3"
    assert config.endpoints.inter_broker == "INSIDE"
    assert config.exposed_listeners == ("OUTSIDE://0.0.0.0:2",)


def test_default_listeners_are_reachable_only_from_this_machine():
    assert broker().exposed_listeners == ()
    assert [item.name for item in broker().endpoints.advertised] == ["PLAINTEXT", "CONTROLLER"]


def test_log_dir_is_used_without_log_dirs():
    assert broker(log_dir="/var/a").log_dirs == ("/var/a",)
    assert broker(log_dir="/var/a", log_dirs="/var/b, /var/c").log_dirs == ("/var/b", "/var/c")


def test_values_have_kafkas_text_form_and_the_secret_has_none():
    config = broker(minikafka_cluster_secret="x" * 16, log_dirs="/a,/b")

    assert config.text("log.dirs") == "/a,/b"
    assert config.text("delete.topic.enable") == "true"
    assert config.text("broker.rack") is None
    assert config.text("minikafka.cluster.secret") is None
    assert config.given == {"broker.id", "minikafka.cluster.secret", "log.dirs"}


def test_broker_file_has_one_table_of_dotted_keys():
    config = BrokerConfig.parse("[broker]\nbroker.id = 7\nlog.segment.bytes = 1_000\n")

    assert (config.broker_id, config.log_segment_bytes) == (7, 1000)


@pytest.mark.parametrize(
    "text", ["[broker", "[brokers]\nbroker.id = 1", "broker = 3", "broker.id = 1\nx = 2"]
)
def test_broker_file_with_other_tables_is_refused(text):
    with pytest.raises(ConfigError):
        BrokerConfig.parse(text)


def test_cluster_file_sets_keys_of_all_brokers_and_of_one():
    config = ClusterConfig.parse(
        """
        [cluster]
        brokers = 5
        port = 0
        data = "elsewhere"
        [zookeeper]
        connect = "h:2181/x"
        [broker]
        min.insync.replicas = 2
        [broker.2]
        broker.rack = "b"
        min.insync.replicas = 1
        """
    )

    assert (config.brokers, config.port, config.data, config.zookeeper) == (
        5,
        0,
        "elsewhere",
        "h:2181/x",
    )
    assert config.keys_of(1) == {"min.insync.replicas": 2}
    assert config.keys_of(2) == {"min.insync.replicas": 1, "broker.rack": "b"}


def test_empty_cluster_file_means_three_brokers_and_a_managed_zookeeper():
    assert ClusterConfig.parse("") == ClusterConfig()
    assert ClusterConfig().zookeeper is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[clusters]", "did you mean cluster"),
        ("[cluster]\nbroker = 3", r"did you mean cluster\.brokers"),
        ("[cluster]\nbrokers = 0", "1 to 1000"),
        ("[cluster]\nport = 70000", "0 to 65535"),
        ("[broker]\nlog.segment.bytez = 1", r"did you mean log\.segment\.bytes"),
        ("[broker]\nlog.dirs = 'x'", "set by the cluster"),
        ("[broker.1]\nbroker.id = 4", "set by the cluster"),
        ("[broker.1]\nnum.partitions = 0", "at least 1"),
        ("[zookeeper]\nport = 1", r"did you mean zookeeper\.connect"),
        ("cluster = 3", "must be a table"),
        ("[[cluster]]", "must be a table"),
        ("[broker]\n1 = 2", "must be a table"),
        ("[broker]\nnum.partitions = 3\n'num.partitions' = 4", r"^num\.partitions is given twice"),
        ("[broker.2]\n'num.partitions' = 3\nnum.partitions = 4", r"^num\.partitions is given twice"),
        ("[cluster]\nbrokers = 3.0", r"cluster\.brokers must be a whole number, got 3\.0"),
        ("[xyzzy]\nfoo = 1", "known keys are cluster, zookeeper, broker"),
        ("[broker]\nxyzzy.foo = 1", r"^unknown key xyzzy\.foo; docs/configuration\.md"),
        ("[broker.x]\nbroker.rack = 'b'", r"^\[broker\.x\] names no broker: .* \[broker\.1\]"),
        ("[broker.x]", r"^\[broker\.x\] names no broker"),
        ("[broker.0]\nbroker.rack = 'b'", r"^\[broker\.0\] names no broker"),
        ("[broker.01]\nbroker.rack = 'b'", r"^\[broker\.01\] names no broker"),
        ("[broker.99999]\nbroker.rack = 'b'", r"^\[broker\.99999\] names no broker"),
    ],
)  # fmt: skip
def test_invalid_cluster_file_is_refused_with_a_reason(text, reason):
    with pytest.raises(ConfigError, match=reason):
        ClusterConfig.parse(text)


def test_kinds_have_the_numbers_of_describe_configs():
    assert {kind.name: int(kind) for kind in Kind} == {
        "BOOLEAN": 1, "STRING": 2, "INT": 3, "LONG": 5, "DOUBLE": 6, "LIST": 7, "PASSWORD": 9,
    }  # fmt: skip
