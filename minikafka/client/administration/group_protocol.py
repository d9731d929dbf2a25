"""The assignment that the leader of a consumer group sends to each member (Kafka's ConsumerProtocol).

Brokers store these bytes without reading them, so all clients use the same encoding. The bytes begin with a
version; versions 1 to 3 have the same fields as version 0. A reader ignores the bytes after the fields that it knows.
As in Kafka, bytes that are not UTF-8 become U+FFFD in names.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.messages.decoder import decode
from minikafka.messages.table import record

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumers in JoinGroup; Kafka Connect, for example, uses another type."""
_VERSION_BYTES: Final = 2


class Assignment(NamedTuple):
    """The partitions of one member. `user_data` belongs to the assignor."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def decode_assignment(data: bytes) -> Assignment:
    """Return the assignment in `data`, of any version. Empty `data` means no partitions.

    Raises ProtocolViolation.
    """
    if not data:
        return Assignment(())
    assignment = record("ConsumerProtocolAssignment")
    found = decode(assignment, assignment.versions.low, data, _VERSION_BYTES, len(data))
    partitions = tuple(
        TopicPartition(topic.topic, number)
        for topic in found.assigned_partitions
        for number in topic.partitions
    )
    return Assignment(partitions, found.user_data)
