"""Our encoding of Kafka's ConsumerProtocol, compared with the encodings of kafka-python and aiokafka."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.client.groups.protocol import (
    NO_GENERATION,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

A0, A2, B1 = TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)
SUBSCRIPTION = Subscription(("a", "b"), b"data", (A0, A2, B1), 7, "rack-1")


def test_encoded_subscription_has_the_bytes_of_kafkas_consumer_protocol() -> None:
    assert encode_subscription(SUBSCRIPTION) == (
        b"\0\3\0\0\0\2\0\1a\0\1b\0\0\0\4data"
        b"\0\0\0\2\0\1a\0\0\0\2\0\0\0\0\0\0\0\2\0\1b\0\0\0\1\0\0\0\1"
        b"\0\0\0\7\0\6rack-1"
    )


@pytest.mark.parametrize("given", [SUBSCRIPTION, Subscription(("a",)), Subscription(())])
def test_decoded_subscription_equals_the_encoded_one(given: Subscription) -> None:
    assert decode_subscription(encode_subscription(given)) == given


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscription_of_another_client_is_read_in_every_version(version: int) -> None:
    entry = ConsumerProtocolSubscription.TopicPartition
    data = ConsumerProtocolSubscription(
        version=version,
        topics=["a", "b"],
        user_data=b"data",
        owned_partitions=[entry(topic="a", partitions=[0, 2])] if version else [],
        generation_id=7 if version >= 2 else NO_GENERATION,
        rack_id="rack-1" if version >= 3 else None,
    ).encode()
    found = decode_subscription(bytes(data))
    assert found.topics == ("a", "b")
    assert found.user_data == b"data"
    assert found.owned == ((A0, A2) if version else ())
    assert found.generation == (7 if version >= 2 else NO_GENERATION)
    assert found.rack == ("rack-1" if version >= 3 else None)


def test_unknown_fields_of_a_later_subscription_version_are_ignored() -> None:
    later = b"\0\4" + encode_subscription(SUBSCRIPTION)[2:] + b"later"
    assert decode_subscription(later) == SUBSCRIPTION


def test_subscription_encoded_by_minikafka_is_decoded_by_other_clients() -> None:
    data = encode_subscription(SUBSCRIPTION)
    assert ConsumerProtocolMemberMetadata.decode(data).subscription == ["a", "b"]
    found = ConsumerProtocolSubscription.decode(data)
    assert (found.topics, found.generation_id, found.rack_id) == (["a", "b"], 7, "rack-1")
    assert [(o.topic, o.partitions) for o in found.owned_partitions] == [("a", [0, 2]), ("b", [1])]


def test_member_assignment_encoded_by_minikafka_is_decoded_by_other_clients() -> None:
    data = encode_assignment(Assignment((A0, A2, B1)))
    assert data == (
        b"\0\3\0\0\0\2\0\1a\0\0\0\2\0\0\0\0\0\0\0\2\0\1b\0\0\0\1\0\0\0\1\xff\xff\xff\xff"
    )
    partitions = [
        TopicPartition(*tp) for tp in ConsumerProtocolMemberAssignment.decode(data).partitions()
    ]
    assert partitions == [A0, A2, B1]
    found = ConsumerProtocolAssignment.decode(data)
    assert [(p.topic, p.partitions) for p in found.assigned_partitions] == [
        ("a", [0, 2]),
        ("b", [1]),
    ]
    assert decode_assignment(data) == Assignment((A0, A2, B1))


def test_empty_bytes_are_decoded_as_a_member_assignment_without_partitions() -> None:
    assert decode_assignment(b"") == Assignment(())


def test_names_that_are_not_utf_8_are_decoded_with_replacement_characters() -> None:
    subscription = (
        b"\0\3\0\0\0\1\0\3a\xff\xe2" + b"\xff" * 4 + bytes(4) + b"\xff" * 4 + b"\0\2r\xc3"
    )
    found = decode_subscription(subscription)
    assert (found.topics, found.rack) == (("a\ufffd\ufffd",), "r\ufffd")
    assignment = b"\0\0\0\0\0\1\0\2\xed\xa0\0\0\0\1\0\0\0\2" + b"\xff" * 4
    assert decode_assignment(assignment).partitions == (TopicPartition("\ufffd\ufffd", 2),)


@pytest.mark.parametrize("cut", [1, 4, 7, 12, 20, 30, -1])
def test_cut_off_subscription_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolViolation):
        decode_subscription(encode_subscription(SUBSCRIPTION)[:cut])


@pytest.mark.parametrize(
    "data",
    [b"\0\3\x7f\xff\xff\xff", b"\0\0\0\0\0\1\xff\xff"],
    ids=["count of more than the bytes", "topic that is null"],
)
def test_malformed_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_subscription(data)
