"""Readers of topics for Spark: the driver plans offset ranges, and the tasks read them.

Invariant: the offset ranges are fixed at planning time, and a task depends only on its range. So Spark may
run a task or a micro-batch again. The functions that limit the size of a micro-batch (Spark's admission control) do
no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.spark.records import checksum
from minikafka.spark.records.batches import Section, grouped, sections
from minikafka.spark.records.decode import decode, without
from minikafka.spark.source import planning
from minikafka.spark.source.connector_checkpoint import first_of_connector
from minikafka.spark.source.costs import reported
from minikafka.spark.source.fetch import RangesReader
from minikafka.spark.source.filters import EVERYTHING, Selection, select
from minikafka.spark.source.group_commits import GroupCommits
from minikafka.spark.source.options import ReadOptions
from minikafka.spark.source.positions import (
    Positions,
    first_starts,
    from_json,
    is_plain,
    to_json,
)
from minikafka.spark.source.ranges import OffsetRange, Ranges
from minikafka.spark.wire.deadline import Deadline, now_ms
from minikafka.spark.wire.leaders import Position
from minikafka.spark.workers import Shipped, one_line_errors

_GROUP_BYTES: Final = 2 << 20
"""Maximum decompressed bytes per Arrow batch, to limit the memory of a task.

This size was the fastest in measurements, because it fits into CPU caches.
"""


class TaskRanges(InputPartition, metaclass=Shipped):
    """The work of one task: offset ranges of one or several partitions."""

    def __init__(self, ranges: Ranges) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class _Reader:
    """Reads offset ranges in a task.

    Spark sends the reader from the driver to executors, so the reader holds only the options.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the ranges of one task. The rows of each partition are in offset order.

        If no ranges were planned, Spark passes `InputPartition(None)`, and there are no rows.
        """
        if isinstance(partition, TaskRanges):
            with one_line_errors():
                yield from joined(read_ranges(self._options, partition.ranges), _GROUP_BYTES)

    def _tasks(self, ranges: Sequence[OffsetRange]) -> Sequence[InputPartition]:
        return [TaskRanges(found) for found in planning.tasks(self._options, ranges)]


class BatchReader(_Reader, DataSourceReader, metaclass=Shipped):
    """The reader of a batch query. The driver plans the ranges once."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._selection: Selection = EVERYTHING

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges to read, divided among tasks."""
        with one_line_errors():
            return self._tasks(planning.plan_batch(self._options, self._selection))


class FilteringReader(BatchReader):
    """The reader of a batch query that reads only the offsets that the filters of the query may select.

    Spark refuses this class if `spark.sql.python.filterPushdown.enabled` is false.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters for `partitions`. Return all filters, because Spark must evaluate them again."""
        self._selection = select(filters)
        return filters


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow, metaclass=Shipped):
    """The reader of a stream.

    Spark first asks for the end of a micro-batch, then writes the end to the checkpoint, then asks for the
    ranges. One instance exists on the driver during the query. Its state is used only to limit micro-batches
    and to report progress. After a restart, the checkpoint provides the offsets.
    """

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._patience = Patience(options.min_offsets or 0, options.max_delay_ms)
        self._commits = GroupCommits(options.group)
        self._target: Positions | None = None
        """The partition ends at which a query with the trigger available-now stops."""
        self._latest: Positions = {}
        self._start: Positions = {}
        """The start of a new query, after Spark has asked for it."""

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query, from `startingOffsets` or an option that overrides it.

        Spark asks twice: for the end and for the ranges of the first micro-batch. The second answer must not
        be after that end, so it is the same as the first, also if records were written in between.
        """
        with one_line_errors():
            self._start = self._start or planning.first_positions(self._options)
            return to_json(self._start)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the read limit that the options set.

        Spark passes this limit to `latestOffset`. For some triggers, Spark passes `ReadAllAvailable` instead.
        """
        if self._options.max_offsets:
            return ReadMaxRows(self._options.max_offsets)
        return (
            ReadMinRows(self._options.min_offsets)
            if self._options.min_offsets
            else ReadAllAvailable()
        )

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the current ends of all partitions. Later records are left for the next run."""
        with one_line_errors():
            self._target = planning.latest_positions(self._options, {})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch. Return `start` if no micro-batch is to start now."""
        with one_line_errors():
            begin = from_json(start)
            self._commits.commit(self._options, begin)
            end = self._next_end(begin, limit)
            if self._is_first(start):
                return to_json(end, begin)
            return start if end == begin else to_json(end)

    def _is_first(self, start: dict[str, Any]) -> bool:
        """True if `start` is the answer of `initialOffset`: the micro-batch is the first of its query."""
        return start == to_json(self._start)

    def _next_end(self, start: Positions, limit: ReadLimit) -> Positions:
        self._latest = end = self._target or planning.latest_positions(self._options, start)
        if isinstance(limit, ReadAllAvailable):
            return end
        begin = planning.known_starts(self._options, start, end)
        offsets = sum(waiting(begin, end).values())
        if self._target is None and not self._patience.is_over(offsets, now_ms()):
            return start
        most = self._options.max_offsets
        return limited(begin, end, most) if most else end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the partition ends that the last call of `latestOffset` used; None before the first call.

        Spark shows these ends as `latestOffset` in the progress of the query.
        """
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of a micro-batch. Raises `DataLost` if records were lost and `failOnDataLoss` is true."""
        with one_line_errors():
            begin = self._begin(start, end) if self._is_first(start) else from_json(start)
            return self._tasks(planning.plan_stream(self._options, begin, from_json(end)))

    def _begin(self, start: dict[str, Any], end: dict[str, Any]) -> Positions:
        """Return the start of the first micro-batch, which an earlier process or the connector may have planned."""
        if is_plain(end) and (
            self._options.checkpoint or not planning.is_repeatable(self._options)
        ):
            return first_of_connector(self._options.checkpoint, end)
        found = first_starts(end)
        return from_json(start) if found is None else found


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream with invalid options: each method that Spark may call first raises the error.

    If `streamReader` raises an error itself, Spark 4.3 reports an UnboundLocalError of its own instead.
    """

    def __init__(self, error: MinikafkaError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        """Raise the error, in a new query."""
        with one_line_errors():
            raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        """Raise the error, also in a query that continues."""
        self.initialOffset()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raise the error, in a query that continues."""
        return self.initialOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error, in a query that repeats a micro-batch."""
        self.initialOffset()
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield nothing: there are no tasks."""
        return iter(())


def read_ranges(options: ReadOptions, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Fetch and decode offset ranges. Needs no Spark session. Raises the errors of `RangesReader.blocks`."""
    for _, batch in decoded_groups(options, ranges):
        yield batch


def decoded_groups(
    options: ReadOptions, ranges: Sequence[OffsetRange]
) -> Iterator[tuple[list[Section], pa.RecordBatch]]:
    """Yield groups of Kafka batches in offset ranges, each group with its rows as one Arrow record batch.

    Raises the errors of `RangesReader.blocks`.
    """
    crc = checksum.find() if options.check_crcs else None
    first = ranges[0].tp.partition if ranges else 0
    with planning.kept(options, first) as leaders, reported() as costs:
        reader = RangesReader(
            leaders,
            ranges,
            Deadline(options.poll_timeout_ms / 1000),
            fetch_bytes=options.fetch_bytes,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        for block in costs.counting(reader.blocks()):
            tp, end, answer = block.wanted.tp, block.wanted.end, block.response
            found = sections(answer.records, block.start, end, crc, answer.aborted)
            if not (options.include_key and options.include_value):
                found = (
                    without(one, key=not options.include_key, value=not options.include_value)
                    for one in found
                )
            for group in grouped(found, _GROUP_BYTES):
                batch = decode(
                    group,
                    *tp,
                    block.start,
                    end,
                    with_key=options.include_key,
                    with_value=options.include_value,
                    with_headers=options.include_headers,
                    fail_on_far_times=options.fail_on_far_times,
                )
                if batch.num_rows:
                    yield group, batch


def joined(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Join consecutive Arrow batches, as long as they have at most `limit` bytes. A larger batch stays as it is.

    Spark has costs per Arrow batch, and many small ranges have many small batches. The first batch stays as it is, so
    that Spark has it early: a query such as `limit` needs no other.
    """
    left = iter(batches)
    yield from islice(left, 1)
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in left:
        if gathered and size + batch.nbytes > limit:
            yield _one(gathered)
            gathered, size = [], 0
        gathered.append(batch)
        size += batch.nbytes
    if gathered:
        yield _one(gathered)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (found,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return found


def waiting(start: Mapping[TopicPartition, Position], end: Positions) -> dict[TopicPartition, int]:
    """Return the number of offsets from `start` to `end` for each partition with unread offsets.

    `start` must contain every partition of `end`.
    """
    sizes = {tp: position.offset - start[tp].offset for tp, position in end.items()}
    return {tp: size for tp, size in sizes.items() if size > 0}


def limited(start: Mapping[TopicPartition, Position], end: Positions, most: int) -> Positions:
    """Return partition ends for a micro-batch of about `most` offsets.

    Each partition gets a share in proportion to its unread offsets, but at least one offset if any is unread,
    as in Spark's own source. The sum may therefore exceed `most`.
    """
    sizes = waiting(start, end)
    total = sum(sizes.values())
    if total <= most:
        return end
    shares = {tp: max(math.floor(most * size / total), 1) for tp, size in sizes.items()}
    return end | {
        tp: end[tp]._replace(offset=start[tp].offset + share) for tp, share in shares.items()
    }


class Patience:
    """Implements `minOffsetsPerTrigger`: a batch waits for enough offsets, at most `maxTriggerDelay`.

    As in Spark's own source, the first batch of a run does not wait.
    """

    def __init__(self, least: int, longest_ms: int) -> None:
        self._least = least
        self._longest_ms = longest_ms
        self._last_ms = -longest_ms
        """Time of the last call of `is_over` that returned true."""

    def is_over(self, offsets: int, now_ms: int) -> bool:
        """True if a batch with this number of offsets may start now."""
        if offsets < self._least and now_ms - self._last_ms < self._longest_ms:
            return False
        self._last_ms = now_ms
        return True
