"""Configurations are validated, and the tables of keys agree with Kafka 3.9."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from support.cases import for_each

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.config.authorizer import AUTHORIZER
from minikafka.base.config.keys import ConfigType
from minikafka.base.errors import ConfigError
from minikafka.base.protocol_versions import VERSION_KEY

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
    "group.min.session.timeout.ms": 6_000,
    "group.max.session.timeout.ms": 1_800_000,
    "group.initial.rebalance.delay.ms": 3_000,
    "group.max.size": 2_147_483_647,
    "offset.metadata.max.bytes": 4_096,
    "offsets.topic.num.partitions": 50,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.segment.bytes": 104_857_600,
    "offsets.topic.compression.codec": 0,
    "offsets.load.buffer.size": 5_242_880,
    "offsets.commit.timeout.ms": 5_000,
    "offsets.retention.minutes": 10_080,
    "offsets.retention.check.interval.ms": 600_000,
    "transaction.max.timeout.ms": 900_000,
    "transactional.id.expiration.ms": 604_800_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 3_600_000,
    "transaction.partition.verification.enable": True,
    "transaction.state.log.num.partitions": 50,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.segment.bytes": 104_857_600,
    "transaction.state.log.load.buffer.size": 5_242_880,
}


@for_each(KAFKA_DEFAULTS.items())
def test_config_defaults_equal_kafkas(name, default):
    assert BrokerConfig.keys()[name].default == default


SPECIAL = ("-1", "0", "1", "2147483647", "9223372036854775807")
NARROWER = {
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "-1 0",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "-1 0",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "-1 0",
    "sasl.oauthbearer.clock.skew.seconds": "-1",
    "broker.id": "-1",
    "zookeeper.session.timeout.ms": "-1 0",
    "zookeeper.connection.timeout.ms": "-1 0",
    "default.replication.factor": "-1 0 2147483647",
    "log.roll.ms": "-1 0",
    "log.roll.jitter.ms": "-1",
    "log.flush.interval.ms": "-1",
    "log.flush.offset.checkpoint.interval.ms": "0",
    "replica.lag.time.max.ms": "-1 0",
    "replica.fetch.wait.max.ms": "-1",
    "replica.fetch.min.bytes": "-1",
    "replica.socket.timeout.ms": "-1 0",
    "controller.socket.timeout.ms": "-1 0",
    "replica.high.watermark.checkpoint.interval.ms": "-1 0",
    "leader.imbalance.per.broker.percentage": "-1",
    "controlled.shutdown.max.retries": "-1",
    "controlled.shutdown.retry.backoff.ms": "-1",
    "group.min.session.timeout.ms": "-1",
    "group.max.session.timeout.ms": "-1",
    "group.initial.rebalance.delay.ms": "-1",
    "offset.metadata.max.bytes": "-1",
    "offsets.topic.segment.bytes": "1",
    "transaction.state.log.segment.bytes": "1",
    "offsets.topic.compression.codec": "-1 2147483647",
    "sasl.server.max.receive.size": "-1 0",
    "sasl.login.connect.timeout.ms": "-1 0",
    "sasl.login.read.timeout.ms": "-1 0",
    "sasl.login.retry.backoff.ms": "-1 0",
    "sasl.login.retry.backoff.max.ms": "-1 0",
    "sasl.login.refresh.window.factor": "-1 0 2147483647 9223372036854775807",
    "sasl.login.refresh.window.jitter": "-1 1 2147483647 9223372036854775807",
    "sasl.login.refresh.min.period.seconds": "-1",
    "sasl.login.refresh.buffer.seconds": "-1",
    "password.encoder.key.length": "2147483647",
    "password.encoder.iterations": "2147483647",
    "log.cleaner.threads": "0",
    "log.cleaner.io.buffer.load.factor": "-1",
    "log.cleaner.io.max.bytes.per.second": "-1 0",
}
"""Values, by key, that Kafka accepts although they cannot work, and that minikafka refuses."""


def kafkas_special_values() -> list[tuple[str, str, str]]:
    """Return ("broker" or "topic", key, Kafka's verdicts) for each numeric key.

    The verdicts are one text with "+" (accepted) or "-" (refused) for each value in `SPECIAL`.
    """
    text = (Path(__file__).parent / "kafka_special_values.txt").read_text()
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return [(kind, name, accepted) for kind, name, accepted in rows]


@for_each(kafkas_special_values())
def test_key_accepts_minus_1_0_1_and_the_largest_integers_as_in_kafka(kind, name, accepted):
    keys = {"broker": BrokerConfig, "topic": TopicConfig}[kind].keys()
    refused_here = NARROWER.get(name, "").split()

    found = "".join("+" if is_valid(keys[name], value) else "-" for value in SPECIAL)

    expected = [
        "-" if value in refused_here else mark
        for value, mark in zip(SPECIAL, accepted, strict=True)
    ]
    assert found == "".join(expected)


def test_file_of_numbers_that_kafka_accepts_has_a_line_for_every_numeric_key():
    compared = {(kind, name) for kind, name, _ in kafkas_special_values()}

    for kind, config in (("broker", BrokerConfig), ("topic", TopicConfig)):
        numeric = {
            name
            for name, key in config.keys().items()
            if key.kind in (ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE)
            and not name.startswith("minikafka")
        }
        assert {(kind, name) for name in numeric} <= compared


def is_valid(key, value: str) -> bool:
    try:
        key.parse(value)
    except ConfigError:
        return False
    return True


def test_minikafka_adds_few_broker_keys_to_kafkas():
    keys = BrokerConfig.keys()

    assert [name for name in keys if name.startswith("minikafka")] == [
        "minikafka.handshake.timeout.ms",
        "minikafka.control.listener",
        "minikafka.source.address",
        "minikafka.cluster.secret",
        "minikafka.metrics.enable",
        "minikafka.records.check.enable",
        "minikafka.fast.failover.enable",
        "minikafka.coordination",
        "minikafka.leaders.election.wait.ms",
        "minikafka.leaders.preferred.wait.ms",
        "minikafka.leaders.queue.max",
        "minikafka.producer.ids.max",
        "minikafka.producer.ids.keep.ms",
        "minikafka.inter.broker.protocol.version",
        "minikafka.groups.memory.max.bytes",
        "minikafka.offsets.memory.max.bytes",
        "minikafka.zookeeper.jaas.config",
    ]
    assert keys["minikafka.cluster.secret"].sensitive


@pytest.mark.parametrize("config", [BrokerConfig, TopicConfig])
def test_every_config_field_is_a_key_with_a_valid_default_except_those_of_what_is_set(config):
    keys = config.keys()

    others = {field.name for field in fields(config)} - {key.attribute for key in keys.values()}
    assert others <= {"given", "listener_keys"}
    for name, key in keys.items():
        if name != "broker.id" and key.default not in (None, (), ""):
            assert key.parse(key.default) == key.default


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({}, "broker.id is required"),
        ({"broker.id": -1}, "at least 0"),
        (ONE | {VERSION_KEY: "0.9"}, f"{VERSION_KEY} must be one of 0.1, 0.2, got '0.9'"),
        (ONE | {VERSION_KEY: 0.1}, f"{VERSION_KEY} must be one of 0.1, 0.2, got 0.1"),
        (ONE | {"num.partitions": 0}, "at least 1"),
        (ONE | {"log.segment.byte": 1}, "did you mean log.segment.bytes"),
        (ONE | {"ssl.keystore.locations": "x"}, "did you mean ssl.keystore.location"),
        (
            ONE | {"listener.name.a.ssl.keystore.locatio": "x"},
            "did you mean listener.name.a.ssl.keystore.location",
        ),
        (
            ONE | {"listener.name.a.log.segment.bytes": 1},
            "unknown key listener.name.a.log.segment.bytes",
        ),
        (
            ONE | {"listener.name.a.ssl.client.auth": "maybe"},
            "listener.name.a.ssl.client.auth must be one of none",
        ),
        (ONE | {"log.dirs": "a,b,a"}, "^log.dirs contains a twice; remove one$"),
        (ONE | {"replica.fetch.wait.max.ms": 500, "replica.lag.time.max.ms": 400}, "at most"),
        (ONE | {"listeners": "PLAINTEXT://0.0.0.0:9092"}, "advertised.listeners"),
        (ONE | {"listeners": "SSL://h:1"}, "inter.broker.listener.name"),
        (ONE | {"listener.security.protocol.map": "OTHER:SSL"}, "PLAINTEXT defined in"),
        (
            ONE | {"security.inter.broker.protocol": "SSL", "inter.broker.listener.name": "SSL"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol",
        ),
        (ONE | {"zookeeper.connect": "h:2181/a//b"}, "chroot"),
        (
            ONE | {"log.cleaner.min.compaction.lag.ms": 2, "log.cleaner.max.compaction.lag.ms": 1},
            "min.compaction.lag.ms",
        ),
    ],
)
def test_invalid_broker_settings_are_refused_with_a_reason(keys, reason):
    with pytest.raises(ConfigError, match=reason.replace(".", r"\.")):
        BrokerConfig.from_mapping(keys)


@pytest.mark.key("minikafka.coordination")
def test_keys_that_only_the_other_coordination_mode_reads_are_named():
    keys = ONE | {
        "minikafka.fast.failover.enable": False,
        "minikafka.leaders.queue.max": 5,
        "num.partitions": 2,
    }

    assert [*BrokerConfig.from_mapping(keys).unread_keys] == ["minikafka.leaders.queue.max"]
    leaders = BrokerConfig.from_mapping(keys | {"minikafka.coordination": "leaders"})
    reason = "minikafka.coordination is leaders"
    assert leaders.unread_keys == {"minikafka.fast.failover.enable": reason}


@pytest.mark.parametrize(
    ("listener", "key", "reason"),
    [
        ("PLAINTEXT", "ssl.keystore.location", "no listener uses TLS"),
        ("SASL_PLAINTEXT", "ssl.cipher.suites", "no listener uses TLS"),
        ("SSL", "ssl.cipher.suites", ""),
        ("SSL", "sasl.enabled.mechanisms", "no listener uses SASL"),
        ("SASL_SSL", "sasl.enabled.mechanisms", ""),
        ("SSL", "connection.failed.authentication.delay.ms", "no listener uses SASL"),
        ("SASL_SSL", "connections.max.reauth.ms", ""),
        ("PLAINTEXT", "minikafka.handshake.timeout.ms", "no listener uses TLS or SASL"),
        ("SSL", "minikafka.handshake.timeout.ms", ""),
        (
            "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol",
            "brokers connect to the listener IN without SASL",
        ),
        ("SSL", "listener.name.own.ssl.keystore.location", ""),
        ("SSL", "listener.name.in.ssl.keystore.location", "the listener IN does not use TLS"),
        ("SSL", "listener.name.x.ssl.keystore.location", "there is no listener X"),
        (
            "SSL",
            "listener.name.own.plain.sasl.jaas.config",
            "the listener OWN does not use SASL",
        ),
        ("SASL_SSL", "listener.name.own.plain.sasl.jaas.config", ""),
        ("SASL_SSL", "listener.name.own.plain.connections.max.reauth.ms", ""),
        ("PLAINTEXT", "num.partitions", ""),
    ],
)
def test_keys_of_tls_and_sasl_without_a_listener_that_uses_them_are_named(listener, key, reason):
    """The listener OWN has the protocol `listener`; brokers connect to the listener IN, which is PLAINTEXT."""
    keys = ONE | {
        "listeners": "IN://127.0.0.1:1,OWN://127.0.0.1:2",
        "listener.security.protocol.map": f"IN:PLAINTEXT,OWN:{listener}",
        "inter.broker.listener.name": "IN",
        key: "1000000",
    }
    if key == "sasl.mechanism.inter.broker.protocol":
        keys[key] = "PLAIN"

    assert BrokerConfig.from_mapping(keys).unread_keys.get(key, "") == reason


@for_each(["listener.name.OWN.ssl.client.auth", "listener.name.own.PLAIN.sasl.jaas.config"])
def test_key_of_a_listener_in_upper_case_is_refused_with_the_key_to_write(key):
    """Kafka ignores it without a word."""
    prefix, own = key.rsplit(".", 3)[0], ".".join(key.rsplit(".", 3)[1:])
    with pytest.raises(ConfigError, match=re.escape(f"write {prefix.lower()}.{own}")):
        BrokerConfig.from_mapping(ONE | {key: "required"})


def test_mechanism_between_brokers_is_read_if_they_connect_with_sasl():
    keys = ONE | {
        "listeners": "SASL_SSL://127.0.0.1:1",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }

    assert BrokerConfig.from_mapping(keys).unread_keys == {}


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
    assert config.exposed_listeners == {"OUTSIDE://0.0.0.0:2": "encryption and authentication"}


def test_default_listeners_are_reachable_only_from_this_machine():
    assert broker().exposed_listeners == {}
    assert [item.name for item in broker().endpoints.advertised] == ["PLAINTEXT", "CONTROLLER"]


@pytest.mark.key("log.dir")
def test_log_dir_is_used_when_log_dirs_is_not_set():
    assert broker(log_dir="/var/a").log_dirs == ("/var/a",)
    assert broker(log_dir="/var/a", log_dirs="/var/b, /var/c").log_dirs == ("/var/b", "/var/c")


def test_text_form_of_config_values_is_kafkas_and_hides_the_cluster_secret():
    config = broker(minikafka_cluster_secret="x" * 16, log_dirs="/a,/b")

    assert config.text("log.dirs") == "/a,/b"
    assert config.text("delete.topic.enable") == "true"
    assert config.text("broker.rack") is None
    assert config.text("minikafka.cluster.secret") is None
    assert config.given == {"broker.id", "minikafka.cluster.secret", "log.dirs"}


def test_broker_file_is_one_table_whose_dotted_keys_are_parsed():
    config = BrokerConfig.parse("[broker]\nbroker.id = 7\nlog.segment.bytes = 1_000\n")

    assert (config.broker_id, config.log_segment_bytes) == (7, 1000)


@pytest.mark.parametrize(
    "text", ["[broker", "[brokers]\nbroker.id = 1", "broker = 3", "broker.id = 1\nx = 2"]
)
def test_broker_file_with_anything_but_a_broker_table_is_refused(text):
    with pytest.raises(ConfigError):
        BrokerConfig.parse(text)


def test_types_of_config_keys_have_the_type_numbers_of_describe_configs():
    assert {kind.name: int(kind) for kind in ConfigType} == {
        "UNKNOWN": 0, "BOOLEAN": 1, "STRING": 2, "INT": 3, "LONG": 5, "DOUBLE": 6, "LIST": 7,
        "PASSWORD": 9,
    }  # fmt: skip


def test_secrets_are_not_in_the_text_of_a_configuration():
    secrets = {
        "minikafka.cluster.secret": "secret-of-the-cluster",
        "ssl.keystore.password": "secret-of-the-keystore",
        "listener.name.a.plain.sasl.jaas.config": "secret-of-the-listener",
    }
    config = BrokerConfig.from_mapping(ONE | secrets)
    assert config.security_of("a", "PLAIN").sasl_jaas_config == "secret-of-the-listener"
    for shown in (repr(config), repr(config.security_of("a", "PLAIN"))):
        assert "secret-of" not in shown


def test_value_for_a_mechanism_has_precedence_over_the_one_for_its_listener():
    config = BrokerConfig.from_mapping(
        ONE
        | {
            "connections.max.reauth.ms": 1,
            "listener.name.a.connections.max.reauth.ms": 2,
            "listener.name.a.plain.connections.max.reauth.ms": 3,
        }
    )
    found = [
        config.security_of(listener, mechanism).connections_max_reauth_ms
        for listener, mechanism in (("B", "PLAIN"), ("A", ""), ("A", "OTHER"), ("A", "PLAIN"))
    ]
    assert found == [1, 2, 2, 3]


@pytest.mark.key("security.inter.broker.protocol")
def test_inter_broker_listener_has_the_name_of_the_protocol_between_brokers():
    keys = {"listeners": "SSL://h:1,PLAINTEXT://h:2", "security.inter.broker.protocol": "SSL"}
    assert BrokerConfig.from_mapping(ONE | keys).endpoints.inter_broker == "SSL"


@pytest.mark.parametrize(
    ("protocol", "lacking"),
    [
        ("PLAINTEXT", "encryption and authentication"),
        ("SSL", "authentication"),
        ("SASL_PLAINTEXT", "encryption"),
        ("SASL_SSL", ""),
    ],
)
def test_exposed_listener_is_named_with_what_its_protocol_lacks(protocol, lacking):
    keys = {
        "listeners": "A://h:1,CONTROLLER://127.0.0.1:2",
        "listener.security.protocol.map": f"A:{protocol}",
        "inter.broker.listener.name": "A",
    }
    expected = {"A://h:1": lacking} if lacking else {}
    assert BrokerConfig.from_mapping(ONE | keys).exposed_listeners == expected


def test_listener_that_wants_certificates_of_clients_lacks_no_authentication():
    keys = {
        "listeners": "SSL://h:1",
        "security.inter.broker.protocol": "SSL",
        "listener.name.ssl.ssl.client.auth": "required",
    }
    assert BrokerConfig.from_mapping(ONE | keys).exposed_listeners == {}


@pytest.mark.parametrize(
    ("between", "keys", "is_secured"),
    [
        ("PLAINTEXT", {}, False),
        ("SSL", {}, False),
        ("SSL", {"listener.name.x.ssl.client.auth": "requested"}, False),
        ("SSL", {"listener.name.x.ssl.client.auth": "required"}, True),
        ("SASL_PLAINTEXT", {}, True),
        ("SASL_SSL", {}, True),
        ("PLAINTEXT", {"authorizer.class.name": AUTHORIZER}, True),
    ],
)
def test_security_is_on_with_an_authorizer_or_logins_between_brokers(
    between: str, keys: dict[str, str], is_secured: bool
) -> None:
    listeners = {
        "listeners": "X://h:1,Y://h:2",
        "listener.security.protocol.map": f"X:{between},Y:SASL_SSL",
        "inter.broker.listener.name": "X",
    }
    assert BrokerConfig.from_mapping(ONE | listeners | keys).is_secured is is_secured


def test_example_of_the_security_page_is_a_valid_configuration():
    page = (Path(__file__).parents[4] / "docs" / "security.md").read_text()
    [example] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    config = BrokerConfig.parse(example)
    assert config.security_of("SSL").ssl_client_auth == "required"
    assert "user_alice" in config.security_of("SASL_SSL", "PLAIN").sasl_jaas_config


@pytest.mark.parametrize(("version", "versions"), [("0.1", ("0.1",)), ("0.2", ("0.1", "0.2"))])
def test_protocol_version_limits_the_versions_of_a_broker(version, versions):
    assert BrokerConfig.from_mapping(ONE | {VERSION_KEY: version}).protocol_versions == versions
