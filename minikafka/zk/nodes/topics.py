"""Topic nodes under `/brokers/topics`: the topic id and the replica assignment of each topic (A9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from minikafka.base.model import ReplicaAssignment
from minikafka.base.ports import Create, Set, ZooKeeper
from minikafka.zk import layout
from minikafka.zk.nodes.reader import NodeReader

DIRECTORY: Final = layout.TOPICS
"""Parent of the topic nodes. The name of each node is the topic's name."""


class Topic(NamedTuple):
    """The content of a topic node. A topic created by an old tool has no id until the controller adds an id."""

    topic_id: bytes | None
    assignment: dict[int, ReplicaAssignment]


def path_of(topic: str) -> str:
    """Return the path of a topic's node."""
    return layout.topic_path(topic)


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


def derived_id(topic: str, czxid: int) -> bytes:
    """Return the id of a topic whose node has no id, derived from the topic's name and the node's czxid.

    Every broker derives the same id.
    """
    return layout.topic_id_of_node(topic, czxid)


async def names(zookeeper: ZooKeeper) -> list[str]:
    """Return the names of all topics. Raises CoordinationError."""
    found, _ = await zookeeper.children(layout.TOPICS)
    return found


async def existing(nodes: NodeReader, topics: Sequence[str]) -> set[str]:
    """Return the names in `topics` that are existing topics. Raises CoordinationError."""
    found = await nodes.get_many([layout.topic_path(topic) for topic in topics])
    return {topic for topic, node in zip(topics, found, strict=True) if node is not None}
