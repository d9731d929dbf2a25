"""Deletion of the oldest records of a partition at a client's request.

DeleteRecords 21, versions 0–2.
- Served by the leader. The log then starts at the requested offset; -1 means the high watermark. An offset below the
  current log start changes nothing. An offset below -1 or above the high watermark gets OFFSET_OUT_OF_RANGE.
- The low watermark of a partition is the smallest log start offset of its live replicas. A partition is answered when
  its low watermark has reached the offset. After the timeout it gets REQUEST_TIMED_OUT, although the leader's log
  already starts at the offset.
- As in Kafka, the new start offset is kept in memory. It is written every
  `log.flush.offset.checkpoint.interval.ms` and when the broker stops. A broker that is killed before the write uses
  the start offset of its last checkpoint again.
- POLICY_VIOLATION for a topic whose `cleanup.policy` lacks `delete`, INVALID_TOPIC_EXCEPTION for internal topics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import starmap
from typing import Any, Final

from minikafka.base.config.keys import LONG_MAX
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.base.names import INTERNAL_TOPICS
from minikafka.base.ports import Timer
from minikafka.broker.services import (
    LATER,
    Entity,
    Handler,
    RequestContext,
    Services,
    Steps,
)
from minikafka.kafka.wire.codec import response_in_steps
from minikafka.kafka.wire.versions import DELETE_RECORDS
from minikafka.security.operations import DELETE, TOPIC, need
from minikafka.storage.replication.partition import Partition

_DELETE: Final = need("DeleteRecords", DELETE, TOPIC)
_HIGH_WATERMARK: Final = -1
_UNKNOWN: Final = -1
"""Value of the low watermark in the response for a partition that was refused."""


def delete_records(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Delete records as leader. The `Steps` return the response, or LATER if the response must wait for followers."""
    rows: defaultdict[str, dict[int, Row]] = defaultdict(dict)
    waiting: dict[TopicPartition, Row] = {}
    allowed = services.access.allowed(context.connection, _DELETE)
    for topic in request.topics:
        for asked in topic.partitions:
            tp = TopicPartition(topic.name, asked.partition_index)
            row = (
                _delete(services, tp, asked.offset) if topic.name in allowed else Row(_DELETE.error)
            )
            rows[tp.topic][tp.partition] = row
            if row.partition is None:
                waiting.pop(tp, None)
            else:
                waiting[tp] = row
            yield
    deletion = Deletion(services, rows, list(waiting.values()), context)
    if deletion.is_complete():
        return (yield from deletion.response())
    deletion.wait(request.timeout_ms)
    return LATER


class Row:
    """The result for one partition.

    `required`: the offset that the partition's low watermark must reach. The result is final when the low
    watermark has reached this offset, or when the partition has failed. `partition` is None once the result
    is final.
    """

    __slots__ = ("error", "low_watermark", "partition", "required")

    def __init__(
        self, error: int, partition: Partition | None = None, required: int = _UNKNOWN
    ) -> None:
        self.error = error
        self.partition = partition
        self.required = required
        self.low_watermark = _UNKNOWN


def _delete(services: Services, tp: TopicPartition, offset: int) -> Row:
    """Raise the partition's log start offset if this broker is the leader. Return the result, or an error."""
    partition = services.replicas.partition(tp)
    error = _refusal(services, tp, partition)
    if error or partition is None:
        services.replicas.refusals.note("DeleteRecords", tp, error)
        return Row(error)
    required = partition.high_watermark if offset == _HIGH_WATERMARK else offset
    if not 0 <= required <= partition.high_watermark:
        return Row(ErrorCode.OFFSET_OUT_OF_RANGE)
    services.replicas.delete_records(partition, required)
    return Row(ErrorCode.NONE, partition, required)


def _refusal(services: Services, tp: TopicPartition, partition: Partition | None) -> int:
    if tp.partition not in services.metadata.topics.get(tp.topic, {}):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if tp.topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if partition is None:
        return services.replicas.error_for(tp) or ErrorCode.NOT_LEADER_OR_FOLLOWER
    if error := partition.check_leader_epoch(-1):
        return error
    if "delete" not in partition.log.config.cleanup_policy:
        return ErrorCode.POLICY_VIOLATION
    return ErrorCode.NONE


class Deletion:
    """One DeleteRecords request, until it is answered.

    While the request waits for followers, it is registered as a `Waiter` of the partitions whose followers lag.
    """

    def __init__(
        self,
        services: Services,
        rows: Mapping[str, Mapping[int, Row]],
        waiting: list[Row],
        context: RequestContext,
    ) -> None:
        self._services = services
        self._rows = rows
        self._waiting = waiting
        self._context = context
        self._timer: Timer | None = None
        self._waited: list[Partition] = []

    def is_complete(self) -> bool:
        """Return True if each partition has failed, or has a low watermark at or above the given offset."""
        for row in self._waiting:
            if row.partition is not None:
                self._check(row, row.partition)
        self._waiting = [row for row in self._waiting if row.partition is not None]
        return not self._waiting

    def _check(self, row: Row, partition: Partition) -> None:
        error = partition.check_leader_epoch(-1)
        row.low_watermark = _UNKNOWN if error else _low_watermark(partition)
        if error or row.low_watermark >= row.required:
            row.error, row.partition = error, None

    def wait(self, timeout_ms: int) -> None:
        """Wait until the request is complete or the timeout has passed; then answer the request."""
        self._waited = [row.partition for row in self._waiting if row.partition is not None]
        for partition in self._waited:
            partition.waiting[self] = None
        self._timer = self._services.clock.call_later(max(timeout_ms, 1), self._expire)

    def attempt(self) -> None:
        """Answer the request if each partition has failed, or has a low watermark at or above the given offset."""
        if self._timer is not None and self.is_complete():
            self._answer()

    def _expire(self) -> None:
        if not self.is_complete():
            for row in self._waiting:
                row.error = ErrorCode.REQUEST_TIMED_OUT
        self._answer()

    def _answer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self._waited:
            partition.waiting.pop(self, None)
        self._context.answer(self.response())

    def response(self) -> Steps:
        """Return a generator that encodes the response, with the current results, in steps."""
        return response_in_steps(
            DELETE_RECORDS,
            self._context.version,
            topics=(
                {"name": name, "partitions": starmap(_deleted, rows.items())}
                for name, rows in self._rows.items()
            ),
        )


def _low_watermark(partition: Partition) -> int:
    """Return the smallest log start offset of the leader and its live followers, -1 if any is unknown."""
    others = (p for p in partition.followers.values() if partition.is_alive(p.broker_id))
    return min(partition.log_start_offset, *(p.log_start_offset for p in others), LONG_MAX)


def _deleted(number: int, row: Row) -> dict[str, Any]:
    return {
        "partition_index": number,
        "low_watermark": row.low_watermark,
        "error_code": row.error,
    }


HANDLERS: Final[dict[int, Handler]] = {DELETE_RECORDS: delete_records}
