"""The offset that Spark keeps in a checkpoint: a position for each partition, as JSON.

`{"events": {"0": {"offset": 23, "leaderEpoch": 4, "topicId": "Xv…"}}}`: 23 is the next offset to read, 4
the epoch in which the leader answered when this offset was planned. Every record below 23 has epoch 4 or a
lower one. So if a log was truncated below 23, its epoch 4 ends below 23 (KIP-320). A topic that was deleted
and created again has another id (KIP-516). Older checkpoints, and topics without an id, lack `topicId`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.spark.wire.leaders import Position

Positions: TypeAlias = dict[TopicPartition, Position]


def to_json(positions: Mapping[TopicPartition, Position]) -> dict[str, Any]:
    """Return the positions as a JSON object in a fixed order, so that equal positions give equal text."""
    tree: dict[str, Any] = {}
    for tp in sorted(positions):
        offset, epoch, topic_id = positions[tp]
        facts = {"offset": offset, "leaderEpoch": epoch} | (
            {"topicId": topic_id} if topic_id else {}
        )
        tree.setdefault(tp.topic, {})[str(tp.partition)] = facts
    return tree


def from_json(tree: Mapping[str, Any]) -> Positions:
    """Return the positions of a checkpoint. Raises `ConfigError` if another source wrote it."""
    try:
        return {
            TopicPartition(topic, int(partition)): Position(
                int(found["offset"]), int(found["leaderEpoch"]), str(found.get("topicId", ""))
            )
            for topic, partitions in tree.items()
            for partition, found in partitions.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the checkpoint holds offsets of another source: {dict(tree)}; use a new checkpoint"
        ) from error


def behind(read: Mapping[str, Any], latest: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return how many offsets each partition of the JSON `latest` is ahead of `read`, at least 0.

    A partition that was not read yet is left out, as in Spark's own source.
    """
    done, ends = from_json(read), from_json(latest)
    return {tp: max(ends[tp].offset - at.offset, 0) for tp, at in done.items() if tp in ends}
