"""The periodic work on the log files of all replicas: retention, deletion of files, fsync after flush.ms.

Invariant: the files of a segment are removed only after a log start offset above its records is durable in
the checkpoint. Retention takes slices of the scheduler. Files are deleted and fsynced in the executor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Tasks
from minikafka.broker.turns import Slices
from minikafka.storage.log import retention
from minikafka.storage.log.log import Log
from minikafka.storage.log.manager import LogManager
from minikafka.storage.replication.partition import Partition

logger = logging.getLogger(__name__)

_FILES_INTERVAL_MS: Final = 500
_GROUP: Final = 256
"""Number of partitions whose log start offsets are made durable together."""
_REMOVED_MAX: Final = 16
"""Maximum number of segments that one step removes. Each segment takes four renames."""


class Retained(NamedTuple):
    """What retention has removed from a log. `records`: the number of offsets."""

    records: int
    size: int
    segments: int


class Upkeep:
    """The two loops of one broker: retention, and the deletion and fsync of files.

    `delete_records(partition, offset)` raises the log start offset of a partition. `directory_failed(failure)` takes
    a log directory offline.

    `deleted_segments` and `deleted_bytes` count the segments and bytes that retention has removed.
    """

    def __init__(
        self,
        logs: LogManager,
        partitions: Mapping[TopicPartition, Partition],
        config: BrokerConfig,
        clock: Clock,
        tasks: Tasks,
        slices: Slices,
        delete_records: Callable[[Partition, int], None],
        directory_failed: Callable[[StorageFailed], None],
    ) -> None:
        self._logs = logs
        self._partitions = partitions
        self._config = config
        self._clock = clock
        self._tasks = tasks
        self._delete_records = delete_records
        self._directory_failed = directory_failed
        self._slices = slices
        self._retaining = asyncio.Lock()
        self.deleted_segments = self.deleted_bytes = 0

    def start(self) -> None:
        """Start the retention loop, and the loop that deletes and fsyncs files."""
        self._tasks.spawn(self._keep_files(), "log-upkeep")
        self._tasks.spawn(self._retain(), "log-retention")

    async def _keep_files(self) -> None:
        """Periodically delete renamed files after file.delete.delay.ms (R66), and fsync logs after flush.ms.

        Also make the names of new logs durable, whatever the topic's flush settings are.
        """
        while True:
            await self._clock.sleep(_FILES_INTERVAL_MS)
            try:
                await self._logs.delete_renamed(self._clock.now())
                await self._logs.delete_retired(self._clock.now())
                await self._logs.syncs.sync_names()
                await self._logs.syncs.sync_overdue(self._clock.now())
            except StorageFailed as failure:
                self._directory_failed(failure)

    # ---- retention

    async def _retain(self) -> None:
        await self._clock.sleep(self._config.log_initial_task_delay_ms)
        while True:
            async with self._retaining:
                await self.apply_retention()
            await self._clock.sleep(self._config.log_retention_check_interval_ms)

    async def retain_now(self, partitions: Sequence[Partition]) -> dict[TopicPartition, Retained]:
        """Apply retention to these partitions now; return what went, without partitions that lost nothing."""
        async with self._retaining:
            self._slices.begin()
            before = [(one, *_extent(one.log)) for one in partitions if self._is_retained(one.log)]
            for partition, *_ in before:
                await self._plan(partition)
            await self._remove([partition.log for partition, *_ in before])
        found = {}
        for partition, start, size, segments in before:
            start_now, size_now, segments_now = _extent(partition.log)
            gone = Retained(start_now - start, size - size_now, segments - segments_now)
            if any(gone):
                found[partition.tp] = gone
        return found

    async def apply_retention(self) -> None:
        """Delete expired segments and segments below the log start offset.

        As in Kafka, no segment of a compacted log is deleted while log.cleaner.enable is false.
        """
        self._slices.begin()
        partitions = [one for one in self._partitions.values() if self._is_retained(one.log)]
        for first in range(0, len(partitions), _GROUP):
            group = partitions[first : first + _GROUP]
            for partition in group:
                await self._plan(partition)
            await self._remove([partition.log for partition in group])

    def _is_retained(self, log: Log) -> bool:
        return self._config.log_cleaner_enable or "compact" not in log.config.cleanup_policy

    async def _plan(self, partition: Partition) -> None:
        """Raise the log start offset of one partition above its expired records."""
        has_more = self._is_served(partition.log)
        if has_more and (below := retention.below_start(partition.log)):
            logger.info("partition %s: %s", partition.tp, below)
        while has_more and self._is_served(partition.log):
            try:
                has_more = self._expire(partition)
            except StorageFailed as failure:
                self._directory_failed(failure)
                return
            await self._slices.end_step()

    def _expire(self, partition: Partition) -> bool:
        """Raise the log start offset above some expired records; return True if more records may be expired."""
        log = partition.log
        plan = retention.plan(log, partition.high_watermark, self._clock.wall_ms())
        if plan is None:
            return False
        for reason in plan.reasons:
            logger.info("partition %s: %s", partition.tp, reason)
        if plan.needs_roll:
            log.roll()
        if plan.reasons:
            self._delete_records(partition, plan.log_start_offset)
        return not plan.is_last

    async def _remove(self, logs: Sequence[Log]) -> None:
        """Make the log start offsets of these logs durable, then remove the segments below these offsets."""
        marks = {
            log: (log.log_start_offset, log.layout_generation)
            for log in logs
            if self._is_served(log) and log.segments.count_below(log.log_start_offset)
        }
        if not marks:
            return
        try:
            await self._logs.sync_log_starts(marks)
        except StorageFailed as failure:
            self._directory_failed(failure)
            return  # the next check continues in the remaining directories
        self._slices.begin()
        for log, (start, generation) in marks.items():
            await self._remove_below(log, start, generation)

    async def _remove_below(self, log: Log, start: int, generation: int) -> None:
        """Remove the segments below `start`, a log start offset that is durable.

        Stop if the layout generation of the log is no longer `generation`, because a truncation may have lowered the
        log start offset.
        """
        while (
            self._is_served(log)
            and log.layout_generation == generation
            and (count := min(log.segments.count_below(start), _REMOVED_MAX))
        ):
            self._remove_first(log, count)
            generation = log.layout_generation
            await self._slices.end_step()

    def _remove_first(self, log: Log, count: int) -> None:
        size = log.segments[count].start - log.segments[0].start
        try:
            log.remove_first_segments(count)
        except StorageFailed as failure:
            self._directory_failed(failure)
            return
        self.deleted_segments += count
        self.deleted_bytes += size

    def _is_served(self, log: Log) -> bool:
        """True if the log is in use: not deleted, not renamed, and its log directory is online."""
        return self._logs.get(log.tp) is log


def _extent(log: Log) -> tuple[int, int, int]:
    """Return the first offset in the files of a log, its bytes and the number of its segments.

    The log start offset of a follower may rise before its files go: it follows the leader's.
    """
    return (
        log.segments[0].base_offset,
        log.written_position - log.segments[0].start,
        len(log.segments),
    )
