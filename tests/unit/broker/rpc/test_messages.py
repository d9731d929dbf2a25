"""Controller RPC bodies: round trips through msgpack, and bodies that are refused."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from support.brokers.endpoints import endpoints

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    Broker,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsrRequest,
    PartitionState,
    RequestedTopic,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.broker.rpc import fields, messages

STATE = PartitionState(
    TopicPartition("orders", 3),
    leader=1,
    leader_epoch=7,
    isr=(1, 2),
    state_version=9,
    controller_epoch=4,
    replicas=(1, 2, 3),
    adding=(3,),
    removing=(2,),
    is_new=True,
)
BROKERS = (
    Broker(1, endpoints("127.0.0.1", 9092, "127.0.0.1", 19092), epoch=2**40, rack="a"),
    Broker(2, endpoints("::1", 9093, "host-2.example", 19093)),
)
TOPIC_IDS = (("orders", bytes(range(16))),)
LEADER_AND_ISR = LeaderAndIsrRequest(1, 4, 2**40, (STATE,), BROKERS, TOPIC_IDS)
UPDATE_METADATA = UpdateMetadataRequest(
    1,
    4,
    2**40,
    (
        PartitionState(
            TopicPartition("orders", 0),
            LEADER_DURING_DELETE,
            EPOCH_DURING_DELETE,
            (),
            0,
            4,
            (1, 2),
            offline=(2,),
        ),
    ),
    BROKERS,
    (),
    suspects=(2,),
)
STOP_REPLICA = StopReplicaRequest(
    1,
    4,
    -1,
    (
        StopReplicaPartition(TopicPartition("orders", 0), EPOCH_DURING_DELETE, delete=True),
        StopReplicaPartition(TopicPartition("orders", 1), 8, delete=False),
    ),
)


def over_the_wire(body: dict[str, Any]) -> Any:
    return msgpack.unpackb(msgpack.packb(body))


@pytest.mark.parametrize("request_", [LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA])
def test_request_from_the_controller_decodes_to_what_was_encoded(
    request_: ControllerRequest,
) -> None:
    method, body = messages.encode(request_)
    assert messages.decode(method, over_the_wire(body)) == request_


def test_response_decodes_to_what_was_encoded() -> None:
    response = ControllerResponse(
        ErrorCode.STALE_CONTROLLER_EPOCH,
        ((TopicPartition("orders", 0), ErrorCode.NONE), (TopicPartition("orders", 1), 56)),
    )
    body = over_the_wire(messages.encode_response(response))
    assert messages.decode_response(body) == response


def test_request_to_the_controller_decodes_to_what_was_encoded() -> None:
    shutdown = over_the_wire(messages.encode_registration(2, 77))
    assert messages.decode_registration(shutdown) == (2, 77)
    remaining = [TopicPartition("orders", 1)]
    answer = over_the_wire(messages.encode_remaining(remaining))
    assert messages.decode_remaining(answer) == remaining
    topics = [RequestedTopic("orders", 6, 3, configs={"cleanup.policy": "compact"})]
    asked = over_the_wire(messages.encode_create_topics(topics))
    assert messages.decode_create_topics(asked) == topics
    created = over_the_wire(messages.encode_created([("orders", ErrorCode.NONE), ("old", 36)]))
    assert messages.decode_created(created) == {"orders": 0, "old": 36}


def test_calls_that_block_an_operation_at_a_named_step_decode_to_what_was_encoded() -> None:
    step = "controlled-shutdown.leaders-moved"
    assert messages.decode_step(over_the_wire(messages.encode_step(step))) == step
    asked = over_the_wire(messages.encode_steps(step, 2_000))
    assert messages.decode_steps(asked) == (step, 2_000)
    answer = over_the_wire(messages.encode_gate_state({step: None}, [step]))
    assert messages.decode_gate_state(answer) == ([step], [step])


def test_broker_configuration_and_its_changes_decode_to_what_was_encoded() -> None:
    settings = {"log.dirs": "/a b,/c", "broker.rack": ""}
    assert messages.decode_settings(over_the_wire(messages.encode_settings(settings))) == settings
    changes = [messages.SettingChange("broker.rack", None, "b\nc", "restart")]
    assert messages.decode_changes(over_the_wire(messages.encode_changes(changes))) == changes


@pytest.mark.parametrize(
    "body",
    [
        {"settings": [["log.dirs", 1]]},
        {"settings": [["Log Dirs", "1"]]},
        {"settings": [["log.dirs"]]},
        {"settings": {}},
        {},
    ],
)
def test_malformed_broker_configuration_is_refused(body: object) -> None:
    with pytest.raises(KafkaError):
        messages.decode_settings(body)


@pytest.mark.parametrize(
    "body",
    [{"step": "a.b", "wait_ms": 60_001}, {"step": "a b", "wait_ms": 1}, {"wait_ms": 1}, None],
)
def test_malformed_call_for_the_steps_at_which_operations_block_is_refused(body: object) -> None:
    with pytest.raises(KafkaError):
        messages.decode_steps(body)


def refused(method: str, body: object) -> bool:
    with pytest.raises(KafkaError) as caught:
        messages.decode(method, body)
    return caught.value.code is ErrorCode.INVALID_REQUEST


def test_unknown_method_is_refused() -> None:
    assert refused("drop_everything", {})
    assert refused(messages.STATE, {})


@pytest.mark.parametrize("body", [None, [], b"x", 3])
def test_controller_request_that_is_no_map_is_refused(body: object) -> None:
    for method in messages.STATE_CHANGES:
        assert refused(method, body)


def test_suspects_that_are_no_broker_ids_are_refused() -> None:
    method, body = messages.encode(UPDATE_METADATA)
    assert refused(method, body | {"suspects": [-1]})
    assert refused(method, body | {"suspects": ["2"]})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("controller_id", -2),
        ("controller_id", "1"),
        ("controller_id", True),
        ("controller_epoch", -2),
        ("controller_epoch", 2**31),
        ("broker_epoch", 2**63),
        ("broker_epoch", 1.5),
        ("partitions", None),
        ("partitions", {"0": 1}),
        ("partitions", [[]]),
        ("partitions", [None]),
        ("brokers", [[1, "h", 1, "h", 1, 0]]),
        ("brokers", [[1, "", 1, "h", 1, 0, None]]),
        ("brokers", [[1, "h", 0, "h", 1, 0, None]]),
        ("brokers", [[1, "h", 1, "h", 65536, 0, None]]),
        ("brokers", [[1, "h\n", 1, "h", 1, 0, None]]),
        ("brokers", [[1, "h", 1, "h", 1, 0, "r\n"]]),
        ("topic_ids", [["orders", b"short"]]),
        ("topic_ids", [["orders", "0123456789abcdef"]]),
    ],
)
def test_field_of_the_wrong_type_is_refused(key: str, value: object) -> None:
    method, body = messages.encode(LEADER_AND_ISR)
    assert refused(method, body | {key: value})


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (0, "../etc"),
        (0, ".."),
        (0, "."),
        (0, ""),
        (0, "a" * 250),
        (0, "a/b"),
        (0, "a\n"),
        (0, b"orders"),
        (1, -1),
        (1, 2**31),
        (2, -3),
        (3, -3),
        (4, [-1]),
        (4, [1] * (messages.REPLICAS_MAX + 1)),
        (4, 1),
        (5, -2),
        (7, None),
        (11, 1),
    ],
)
def test_partition_with_an_invalid_field_is_refused(index: int, value: object) -> None:
    method, body = messages.encode(LEADER_AND_ISR)
    body["partitions"][0][index] = value
    assert refused(method, body)


def test_partition_list_beyond_the_limit_is_refused_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fields, "ROWS_MAX", 2)
    method, body = messages.encode(STOP_REPLICA)
    assert refused(method, body | {"partitions": [None] * 3})


def test_topic_names_that_kafka_allows_are_decoded() -> None:
    for name in ("a", "__consumer_offsets", "A.b-c_9", "...", "a" * 249):
        method, body = messages.encode(STOP_REPLICA)
        body["partitions"][0][0] = name
        assert messages.decode(method, body)


def test_partitions_for_several_brokers_are_encoded_once() -> None:
    shared = messages.SharedRows()
    first = messages.encode(LEADER_AND_ISR, shared)[1]["partitions"]
    again = messages.encode(LEADER_AND_ISR, shared)[1]["partitions"]
    assert again is first
    assert messages.encode(LEADER_AND_ISR)[1]["partitions"] == first


@pytest.mark.parametrize("value", [0, None, False, "", {}])
@pytest.mark.parametrize("index", [8, 9, 10])
def test_broker_ids_must_be_a_list(index: int, value: object) -> None:
    method, body = messages.encode(LEADER_AND_ISR)
    body["partitions"][0][index] = value
    assert refused(method, body)


def test_broker_ids_encoded_as_bool_or_float_decode_to_integers() -> None:
    method, body = messages.encode(LEADER_AND_ISR)
    row = body["partitions"][0]
    row[4], row[7] = [1, 2], [True, 2.0]
    decoded = messages.decode(method, body)
    assert isinstance(decoded, LeaderAndIsrRequest)
    assert [type(id_) for id_ in decoded.partitions[0].replicas] == [int, int]
