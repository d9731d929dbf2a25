"""The offset that Spark stores in a checkpoint: a position for each partition, as JSON.

Example: `{"events": {"0": {"offset": 23, "leaderEpoch": 4, "topicId": "Xv…"}}}`. The next offset to read is
23. The leader epoch was 4 when this offset was planned, so every record below 23 has epoch 4 or lower. If
the log was truncated below 23, epoch 4 ends below 23 (KIP-320). If the topic was deleted and created again, the
topic id differs (KIP-516). Older checkpoints, and topics without an id, have no `topicId`.

Spark does not store the start of the first micro-batch, and asks for it again if this micro-batch is repeated after a
crash. The answer may have changed by then. So the end of the first micro-batch also has the start: `"start": 5`, or
`"start": null` for a partition that is read from its earliest offset.

Spark's own Kafka connector writes plain offsets: `{"events": {"0": 23}}`. They are read as positions without a leader
epoch and a topic id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.spark.wire.leaders import Position

Positions: TypeAlias = dict[TopicPartition, Position]

_START: Final = "start"


def to_json(
    positions: Mapping[TopicPartition, Position], first: Positions | None = None
) -> dict[str, Any]:
    """Return the positions as a JSON object in sorted order, so that equal positions give equal text.

    `first`: the start of the query, if the positions are the end of its first micro-batch.
    """
    tree: dict[str, Any] = {}
    for tp in sorted(positions):
        offset, epoch, topic_id = positions[tp]
        facts: dict[str, Any] = {"offset": offset, "leaderEpoch": epoch}
        if topic_id:
            facts["topicId"] = topic_id
        if first is not None:
            facts[_START] = first[tp].offset if tp in first else None
        tree.setdefault(tp.topic, {})[str(tp.partition)] = facts
    return tree


def from_json(tree: Mapping[str, Any]) -> Positions:
    """Return the positions in a checkpoint. Raises `ConfigError` if the offsets are from another source."""
    try:
        return {
            TopicPartition(topic, int(partition)): _position(found)
            for topic, partitions in tree.items()
            for partition, found in partitions.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the checkpoint holds offsets of another source: {dict(tree)}; use a new checkpoint"
        ) from error


def _position(found: Any) -> Position:
    if type(found) is int and found >= 0:
        return Position(found, -1)
    return Position(int(found["offset"]), int(found["leaderEpoch"]), str(found.get("topicId", "")))


def first_starts(end: Mapping[str, Any]) -> Positions | None:
    """Return the start in the end of a query's first micro-batch; None if the end has none.

    A partition without a position is read from its earliest offset. Offsets before version 0.1 have no start.
    """
    found = {tp: facts for tp, facts in _facts(end).items() if isinstance(facts, dict)}
    if end and not any(_START in facts for facts in found.values()):
        return None
    return {
        tp: Position(facts[_START], -1, str(facts.get("topicId", "")))
        for tp, facts in found.items()
        if facts.get(_START) is not None
    }


def is_plain(tree: Mapping[str, Any]) -> bool:
    """True if Spark's own Kafka connector has written these offsets. `tree`: offsets of at least one partition."""
    return any(isinstance(facts, int) for facts in _facts(tree).values())


def to_plain(tree: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return offsets in the form of Spark's own Kafka connector. Raises `ConfigError` as `from_json`."""
    return plain(from_json(tree))


def plain(positions: Positions) -> dict[str, dict[str, int]]:
    """Return the offsets of positions in the form of Spark's own Kafka connector."""
    found: dict[str, dict[str, int]] = {}
    for tp in sorted(positions):
        found.setdefault(tp.topic, {})[str(tp.partition)] = positions[tp].offset
    return found


def _facts(tree: Mapping[str, Any]) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(topic, int(partition)): facts
        for topic, partitions in tree.items()
        for partition, facts in partitions.items()
    }


def behind(read: Mapping[str, Any], latest: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return the lag of each partition: the offset in `latest` minus the offset in `read`, at least 0.

    Partitions that are missing in `read` or in `latest` are left out. Spark's own source also leaves out the
    partitions that are missing in `read`.
    """
    done, ends = from_json(read), from_json(latest)
    return {tp: max(ends[tp].offset - at.offset, 0) for tp, at in done.items() if tp in ends}
