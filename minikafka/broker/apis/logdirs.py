"""The log directories of this broker, with the size of every replica.

DescribeLogDirs 35, versions 0–4.
- Returns every log directory with the size and the offset lag of the requested replicas (null: all replicas). The
  offset lag is the number of offsets by which the log end is behind the high watermark. A replica that is being moved
  has a second row in its new directory (`is_future_key`), whose lag counts from the replica's log end. Version 4 adds
  total and usable bytes of the disk (KIP-827). A directory that failed gets KAFKA_STORAGE_ERROR.

AlterReplicaLogDirs 34, versions 0–2.
- Moves replicas to other directories (R68, `broker/replicas/moves.py`). The response means that the move has begun.
  The replica's own directory cancels a move. A directory that is not in `log.dirs` gets LOG_DIR_NOT_FOUND. A directory
  that failed gets KAFKA_STORAGE_ERROR, and so does each move while another directory is offline. A replica that this
  broker does not host gets REPLICA_NOT_AVAILABLE, and will be created in the directory.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from minikafka.base.errors import ErrorCode, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.broker.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.kafka.messages.encoder import Row
from minikafka.kafka.messages.steps import STEP_ROWS
from minikafka.kafka.wire.codec import response_in_steps
from minikafka.kafka.wire.versions import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS
from minikafka.security.operations import ALTER, CLUSTER, DESCRIBE, need
from minikafka.storage.log.manager import Directory, ReplicaLogInfo

_DESCRIBE: Final = need("DescribeLogDirs", DESCRIBE, CLUSTER)
_ALTER: Final = need("AlterReplicaLogDirs", ALTER, CLUSTER)


def describe_log_dirs(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to a DescribeLogDirs request as `Steps`."""
    if not services.access.allows(context.connection, _DESCRIBE):
        code = _DESCRIBE.error
        return (yield from response_in_steps(DESCRIBE_LOG_DIRS, context.version, error_code=code))
    asked: set[TopicPartition] | None = None
    if request.topics is not None:
        asked = set()
        for topic in request.topics:
            for start in range(0, len(topic.partitions), STEP_ROWS):
                numbers = topic.partitions[start : start + STEP_ROWS]
                asked.update(TopicPartition(topic.topic, number) for number in numbers)
                yield
    directories = services.replicas.log_directories()
    return (
        yield from response_in_steps(
            DESCRIBE_LOG_DIRS,
            context.version,
            results=(_described(services, directory, asked) for directory in directories),
        )
    )


def _described(
    services: Services, directory: Directory, asked: set[TopicPartition] | None
) -> dict[str, Any]:
    failed = {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "log_dir": directory.path}
    if directory.replicas is None:
        return failed
    try:
        total, usable = services.replicas.room(directory.path)
    except StorageFailed:
        return failed
    by_topic: defaultdict[str, list[ReplicaLogInfo]] = defaultdict(list)
    for replica in directory.replicas:
        if asked is None or replica.tp in asked:
            by_topic[replica.tp.topic].append(replica)
    return {
        "log_dir": directory.path,
        "topics": (
            {"name": name, "partitions": (_replica(services, replica) for replica in replicas)}
            for name, replicas in by_topic.items()
        ),
        "total_bytes": total,
        "usable_bytes": usable,
    }


def _replica(services: Services, replica: ReplicaLogInfo) -> dict[str, Any]:
    partition = services.replicas.partition(replica.tp)
    lag = 0
    if partition is not None and replica.is_future:
        lag = partition.log.written_log_end_offset - replica.log_end_offset
    elif partition is not None:
        lag = max(partition.high_watermark - replica.log_end_offset, 0)
    return {
        "partition_index": replica.tp.partition,
        "partition_size": replica.size,
        "offset_lag": lag,
        "is_future_key": replica.is_future,
    }


def alter_replica_log_dirs(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to an AlterReplicaLogDirs request, as a generator that yields after each replica."""
    by_topic: defaultdict[str, list[Row]] = defaultdict(list)
    is_allowed = services.access.allows(context.connection, _ALTER)
    for wanted in request.dirs:
        yield
        path = wanted.path.rstrip("/") or "/"
        for topic in wanted.topics:
            for partition in topic.partitions:
                code = _ALTER.error
                if is_allowed:
                    code = services.replicas.moves.alter(
                        TopicPartition(topic.name, partition), path
                    )
                by_topic[topic.name].append({"partition_index": partition, "error_code": code})
                yield
    results = ({"topic_name": name, "partitions": rows} for name, rows in by_topic.items())
    return (yield from response_in_steps(ALTER_REPLICA_LOG_DIRS, context.version, results=results))


HANDLERS: Final[dict[int, Handler]] = {
    DESCRIBE_LOG_DIRS: describe_log_dirs,
    ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
}
