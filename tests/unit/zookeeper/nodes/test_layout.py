"""Znode paths, and encoding and decoding of the JSON in Kafka's znodes."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.brokers.endpoints import endpoints

from minikafka.base.model import Broker, LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Stat
from minikafka.base.protocol_versions import VERSIONS
from minikafka.zookeeper.nodes import layout

STAT = Stat(77, 78, 1, 2, 3, 0, 0, 9, 10, 0, 77)
TP = TopicPartition("orders", 4)


@pytest.mark.row("X22")
def test_znode_paths_equal_kafkas() -> None:
    assert layout.broker_path(1) == "/brokers/ids/1"
    assert layout.topic_path("orders") == "/brokers/topics/orders"
    assert layout.partitions_path("orders") == "/brokers/topics/orders/partitions"
    assert layout.partition_path(TP) == "/brokers/topics/orders/partitions/4"
    assert layout.state_path(TP) == "/brokers/topics/orders/partitions/4/state"
    assert layout.delete_topic_path("orders") == "/admin/delete_topics/orders"
    assert layout.topic_config_path("orders") == "/config/topics/orders"


@pytest.mark.row("R5")
@pytest.mark.parametrize("rack", [None, "r-1"])
@pytest.mark.parametrize("host", ["broker.example", "::1"])
def test_broker_registration_is_decoded_with_its_czxid_as_broker_epoch(
    host: str, rack: str | None
) -> None:
    broker = Broker(3, endpoints(host, 9092, host, 19092), rack=rack)
    read = layout.decode_broker(3, layout.encode_broker(broker, 5), STAT)
    assert read == Broker(3, endpoints(host, 9092, host, 19092), epoch=77, rack=rack)


def test_broker_registration_has_the_fields_of_kafkas_version_5_and_protocol_versions() -> None:
    broker = Broker(3, endpoints("h", 9092, "h", 19092), versions=VERSIONS)
    fields = json.loads(layout.encode_broker(broker, 12))
    assert fields == {
        "minikafka_protocol_versions": ["0.1", "0.2"],
        "features": {},
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"},
        "endpoints": ["PLAINTEXT://h:9092", "CONTROLLER://h:19092"],
        "jmx_port": -1,
        "port": 9092,
        "host": "h",
        "version": 5,
        "timestamp": "12",
    }


def test_registration_without_protocol_versions_is_of_release_0_1_0() -> None:
    fields = json.loads(layout.encode_broker(Broker(3, endpoints("h", 9092, "h", 19092))))
    del fields[layout.PROTOCOL_VERSIONS]
    assert layout.decode_broker(3, json.dumps(fields).encode(), STAT).versions == ("0.1",)


@pytest.mark.parametrize("named", [["0.10", "0.9"], ["0.9", "0.10"]])
def test_protocol_versions_are_in_ascending_order(named: list[str]) -> None:
    broker = Broker(3, endpoints("h", 9092, "h", 19092), versions=tuple(named))
    read = layout.decode_broker(3, layout.encode_broker(broker), STAT)
    assert read.versions == ("0.9", "0.10")


@pytest.mark.parametrize("named", [None, [], "0.1", [2], ["0.2\n"], ["0.1"] * 101, {"0.1": 1}])
def test_malformed_protocol_versions_are_refused(named: object) -> None:
    fields = json.loads(layout.encode_broker(Broker(3, endpoints("h", 9092, "h", 19092))))
    data = json.dumps(fields | {layout.PROTOCOL_VERSIONS: named}).encode()
    with pytest.raises(ValueError, match="protocol version"):
        layout.decode_broker(3, data, STAT)


@pytest.mark.row("R55")
def test_topic_is_decoded_with_its_id_and_reassignment() -> None:
    assignment = {0: ReplicaAssignment((1, 2, 3)), 1: ReplicaAssignment((2, 3, 1, 4), (4,), (2,))}
    topic_id = bytes(range(16))
    assert layout.decode_topic(layout.encode_topic(topic_id, assignment)) == (topic_id, assignment)


@pytest.mark.row("X22")
def test_topic_node_has_the_json_fields_of_format_version_3() -> None:
    assignment = {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 1), (2,), (1,))}
    assert json.loads(layout.encode_topic(bytes(16), assignment)) == {
        "version": 3,
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
        "partitions": {"0": [1, 2], "1": [2, 1]},
        "adding_replicas": {"1": [2]},
        "removing_replicas": {"1": [1]},
    }


def test_topic_of_an_older_kafka_has_no_id() -> None:
    data = b'{"version":1,"partitions":{"1":[2],"0":[1]}}'
    expected = {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((2,))}
    assert layout.decode_topic(data) == (None, expected)


def test_partition_state_is_decoded_with_the_version_of_its_znode() -> None:
    state = LeaderAndIsr(2, 7, (2, 3), 5, 11)
    data = layout.encode_state(state)
    assert layout.decode_state(data, 11) == state
    assert json.loads(data) == {
        "controller_epoch": 5,
        "leader": 2,
        "version": 1,
        "leader_epoch": 7,
        "isr": [2, 3],
    }


@pytest.mark.row("A7")
def test_controller_node_has_exactly_kafkas_fields() -> None:
    assert layout.encode_controller(3, 99) == b'{"version":1,"brokerid":3,"timestamp":"99"}'
    assert layout.decode_controller(b'{"version":1,"brokerid":3,"timestamp":"99"}') == 3


def test_config_notification_and_id_znodes_are_decoded_as_encoded() -> None:
    overrides = {"retention.ms": "1", "cleanup.policy": "compact"}
    assert layout.decode_config(layout.encode_config(overrides)) == overrides
    changed = [TP, TopicPartition("a", 0)]
    assert layout.decode_isr_change(layout.encode_isr_change(changed)) == changed
    assert layout.decode_log_dir_event(layout.encode_log_dir_event(4)) == 4
    assert layout.decode_cluster_id(layout.encode_cluster_id("abc")) == "abc"
    assert layout.decode_producer_ids(layout.encode_producer_ids(1, 1000, 1999)) == (1, 1000, 1999)


def test_empty_config_znode_has_no_settings() -> None:
    assert layout.decode_config(b"") == {}


def test_derived_topic_id_depends_on_name_and_czxid_only() -> None:
    found = {layout.topic_id_of_node(topic, czxid) for topic in "tu" for czxid in range(500)}
    assert len(found) == 1000
    assert layout.topic_id_of_node("t", 7) == layout.topic_id_of_node("t", 7)
    assert all(uuid.UUID(bytes=topic_id).version == 4 for topic_id in found)
    assert not any(layout.topic_id_text(topic_id).startswith("-") for topic_id in found)


def test_topic_id_has_kafkas_base64_text_form() -> None:
    topic_id = bytes.fromhex("fbff000102030405060708090a0b0c0d")
    text = layout.topic_id_text(topic_id)
    assert len(text) == 22
    assert text.startswith("-_8AAQ")
    assert layout.parse_topic_id(text) == topic_id


@pytest.mark.parametrize("text", ["", "short", "A" * 23, "A" * 21 + "!", "ä" * 22])
def test_invalid_text_of_a_topic_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="22 characters"):
        layout.parse_topic_id(text)


DECODERS: dict[str, Any] = {
    "broker": lambda data: layout.decode_broker(1, data, STAT),
    "topic": layout.decode_topic,
    "state": lambda data: layout.decode_state(data, 0),
    "controller": layout.decode_controller,
    "config": layout.decode_config,
    "isr_change": layout.decode_isr_change,
    "log_dir_event": layout.decode_log_dir_event,
    "cluster_id": layout.decode_cluster_id,
    "producer_ids": layout.decode_producer_ids,
}
MALFORMED = [
    b" ",
    b"\xff",
    b"7",
    b"[]",
    b"{",
    b"{}",
    b"[" * 100_000,
    b'{"endpoints":7,"partitions":7,"isr":7,"brokerid":"1","config":7,"broker":true,"id":1}',
    b'{"endpoints":[7],"partitions":[7],"isr":["1"],"leader":1,"leader_epoch":1,"config":{"a":1}}',
    b'{"endpoints":["PLAINTEXT://h:1"],"partitions":{"a":[1]},"isr":[1],"leader":true}',
    b'{"partitions":{"0":[1,1]},"block_start":1,"block_end":"x"}',
    b'{"partitions":{"0":[]},"block_start":"-5","block_end":"4"}',
    b'{"partitions":{"0":[1]},"topic_id":7}',
    b'{"partitions":[{"topic":"t","partition":"0"}]}',
    b'{"endpoints":["PLAINTEXT://h:1","CONTROLLER://h:2"],"rack":7}',
    b'{"partitions":{"0":[1,2147483648]},"leader":1,"leader_epoch":2147483648,"isr":[1],"controller_epoch":1}',
    b'{"partitions":{"2147483648":[1]},"leader":1,"leader_epoch":1,"isr":[1,2147483648],"controller_epoch":1}',
    b'{"partitions":[{"topic":"t","partition":2147483648,"replicas":[1]}],"brokerid":2147483648,"broker":2147483648}',
    b'{"partitions":{"%s":[1]}}' % (b"9" * 5_000),
    b'{"partitions":{"0":[1,-2]},"leader":1,"leader_epoch":0,"isr":[1,-2],"controller_epoch":1}',
    b'{"endpoints":["PLAINTEXT://h:0","CONTROLLER://h:2"],"leader":-3,"isr":[],"leader_epoch":1}',
    b'{"endpoints":["PLAINTEXT://\xc3\xa4:1","CONTROLLER://h:2"],"leader":1,"isr":[1],"leader_epoch":-1,'
    b'"controller_epoch":1}',
    b'{"endpoints":["PLAINTEXT://h:1","CONTROLLER://h:2"],"rack":"a\\nb"}',
]


FIELDS = sorted(set(re.findall(r'"([a-z_]+)":', b"".join(MALFORMED).decode(errors="replace"))))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=10,
)


def with_malformed(test: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Also run a property-based test with every example in `MALFORMED`."""
    for data in MALFORMED:
        test = example(data)(test)
    return test


