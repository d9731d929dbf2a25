"""Offsets of a partition: its start and end, by timestamp and by leader epoch.

ListOffsets 2, versions 0–9.
- Timestamp -2 requests the log start offset. -1 requests the high watermark, or the last stable offset for
  read_committed. -3 (version 7) requests the record with the largest timestamp. -4 (version 8) requests the
  log start offset. -5 (version 9) requests the last offset in remote storage, which is -1, because there is none. Any
  other timestamp requests the first record with this timestamp or a later one. If there is no such record, offset and
  timestamp are -1. Records
  that the client may not read are ignored. With a replica id other than -1, a client may read up to the log end.
- Served by the leader. A follower answers only requests with replica id -2 (debugging). Requests are fenced by the
  current leader epoch from version 4 (KIP-320).
- Right after an election, the high watermark may be lower than the high watermark that clients have seen. During this
  time, a request for the latest offset gets OFFSET_NOT_AVAILABLE, before version 5 LEADER_NOT_AVAILABLE (KIP-207).
  Otherwise a client would see the end of the partition go backwards.
- A partition that the request names twice gets INVALID_REQUEST.
- Version 0 returns up to `max_num_offsets` offsets, in descending order: the start of each segment whose records are
  not later than the timestamp, and the end of the log if this holds for all records.

OffsetForLeaderEpoch 23, versions 0–4.
- Returns the largest epoch that is not above the requested epoch, with its end offset; (-1, -1) if there is no such
  epoch (R38). Requests are fenced by the current leader epoch (R41). Followers and consumers get the same response.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from minikafka.base.errors import CorruptBatch, ErrorCode, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.broker.clients.access import EVERYTHING
from minikafka.broker.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.kafka.messages.encoder import PAUSE, Row
from minikafka.kafka.messages.steps import STEP_ROWS
from minikafka.kafka.wire.codec import response_in_steps
from minikafka.kafka.wire.versions import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from minikafka.security.operations import CLUSTER, CLUSTER_ACTION, DESCRIBE, TOPIC, need
from minikafka.storage.replication.partition import Partition

_DESCRIBE: Final = need("ListOffsets", DESCRIBE, TOPIC)
_EPOCHS_OF_ALL: Final = need("OffsetForLeaderEpoch", CLUSTER_ACTION, CLUSTER)
_EPOCHS: Final = need("OffsetForLeaderEpoch", DESCRIBE, TOPIC)

TIMESTAMP_MAX: Final = 2**63 - 1
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
READ_COMMITTED: Final = 1
_CONSUMER: Final = -1
_DEBUGGING: Final = -2
"""Replica id of debugging tools. Followers answer only ListOffsets requests with this id."""
_NO_EPOCH: Final = -1
_ONE_OFFSET_SINCE: Final = 1
_NOT_AVAILABLE_SINCE: Final = 5
_SINCE: Final = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""Special timestamps → the first version that has them."""


class FoundOffset(NamedTuple):
    """The result of ListOffsets for one partition. The value of an absent field is -1."""

    error_code: int
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = _NO_EPOCH


