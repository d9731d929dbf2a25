"""The kinds of requests that `benchmarks.attacks` floods a broker with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from benchmarks.kafka import LENGTH, batch_of
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.produce import ELEMENTS_MAX
from minikafka.kafka.wire.versions import (
    ALTER_PARTITION_REASSIGNMENTS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)

UNKNOWN: Final = "unknown"
GROUP: Final = "attackers"
AT_ONCE: Final = 100
"""Number of copies of a small request that are sent in one piece."""
LARGE_FETCH: Final = 50 << 20
LARGEST_REQUEST: Final = 100 << 20
"""The default of socket.request.max.bytes."""
RECORD_BYTES: Final = 100
MOST_PRODUCED: Final = ELEMENTS_MAX - 1
"""The most partitions of one topic in a Produce request."""
FOLLOWER: Final = 2
"""A broker id that differs from the id of the attacked broker."""


class Target(NamedTuple):
    """The attacked topic, and its number of partitions."""

    topic: str
    partitions: int


class Flood(NamedTuple):
    """A kind of attack. Each connection sends the bytes `data(target)`, again and again if `repeats`."""

    name: str
    data: Callable[[Target], bytes]
    repeats: bool = True


def _encoded(api: int, version: int, **values: Any) -> bytes:
    body = codec.request(api, version, **values)
    return codec.encode_request(api, version, 1, "attacker", body)


def _names(count: int) -> list[str]:
    return [f"{UNKNOWN}-{number}" for number in range(count)]


def _rows(name: str, numbers: Iterable[int], **values: Any) -> list[Mapping[str, Any]]:
    """Return the fields of each partition: its number in the field `name`, and `values`."""
    return [{name: number, **values} for number in numbers]


def _metadata(target: Target) -> bytes:
    topics = [{"name": target.topic}]
    return AT_ONCE * _encoded(METADATA, 9, topics=topics, allow_auto_topic_creation=False)


def _configs(target: Target) -> bytes:
    resource = {"resource_type": 2, "resource_name": target.topic, "configuration_keys": None}
    return AT_ONCE * _encoded(DESCRIBE_CONFIGS, 4, resources=[resource])


def _delete_topics(_: Target) -> bytes:
    return _encoded(DELETE_TOPICS, 4, topic_names=_names(20_000), timeout_ms=1_000)


def _create_topics(_: Target) -> bytes:
    topics = [{"name": n, "num_partitions": 1, "replication_factor": 1} for n in _names(10_000)]
    return _encoded(CREATE_TOPICS, 5, topics=topics, timeout_ms=1_000, validate_only=True)


def _create_partitions(_: Target) -> bytes:
    topics = [{"name": name, "count": 2, "assignments": None} for name in _names(10_000)]
    return _encoded(CREATE_PARTITIONS, 3, topics=topics, timeout_ms=1_000, validate_only=True)


def _alter_configs(_: Target) -> bytes:
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "1"}]
    resources = [
        {"resource_type": 2, "resource_name": name, "configs": configs} for name in _names(20_000)
    ]
    return _encoded(INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)


def _list_offsets(_: Target) -> bytes:
    partitions = _rows("partition_index", range(20_000), current_leader_epoch=-1, timestamp=-1)
    topics = [{"name": UNKNOWN, "partitions": partitions}]
    return _encoded(LIST_OFFSETS, 5, replica_id=-1, isolation_level=0, topics=topics)


def _leader_epochs(_: Target) -> bytes:
    partitions = _rows("partition", range(20_000), current_leader_epoch=-1, leader_epoch=0)
    topics = [{"topic": UNKNOWN, "partitions": partitions}]
    return _encoded(OFFSET_FOR_LEADER_EPOCH, 3, replica_id=-2, topics=topics)


def _delete_records(_: Target) -> bytes:
    topics = [{"name": UNKNOWN, "partitions": _rows("partition_index", range(20_000), offset=0)}]
    return _encoded(DELETE_RECORDS, 2, topics=topics, timeout_ms=1_000)


def _reassignments(topic: str, partitions: int, replicas: int) -> bytes:
    rows = _rows("partition_index", range(partitions), replicas=list(range(1, replicas + 1)))
    topics = [{"name": topic, "partitions": rows}]
    return _encoded(ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=1_000, topics=topics)


def _commits(target: Target) -> bytes:
    rows = _rows(
        "partition_index",
        range(target.partitions),
        committed_offset=1,
        committed_leader_epoch=-1,
        committed_metadata="",
    )
    topics = [{"name": target.topic, "partitions": rows}]
    values = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": ""}
    return _encoded(OFFSET_COMMIT, 7, **values, group_instance_id=None, topics=topics)


def _committed(_: Target) -> bytes:
    topics = [{"name": UNKNOWN, "partition_indexes": range(20_000)}]
    return _encoded(OFFSET_FETCH, 7, group_id=GROUP, topics=topics)


def _coordinators(_: Target) -> bytes:
    return _encoded(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=_names(20_000))


def _groups(_: Target) -> bytes:
    return _encoded(DESCRIBE_GROUPS, 5, groups=_names(20_000))


def _produce(topic: str, partitions: int) -> bytes:
    """Return a Produce request of one record for each partition."""
    rows = _rows("index", range(partitions), records=batch_of(RECORD_BYTES))
    topics = [{"name": topic, "partition_data": rows}]
    return _encoded(PRODUCE, 7, acks=1, timeout_ms=1_000, topic_data=topics)


def _fetch(topics: Mapping[str, Sequence[int]], size: int, replica: int = -1) -> bytes:
    """Return a Fetch request of these partitions of each topic, with at most `size` bytes in the response."""
    fields = {"current_leader_epoch": -1, "log_start_offset": -1, "partition_max_bytes": size}
    rows = [
        {"topic": name, "partitions": _rows("partition", numbers, fetch_offset=0, **fields)}
        for name, numbers in topics.items()
    ]
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": size, "session_epoch": -1}
    return _encoded(FETCH, 11, replica_id=replica, topics=rows, **limits)


def _half_request(_: Target) -> bytes:
    """Return half of a Produce request of the largest allowed size. Its head says that more bytes follow."""
    request = _produce(UNKNOWN, 1)
    begun = LENGTH.pack(LARGEST_REQUEST) + request[LENGTH.size :]
    return begun + bytes(LARGEST_REQUEST // 2 - len(begun))


def _invalid(_: Target) -> bytes:
    """Return the head of a request of an API that does not exist."""
    return LENGTH.pack(1_000) + b"\x7f\xff" + bytes(998)


FLOODS: Final = (
    Flood("Metadata of one topic", _metadata),
    Flood("DescribeConfigs of one topic", _configs),
    Flood("DeleteTopics of 20,000 unknown topics", _delete_topics),
    Flood("CreateTopics of 10,000 topics with `validate_only`", _create_topics),
    Flood("CreatePartitions of 10,000 unknown topics", _create_partitions),
    Flood("IncrementalAlterConfigs of 20,000 unknown topics", _alter_configs),
    Flood("ListOffsets of 20,000 unknown partitions", _list_offsets),
    Flood("OffsetForLeaderEpoch of 20,000 unknown partitions", _leader_epochs),
    Flood("DeleteRecords of 20,000 unknown partitions", _delete_records),
    Flood(
        "AlterPartitionReassignments of 20,000 unknown partitions",
        lambda _: _reassignments(UNKNOWN, 20_000, 1),
    ),
    Flood(
        "AlterPartitionReassignments of 240 partitions to 400 replicas each",
        lambda target: _reassignments(target.topic, 240, 400),
    ),
    Flood("OffsetCommit of all partitions", _commits),
    Flood("OffsetFetch of 20,000 unknown partitions", _committed),
    Flood("FindCoordinator of 20,000 groups", _coordinators),
    Flood("DescribeGroups of 20,000 unknown groups", _groups),
    Flood("Produce to 9,999 unknown partitions", lambda _: _produce(UNKNOWN, MOST_PRODUCED)),
    Flood(
        "Produce of one record to each partition",
        lambda target: _produce(target.topic, target.partitions),
    ),
    Flood("Produce to 200 partitions", lambda target: 20 * _produce(target.topic, 200)),
    Flood("Produce to one unknown partition", lambda _: AT_ONCE * _produce(UNKNOWN, 1)),
    Flood(
        "the first fetch of a follower, 900 partitions",
        lambda target: _fetch(
            {target.topic: range(min(900, target.partitions))}, 1 << 20, FOLLOWER
        ),
    ),
    Flood(
        "Fetch of 1 MiB of one partition",
        lambda target: AT_ONCE * _fetch({target.topic: [0]}, 1 << 20),
    ),
    Flood(
        "Fetch of 50 MiB of one partition",
        lambda target: AT_ONCE * _fetch({target.topic: [0]}, LARGE_FETCH),
    ),
    Flood(
        "Fetch of an empty partition",
        lambda target: AT_ONCE * _fetch({target.topic: [1]}, 1 << 20),
    ),
    Flood(
        "Fetch of all partitions",
        lambda target: _fetch({target.topic: range(target.partitions)}, 1 << 20),
    ),
    Flood(
        "Fetch of 20,000 unknown topics",
        lambda _: _fetch({name: [0] for name in _names(20_000)}, 1 << 20),
    ),
    Flood("half of a request of 100 MiB, then nothing", _half_request, repeats=False),
    Flood("bytes that are no request, on new connections", _invalid),
)