@settings(max_examples=200, deadline=None)
@with_malformed
@given(st.binary(max_size=50) | JSON.map(lambda value: json.dumps(value).encode()))
def test_malformed_znode_data_raises_value_error(data: bytes) -> None:
    """The error message contains no path, because the caller adds the node's path."""
    for name, decode in DECODERS.items():
        refused = None
        try:
            decode(data)
        except ValueError as error:
            refused = error
        assert refused or data not in MALFORMED, name
        if refused:
            assert type(refused) is ValueError, name
            assert re.search(r"\w", str(refused)), name
            assert "/brokers" not in str(refused), name


@pytest.mark.row("A11")
@pytest.mark.parametrize("broker", [2**31, -(2**31), 10**30])
def test_broker_id_out_of_range_is_refused_in_reassignments_and_registrations(broker: int) -> None:
    """If a topic's node had a replica with this broker id, no broker could encode a Metadata response."""
    asked = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,%d]}]}' % broker
    with pytest.raises(ValueError, match="32 bits"):
        layout.decode_reassignments(asked)
    registration = layout.encode_broker(Broker(1, endpoints("h", 1, "h", 2)))
    with pytest.raises(ValueError, match="is above"):
        layout.decode_broker(abs(broker), registration, STAT)


@pytest.mark.row("R71")
def test_config_change_notification_has_kafkas_form_and_version_1_is_decoded() -> None:
    data = layout.encode_config_change("brokers", layout.ALL_BROKERS)
    assert data == b'{"version":2,"entity_path":"brokers/<default>"}'
    assert layout.decode_config_change(data) == ("brokers", "<default>")
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert layout.decode_config_change(old) == ("topics", "t")
    assert layout.decode_config_change(b'{"entity_path":"users/u/clients/c"}')[0] == "users"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"entity_path":"topics"}',
        b'{"entity_path":"/t"}',
        b'{"entity_path":"topics/"}',
        b'{"entity_path":7}',
        b'{"entity_type":"topics"}',
        b'{"entity_type":"topics","entity_name":7}',
    ],
)
def test_config_change_notification_without_an_entity_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        layout.decode_config_change(data)
