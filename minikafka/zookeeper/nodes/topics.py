"""Topic nodes under `/brokers/topics`: the topic id and the replica assignment of each topic (A9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minikafka.base.model import ReplicaAssignment
from minikafka.base.ports import Create, Set, ZooKeeper
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.nodes.reader import NodeReader


class Topic(NamedTuple):
    """The content of a topic node. A topic created by an old tool has no id until the controller adds an id."""

    topic_id: bytes | None
    assignment: dict[int, ReplicaAssignment]


def name_of(path: str) -> str:
    """Return the name of the topic whose node has this path."""
    return path.rpartition("/")[2]


def decode(data: bytes) -> Topic:
    """Return the content of a topic node. Raises ValueError if the node is not readable."""
    return Topic(*layout.decode_topic(data))


def creation(topic: str, topic_id: bytes, assignment: Mapping[int, ReplicaAssignment]) -> Create:
    """Return the operation that creates a topic's node."""
    return Create(layout.topic_path(topic), layout.encode_topic(topic_id, assignment))


def replacement(topic: str, content: Topic, version: int) -> Set:
    """Return the operation that replaces the content of a topic's node if the node has this version."""
    return Set(layout.topic_path(topic), layout.encode_topic(*content), version)


async def names(zookeeper: ZooKeeper) -> list[str]:
    """Return the names of all topics. Raises CoordinationError."""
    found, _ = await zookeeper.children(layout.TOPICS)
    return found


async def existing(nodes: NodeReader, topics: Sequence[str]) -> set[str]:
    """Return the names in `topics` that are existing topics. Raises CoordinationError."""
    found = await nodes.get_many([layout.topic_path(topic) for topic in topics])
    return {topic for topic, node in zip(topics, found, strict=True) if node is not None}
