"""Committed offsets: requests that write, read and delete them, and the parsing of the responses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from minikafka.base.errors import ErrorCode
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import TopicPartition
from minikafka.client.metadata import error_code
from minikafka.client.network import request
from minikafka.kafka.wire import versions


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the offset of the next record to read. `metadata` is any text."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def commit_request(group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Any:
    """Return an OffsetCommit request of a client that is not a member. Only an empty group accepts it."""
    topics: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for tp, committed in offsets.items():
        topics[tp.topic].append(
            {
                "partition_index": tp.partition,
                "committed_offset": committed.offset,
                "committed_leader_epoch": committed.leader_epoch,
                "committed_metadata": committed.metadata,
            }
        )
    return request(
        versions.OFFSET_COMMIT,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": topic, "partitions": some} for topic, some in topics.items()],
    )


def fetch_request(group: str, partitions: Iterable[TopicPartition] | None) -> Any:
    """Return an OffsetFetch request for these partitions (None: all with a committed offset)."""
    topics = None
    if partitions is not None:
        topics = [
            {"name": topic, "partition_indexes": numbers}
            for topic, numbers in by_topic(partitions).items()
        ]
    return request(
        versions.OFFSET_FETCH,
        groups=[{"group_id": group, "topics": topics}],
        require_stable=True,
    )


def delete_request(group: str, partitions: Iterable[TopicPartition]) -> Any:
    """Return an OffsetDelete request."""
    topics = [
        {"name": topic, "partitions": [{"partition_index": number} for number in numbers]}
        for topic, numbers in by_topic(partitions).items()
    ]
    return request(versions.OFFSET_DELETE, group_id=group, topics=topics)


def partition_codes(response: Any) -> dict[TopicPartition, ErrorCode]:
    """Return the error code of each partition in an OffsetCommit or OffsetDelete response."""
    return {
        TopicPartition(topic.name, p.partition_index): error_code(p.error_code)
        for topic in response.topics
        for p in topic.partitions
    }


def read_committed(response: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets in an OffsetFetch response; partitions without one are left out.

    Raises KafkaError with the error code of the group, or of the first partition with an error.
    """
    (group,) = response.groups
    _raise_for(group.error_code, f"group {group.group_id}")
    found = {}
    for topic in group.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            _raise_for(p.error_code, str(tp))
            if p.committed_offset >= 0:
                found[tp] = OffsetAndMetadata(
                    p.committed_offset, p.metadata or "", p.committed_leader_epoch
                )
    return found


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers by topic."""
    grouped: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        grouped[topic].append(number)
    return grouped


def _raise_for(number: int, detail: str) -> None:
    code = error_code(number)
    if code is not ErrorCode.NONE:
        raise AnsweredError(code, detail)
