"""Assignments of group members, as other clients encode them."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.client.administration.group_admin import Assignment, decode_assignment

A0, A2, B1 = TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)
DATA = b"\0\3\0\0\0\2\0\1a\0\0\0\2\0\0\0\0\0\0\0\2\0\1b\0\0\0\1\0\0\0\1\xff\xff\xff\xff"
"""The partitions a-0, a-2 and b-1 in version 3, without user data."""


def test_member_assignment_of_other_clients_is_decoded() -> None:
    assert decode_assignment(DATA) == Assignment((A0, A2, B1))
    partitions = [("a", [0, 2]), ("b", [1])]
    data = ConsumerProtocolMemberAssignment(0, partitions, b"data").encode()
    assert decode_assignment(data) == Assignment((A0, A2, B1), b"data")
    found = ConsumerProtocolAssignment.decode(DATA)
    assert [(p.topic, p.partitions) for p in found.assigned_partitions] == partitions


def test_empty_bytes_are_decoded_as_a_member_assignment_without_partitions() -> None:
    assert decode_assignment(b"") == Assignment(())


def test_fields_of_a_later_version_are_ignored() -> None:
    assert decode_assignment(b"\0\4" + DATA[2:] + b"later") == Assignment((A0, A2, B1))


def test_names_that_are_not_utf_8_are_decoded_with_replacement_characters() -> None:
    assignment = b"\0\0\0\0\0\1\0\2\xed\xa0\0\0\0\1\0\0\0\2" + b"\xff" * 4
    assert decode_assignment(assignment).partitions == (TopicPartition("\ufffd\ufffd", 2),)


@pytest.mark.parametrize("cut", [1, 4, 7, 12, 20, 30, -1])
def test_cut_off_assignment_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolViolation):
        decode_assignment(DATA[:cut])


@pytest.mark.parametrize(
    "data",
    [b"\0\3\x7f\xff\xff\xff", b"\0\0\0\0\0\1\xff\xff"],
    ids=["count of more than the bytes", "topic that is null"],
)
def test_malformed_assignment_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_assignment(data)