def list_offsets(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to a ListOffsets request as `Steps`, one step for each partition."""
    version = context.version
    repeated = yield from _repeated(request)
    described = services.access.allowed(context.connection, _DESCRIBE)
    topics = (
        {
            "name": topic.name,
            "partitions": _offset_rows(services, request, version, topic, repeated)
            if topic.name in described
            else _denied_rows(topic, version),
        }
        for topic in request.topics
    )
    return (yield from response_in_steps(LIST_OFFSETS, version, topics=topics))


def _denied_rows(topic: Entity, version: int) -> Iterator[Row | None]:
    for asked in topic.partitions:
        if version < _ONE_OFFSET_SINCE:
            row: Row = {"error_code": _DESCRIBE.error, "old_style_offsets": []}
        else:
            row = FoundOffset(_DESCRIBE.error)._asdict()
        yield {"partition_index": asked.partition_index, **row}


def _offset_rows(
    services: Services,
    request: Entity,
    version: int,
    topic: Entity,
    repeated: set[tuple[str, int]],
) -> Iterator[Row | None]:
    for asked in topic.partitions:
        tp = TopicPartition(topic.name, asked.partition_index)
        if tp in repeated:
            row: Row = {"error_code": ErrorCode.INVALID_REQUEST}
        elif version < _ONE_OFFSET_SINCE:
            error, offsets = _several(services, request, tp, asked)
            row = {"error_code": error, "old_style_offsets": offsets}
        else:
            found = _list_offset(services, request, version, tp, asked)
            row = found._asdict()
        if row["error_code"] and version >= _ONE_OFFSET_SINCE:
            services.replicas.refusals.note("ListOffsets", tp, row["error_code"])
        yield {"partition_index": tp.partition, **row}
        yield PAUSE


def _several(
    services: Services, request: Entity, tp: TopicPartition, asked: Entity
) -> tuple[int, list[int]]:
    """Return (error, offsets before the timestamp in descending order) of one partition."""
    partition = services.replicas.partition(tp)
    if partition is None:
        return _error_if_not_hosted(services, tp), []
    if error := partition.check_leader_epoch(_NO_EPOCH):
        return error, []
    log, start = partition.log, partition.log_start_offset
    is_client = request.replica_id == _CONSUMER
    end = partition.high_watermark if is_client else log.written_log_end_offset
    if asked.timestamp == EARLIEST:
        return ErrorCode.NONE, [start][: max(asked.max_num_offsets, 0)]
    limit = TIMESTAMP_MAX if asked.timestamp == LATEST else asked.timestamp
    offsets = {
        max(segment.base_offset, start)
        for segment in log.segments
        if segment.max_timestamp <= limit and segment.base_offset < end
    }
    if all(segment.max_timestamp <= limit for segment in log.segments):
        offsets.add(end)
    return ErrorCode.NONE, sorted(offsets, reverse=True)[: max(asked.max_num_offsets, 0)]


def _list_offset(
    services: Services, request: Entity, version: int, tp: TopicPartition, asked: Entity
) -> FoundOffset:
    partition = services.replicas.partition(tp)
    if partition is None:
        return FoundOffset(_error_if_not_hosted(services, tp))
    epoch = asked.current_leader_epoch
    is_any_replica = request.replica_id == _DEBUGGING
    check = partition.check_reader if is_any_replica else partition.check_leader_epoch
    if error := check(epoch):
        return FoundOffset(error)
    committed = request.isolation_level == READ_COMMITTED
    try:
        is_client = request.replica_id == _CONSUMER
        return _look_up(partition, is_client, committed, asked.timestamp, version)
    except (StorageFailed, CorruptBatch):
        return FoundOffset(ErrorCode.KAFKA_STORAGE_ERROR)


def _look_up(
    partition: Partition, is_client: bool, committed: bool, timestamp: int, version: int
) -> FoundOffset:
    log = partition.log
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        return FoundOffset(ErrorCode.UNSUPPORTED_VERSION)
    if timestamp == LATEST_TIERED:
        return FoundOffset(ErrorCode.NONE)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log_start_offset
        return FoundOffset(ErrorCode.NONE, -1, start, log.epochs.epoch_of(start))
    if is_client:
        end = partition.last_stable_offset if committed else partition.high_watermark
    else:
        end = log.written_log_end_offset
    not_known = is_client and partition.is_leader and not partition.latest_offset_is_known
    if timestamp == LATEST:
        if not_known:
            return FoundOffset(_not_available(version))
        return FoundOffset(ErrorCode.NONE, -1, end, partition.leader_epoch)
    is_latest = timestamp == MAX_TIMESTAMP
    record = log.latest_record(end) if is_latest else log.offset_for_timestamp(timestamp, end)
    if record is None:
        return FoundOffset(_not_available(version) if not_known else ErrorCode.NONE)
    return FoundOffset(ErrorCode.NONE, *record)


def _not_available(version: int) -> ErrorCode:
    if version >= _NOT_AVAILABLE_SINCE:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return ErrorCode.LEADER_NOT_AVAILABLE


def _error_if_not_hosted(services: Services, tp: TopicPartition) -> int:
    return services.replicas.error_for(tp) or ErrorCode.NOT_LEADER_OR_FOLLOWER


def _repeated(request: Entity) -> Generator[None, None, set[tuple[str, int]]]:
    """Return the partitions that the request names twice. Pause (`yield`) after each topic and every 64 partitions."""
    named: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        for number, asked in enumerate(topic.partitions, 1):
            tp = topic.name, asked.partition_index
            (repeated if tp in named else named).add(tp)
            if not number % STEP_ROWS:
                yield
        yield
    return repeated


def offset_for_leader_epoch(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to an OffsetForLeaderEpoch request as `Steps`, one step for each partition."""
    is_follower = request.replica_id >= 0
    access, client = services.access, context.connection
    described = EVERYTHING
    if not access.allows(client, _EPOCHS_OF_ALL):
        described = access.allowed(client, _EPOCHS)
    topics = (
        {
            "topic": topic.topic,
            "partitions": _epoch_rows(services, topic, is_follower=is_follower)
            if topic.topic in described
            else _denied_epochs(topic),
        }
        for topic in request.topics
    )
    return response_in_steps(OFFSET_FOR_LEADER_EPOCH, context.version, topics=topics)


def _denied_epochs(topic: Entity) -> Iterator[Row | None]:
    for asked in topic.partitions:
        yield {
            "error_code": _EPOCHS.error,
            "partition": asked.partition,
            "leader_epoch": _NO_EPOCH,
            "end_offset": -1,
        }


def _epoch_rows(services: Services, topic: Entity, *, is_follower: bool) -> Iterator[Row | None]:
    for asked in topic.partitions:
        yield _epoch_end(services, topic.topic, asked, is_follower=is_follower)
        yield PAUSE


def _epoch_end(services: Services, topic: str, asked: Entity, *, is_follower: bool) -> Row:
    tp = TopicPartition(topic, asked.partition)
    partition = services.replicas.partition(tp)
    epoch, end_offset = _NO_EPOCH, -1
    if partition is None:
        error = _error_if_not_hosted(services, tp)
    else:
        check = partition.check_follower if is_follower else partition.check_leader_epoch
        error = check(asked.current_leader_epoch)
        if not error:
            epoch, end_offset = partition.epoch_end_offset(asked.leader_epoch)
    return {
        "error_code": error,
        "partition": asked.partition,
        "leader_epoch": epoch,
        "end_offset": end_offset,
    }


HANDLERS: Final[dict[int, Handler]] = {
    LIST_OFFSETS: list_offsets,
    OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
}
