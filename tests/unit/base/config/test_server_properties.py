"""Kafka's file of a broker: which keys are read, named or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.config import BrokerConfig
from minikafka.base.config.server_properties import KafkaFile, effect_of, read_kafka_file
from minikafka.base.errors import ConfigError
from minikafka.base.properties import parse_properties

KAFKAS_KEYS = Path(__file__).with_name("kafka_broker_keys.txt").read_text().split()
"""The keys of a broker of Kafka 3.9.1, by name."""


def read(text: str) -> KafkaFile:
    return read_kafka_file(parse_properties(text))


def test_each_key_of_kafka_is_read_needed_or_harmless() -> None:
    assert len(KAFKAS_KEYS) == 328
    unknown = [name for name in KAFKAS_KEYS if effect_of(name) == "unknown"]
    assert unknown == []


def test_each_key_that_minikafka_reads_is_passed_on_as_text() -> None:
    found = read("broker.id=1\nlog.dirs=/a, /b \nlistener.name.in.ssl.client.auth=required\n")
    assert found == KafkaFile(
        {
            "log.dirs": "/a, /b",
            "listener.name.in.ssl.client.auth": "required",
            "broker.id": "1",
        },
        {},
    )


def test_keys_without_effect_are_named_with_their_lines() -> None:
    text = "broker.id=1\n\nnum.io.threads=8\nlog.preallocate=true\nlistener.name.in.num.network.threads=2\ncustom.key=x"
    found = read(text)
    assert found.values == {"broker.id": "1", "log.preallocate": "true"}
    assert found.unread == {
        "num.io.threads": 3,
        "log.preallocate": 4,
        "listener.name.in.num.network.threads": 5,
        "custom.key": 6,
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("create.topic.policy.class.name=com.example.Policy", "every topic would be allowed"),
        ("listener.name.in.principal.builder.class=com.example.Builder", "other names"),
        ("listener.name.in.plain.sasl.server.callback.handler.class=com.example.C", "Java classes"),
        ("remote.log.storage.system.enable=true", "tiered storage"),
        ("process.roles=broker", "KRaft"),
        ("zookeeper.ssl.crl.enable=true", "revoked"),
        ("queued.max.request.bytes=1000000", "limit"),
        ("config.providers=file", "write the values into the file"),
    ],
)
def test_key_whose_loss_would_weaken_the_broker_is_refused(line: str, expected: str) -> None:
    name = line.partition("=")[0]
    with pytest.raises(ConfigError, match=f"^{name} is not implemented: .*{expected}.*; remove it"):
        read(line)


@pytest.mark.parametrize(
    "line",
    [
        "create.topic.policy.class.name=",
        "remote.log.storage.system.enable=false",
        "queued.max.request.bytes=-1",
        "listener.name.in.oauthbearer.sasl.server.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    ],
)
def test_key_that_is_needed_is_accepted_with_a_value_that_changes_nothing(line: str) -> None:
    assert read(line).unread == {line.partition("=")[0]: 1}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("min.insync.replica", "min.insync.replicas"),
        ("listener.name.in.ssl.client.auths", "ssl.client.auth"),
        ("super.user", "super.users"),
    ],
)
def test_misspelt_key_is_refused_with_the_key_that_is_probably_meant(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"^unknown key {name}; did you mean {meant}"):
        read(f"{name}=2")


def test_last_of_two_entries_with_one_name_counts() -> None:
    assert read("broker.id=1\nbroker.id=2").values == {"broker.id": "2"}


def test_node_id_is_another_name_of_the_broker_id() -> None:
    assert read("node.id=3").values == {"broker.id": "3"}
    assert read("node.id=3\nbroker.id=3").values == {"broker.id": "3"}
    with pytest.raises(ConfigError, match=r"node\.id must be equal to broker.id"):
        read("node.id=3\nbroker.id=4")


def test_id_that_kafka_would_choose_is_left_out() -> None:
    assert read("broker.id=-1").values == {}


def test_file_that_kafka_ships_is_read_with_its_threads_and_buffers_named() -> None:
    shipped = (
        "broker.id=0\nnum.network.threads=3\nnum.io.threads=8\nsocket.send.buffer.bytes=102400\n"
        "socket.receive.buffer.bytes=102400\nsocket.request.max.bytes=104857600\nlog.dirs=/tmp/kafka-logs\n"
        "num.partitions=1\nnum.recovery.threads.per.data.dir=1\noffsets.topic.replication.factor=1\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\nlog.retention.hours=168\n"
        "log.retention.check.interval.ms=300000\nzookeeper.connect=localhost:2181\n"
        "zookeeper.connection.timeout.ms=18000\ngroup.initial.rebalance.delay.ms=0\n"
    )
    found = read(shipped)
    assert BrokerConfig.from_mapping(found.values).log_retention_hours == 168
    assert sorted(found.unread) == [
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    ]
