"""The offset that Spark stores in a checkpoint: a position for each partition, as JSON.

Example: `{"events": {"0": {"offset": 23, "leaderEpoch": 4, "topicId": "Xv…"}}}`. The next offset to read is
23. The leader epoch was 4 when this offset was planned, so every record below 23 has epoch 4 or lower. If
the log was truncated below 23, epoch 4 ends below 23 (KIP-320). If the topic was deleted and created again, the
topic id differs (KIP-516). Older checkpoints, and topics without an id, have no `topicId`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.spark.wire.leaders import Position

Positions: TypeAlias = dict[TopicPartition, Position]


def to_json(positions: Mapping[TopicPartition, Position]) -> dict[str, Any]:
    """Return the positions as a JSON object in sorted order, so that equal positions give equal text."""
    tree: dict[str, Any] = {}
    for tp in sorted(positions):
        offset, epoch, topic_id = positions[tp]
        facts = {"offset": offset, "leaderEpoch": epoch} | (
            {"topicId": topic_id} if topic_id else {}
        )
        tree.setdefault(tp.topic, {})[str(tp.partition)] = facts
    return tree


def from_json(tree: Mapping[str, Any]) -> Positions:
    """Return the positions in a checkpoint. Raises `ConfigError` if the offsets are from another source."""
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
    """Return the lag of each partition: the offset in `latest` minus the offset in `read`, at least 0.

    Partitions that are missing in `read` or in `latest` are left out. Spark's own source also leaves out the
    partitions that are missing in `read`.
    """
    done, ends = from_json(read), from_json(latest)
    return {tp: max(ends[tp].offset - at.offset, 0) for tp, at in done.items() if tp in ends}
