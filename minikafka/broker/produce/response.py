"""The response to a Produce request: results, bad records (KIP-467), and current leaders (KIP-951)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from minikafka.base.errors import ErrorCode
from minikafka.base.model import BrokerId, Node, TopicPartition
from minikafka.broker.replicas.refusals import Refusals
from minikafka.kafka.wire.current_leaders import CurrentLeaders
from minikafka.kafka.wire.produce import (
    LEADERS_SINCE,
    NO_TEXTS,
    PartitionAnswer,
    encode_response,
    single_answer,
)
from minikafka.storage.replication.purgatory import Pack, PendingPartition

Topics: TypeAlias = list[tuple[bytes, list[PendingPartition]]]
"""The topics of one Produce request, each with the results of its partitions."""
FindLeader: TypeAlias = Callable[[bytes, int], tuple[tuple[BrokerId, int], Node | None]]
"""(topic, partition number) -> the result of `Refusals.leader`."""
_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def leader_finder(refusals: Refusals, listener: str) -> FindLeader:
    """Return the function that finds the current leaders for clients of this listener."""

    def find(topic: bytes, number: int) -> tuple[tuple[BrokerId, int], Node | None]:
        return refusals.leader(TopicPartition(_text(topic), number), listener)

    return find


def encoder(
    topics: Topics, correlation: int, version: int, find_leader: FindLeader
) -> Callable[[], bytes]:
    """Return a function that encodes the response with the results that `topics` holds when the function is called."""

    def encode() -> bytes:
        rows = [(topic, [_row(topic, part) for part in parts]) for topic, parts in topics]
        return encode_response(correlation, version, rows, _leaders(rows, version, find_leader))

    return encode


def single_pack(topic: bytes, number: int, version: int, find_leader: FindLeader) -> Pack:
    """Return the function that encodes a response for this partition alone."""
    refuse = partial(_refuse, topic, number, version, find_leader)
    return single_answer(topic, number, version, refuse)


def _refuse(
    topic: bytes,
    number: int,
    version: int,
    find_leader: FindLeader,
    correlation: int,
    error: int,
) -> bytes:
    rows = [(topic, [PartitionAnswer(number, error)])]
    return encode_response(correlation, version, rows, _leaders(rows, version, find_leader))


def _row(topic: bytes, part: PendingPartition) -> PartitionAnswer:
    start = part.partition.log.log_start_offset if part.partition is not None else -1
    texts = NO_TEXTS
    if part.bad_records is not None:
        texts = part.bad_records.texts(f"{_text(topic)}-{part.number}")
    return PartitionAnswer(
        part.number, part.error, part.base_offset, part.append_time, start, texts
    )


def _leaders(
    topics: Sequence[tuple[bytes, Sequence[PartitionAnswer]]], version: int, find: FindLeader
) -> CurrentLeaders | None:
    """Return the current leaders of the partitions that this broker does not lead."""
    if version < LEADERS_SINCE:
        return None
    leaders = CurrentLeaders()
    for topic, rows in topics:
        for row in rows:
            if row.error == _NOT_LEADER:
                leaders.add(topic, row.partition, *find(topic, row.partition))
    return leaders


def _text(topic: bytes) -> str:
    return topic.decode("utf-8", "replace")
