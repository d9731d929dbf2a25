"""The paths and the texts of the nodes of the leader-coordinated mode.

This module does no I/O. Texts are as short as in the design: `1,2,3` for brokers, `1,2;7` with an epoch, one line of
JSON for a request. Anyone may write to ZooKeeper, so every text is checked. A malformed text raises ValueError; the
message describes the fault, and the caller adds the path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from minikafka.base.config.keys import INT_MAX
from minikafka.base.model import BrokerId, Epoch, TopicPartition, topic_id_text
from minikafka.base.names import parse_json, parse_number, parse_topic, parse_topic_id
from minikafka.deciders.leaders.model import FROM_ADMINISTRATOR, Operation, Replicas, StateChange

ROOT: Final = "/leaders"
"""The subtree of the mode. Everything else in ZooKeeper is shared with the controller mode, or belongs to it."""
BROKER_IDS: Final = f"{ROOT}/brokers/ids"
TOPICS: Final = f"{ROOT}/brokers/topics"
REASSIGNMENTS: Final = f"{ROOT}/brokers/partitions_reassigned"
QUEUES: Final = f"{ROOT}/brokers/state"
ENTRY_PREFIX: Final = "q-"
"""Name of a sequential node; ZooKeeper adds a number of 32 bits, of at least ten characters."""

PERSISTENT: Final = (BROKER_IDS, TOPICS, REASSIGNMENTS, QUEUES)
"""Nodes that every broker creates at its start if they are absent."""

_EPOCH_MAX: Final = INT_MAX - 1
"""The greatest epoch after which another leader can be elected."""
_ENTRY: Final = re.compile(r"q-(-?[0-9]{1,10})")
_NUMBERS: Final = 1 << 32
"""ZooKeeper numbers sequential nodes with a signed number of 32 bits, which starts again after its maximum."""
_ID_CHARACTERS: Final = 22
_NO_PARTITION: Final = TopicPartition("", -1)


# Paths.


def topic_path(topic: str) -> str:
    """Return the path of the node with a topic's id, the parent of its partitions."""
    return f"{TOPICS}/{topic}"


def partition_path(tp: TopicPartition) -> str:
    """Return the path of the parent of a partition's nodes."""
    return f"{TOPICS}/{tp.topic}/{tp.partition}"


def replicas_path(tp: TopicPartition) -> str:
    """Return the path of the node with a partition's assigned replicas."""
    return f"{partition_path(tp)}/replicas"


def leader_path(tp: TopicPartition) -> str:
    """Return the path of the ephemeral node with a partition's leader."""
    return f"{partition_path(tp)}/leader"


def isr_path(tp: TopicPartition) -> str:
    """Return the path of the node with a partition's in-sync replicas."""
    return f"{partition_path(tp)}/ISR"


def reassignments_path(topic: str) -> str:
    """Return the path of the parent of the reassignments of a topic's partitions."""
    return f"{REASSIGNMENTS}/{topic}"


def reassignment_path(tp: TopicPartition) -> str:
    """Return the path of the node with the new replicas of a partition."""
    return f"{REASSIGNMENTS}/{tp.topic}/{tp.partition}"


def queue_path(broker_id: BrokerId) -> str:
    """Return the path of the parent of the requests to a broker."""
    return f"{QUEUES}/{broker_id}"


# Texts of partitions and topics.


def encode_ids(ids: Iterable[BrokerId]) -> bytes:
    """Return the text of a list of brokers, empty for none."""
    return ",".join(map(str, ids)).encode()


def encode_isr(ids: Iterable[BrokerId], epoch: Epoch) -> bytes:
    """Return the text of a node `ISR`. `epoch`: the epoch of the partition's last leader."""
    return encode_ids(ids) + b";%d" % epoch


def encode_leader(broker_id: BrokerId, epoch: Epoch) -> bytes:
    """Return the text of a node `leader`."""
    return b"%d;%d" % (broker_id, epoch)


def encode_topic(topic_id: bytes) -> bytes:
    """Return the text of a topic's node: the topic id as Kafka prints it."""
    return topic_id_text(topic_id).encode()


@lru_cache(maxsize=4096)
def decode_replicas(data: bytes) -> Replicas:
    """Return the brokers in a node `replicas`: at least one. Raises ValueError."""
    ids = decode_reassignment(data)
    if not ids:
        raise ValueError("the list of brokers is empty")
    return ids


def decode_reassignment(data: bytes) -> Replicas:
    """Return the brokers in the node of a reassignment, () for an empty node. Raises ValueError."""
    text = _text(data)
    ids = tuple(map(parse_number, text.split(","))) if text else ()
    if len(set(ids)) < len(ids):
        raise ValueError(f"{text[:60]!a} lists a broker twice")
    return ids


@lru_cache(maxsize=4096)
def decode_isr(data: bytes) -> tuple[Replicas, Epoch]:
    """Return the in-sync replicas, at least one, and the epoch of a node `ISR`. Raises ValueError."""
    ids, epoch = _split(data)
    return decode_replicas(ids.encode()), epoch


@lru_cache(maxsize=4096)
def decode_leader(data: bytes) -> tuple[BrokerId, Epoch]:
    """Return the leader and its epoch in a node `leader`. Raises ValueError."""
    broker_id, epoch = _split(data)
    return parse_number(broker_id), epoch


@lru_cache(maxsize=4096)
def decode_topic(data: bytes) -> bytes:
    """Return the 16-byte topic id in a topic's node. Raises ValueError."""
    text = _text(data)
    if len(text) != _ID_CHARACTERS:
        raise ValueError(f"{text[:60]!a} is not a topic id of 22 characters of URL-safe base64")
    return parse_topic_id(text)


def _split(data: bytes) -> tuple[str, Epoch]:
    """Return the text before the semicolon, and the epoch after it."""
    text = _text(data)
    before, semicolon, epoch = text.partition(";")
    if not semicolon:
        raise ValueError(f"{text[:60]!a} has no epoch after a semicolon")
    return before, parse_number(epoch, _EPOCH_MAX)


def _text(data: bytes) -> str:
    return data.decode("ascii", "replace")


# Requests.


def encode_request(request: StateChange) -> bytes:
    """Return the text of a state-change request: one line of JSON."""
    fields = {
        "operation": request.operation.value,
        "topic": request.tp.topic,
        "topic_id": None if request.topic_id is None else topic_id_text(request.topic_id),
        "partition": request.tp.partition,
        "epoch": request.epoch,
        "sender": request.sender,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_request(data: bytes) -> StateChange:
    """Return the state-change request of a queue's entry. Raises ValueError."""
    fields = parse_json(data)
    name = fields.get("operation")
    if name not in tuple(Operation):
        raise ValueError(f"operation is not one of {', '.join(Operation)}")
    topic_id = fields.get("topic_id")
    if topic_id is not None and type(topic_id) is not str:
        raise ValueError("topic_id is not a string")
    return StateChange(
        operation := Operation(name),
        _NO_PARTITION if operation is Operation.RESCAN else _partition(fields),
        None if topic_id is None else decode_topic(topic_id.encode("ascii", "replace")),
        _number(fields, "epoch", FROM_ADMINISTRATOR),
        _number(fields, "sender", FROM_ADMINISTRATOR),
    )


def _partition(fields: dict[str, Any]) -> TopicPartition:
    return TopicPartition(parse_topic(fields.get("topic")), _number(fields, "partition", 0))


def _number(fields: dict[str, Any], name: str, low: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not low <= value <= INT_MAX:
        raise ValueError(f"{name} is not a whole number from {low} to {INT_MAX}")
    return value


# Names of entries.


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of entries in the order of their creation. Each name must have a number (`entry_number`).

    The numbers start again at -2^31 after 2^31 - 1, and reach 0 again. The entries of one queue are close together, so
    that the order is known: of two numbers, the later one is less than 2^31 steps ahead.
    """
    numbers = {name: entry_number(name) for name in names}
    if not numbers:
        return []
    behind = next(iter(numbers.values())) - _NUMBERS // 2
    return sorted(numbers, key=lambda name: ((numbers[name] - behind) % _NUMBERS, name))


def entry_number(name: str) -> int:
    """Return the number in the name of a queue's entry. Raises ValueError for a name that ZooKeeper did not make."""
    matched = _ENTRY.fullmatch(name)
    number = _NUMBERS if matched is None else int(matched[1])
    if not -_NUMBERS // 2 <= number < _NUMBERS // 2:
        raise ValueError("the name is not q- and a number of 32 bits")
    return number
