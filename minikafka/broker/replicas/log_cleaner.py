"""The compaction of one broker's logs (Kafka's LogCleaner).

This module chooses the log to clean next. The Cleaners port makes compacted copies of the log's segments outside
the event loop, and this module replaces the segments by the copies:

    broker     chooses the log with the largest share of dirty bytes, and sends a `CleaningTask`
    process    maps the key of each dirty record to the key's last offset
    process    copies a group of segments to one file `….log.cleaned`, fsyncs it, and sends a `CleanedGroup`
    broker     before the first copy: writes the log's entry in `cleaner-offset-checkpoint` (`storage/log/gaps.py`)
    broker     replaces the segments of the group (`storage/log/replacement.py`); then the process copies the next group
    process    sends the `CleaningOutcome`
    broker     writes the end of the clean part to `cleaner-offset-checkpoint`

The process only reads and writes files: the broker decides whether a copy may be used. When the role of the partition
changes, its cleaning is aborted and the process is killed.

Invariants: a log has at most one cleaning in progress, a broker at most `log.cleaner.threads`. A copy replaces segments
only if the log was neither truncated nor deleted since the cleaning began.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from minikafka.base.config import BrokerConfig
from minikafka.base.config.keys import LONG_MAX
from minikafka.base.errors import CleaningFailed, CorruptBatch, StorageFailed
from minikafka.base.metrics import Metrics
from minikafka.base.model import TopicPartition
from minikafka.broker.ports import BrokerPorts
from minikafka.broker.turns import Scheduler
from minikafka.storage.log.cleaner.dirt import Dirt, dirt_of, is_due, task_of
from minikafka.storage.log.cleaner.task import CleanedGroup, CleaningOutcome
from minikafka.storage.log.log import Log
from minikafka.storage.log.manager import LogManager
from minikafka.storage.log.replacement import Replacement
from minikafka.storage.log.segments.segment import Segment
from minikafka.storage.log.segments.swap import remove_copies
from minikafka.storage.replication.partition import Partition

logger = logging.getLogger(__name__)

_ABORT_CHECK_MS: Final = 20
_BEAN: Final = "kafka.log:type=LogCleaner,name="
_MANAGER_BEAN: Final = "kafka.log:type=LogCleanerManager,name="


class _Aborted(Exception):
    """The log was truncated or deleted since its cleaning began."""


class _Cleaning(NamedTuple):
    """A cleaning in progress. `segments` holds the segments that are cleaned, by base offset.

    `following` is the first segment after `segments`. If `following` is no longer in the log, the log was truncated.
    """

    partition: Partition
    log: Log
    segments: dict[int, Segment]
    following: Segment


class Compacted(NamedTuple):
    """What a compaction on demand has removed from a log, and the offset up to which the log is compacted."""

    records: int
    size: int
    end_offset: int


class LogCleaner:
    """The task of one broker that chooses dirty logs and compacts them.

    `settings()` returns the broker's current settings. `storage_failed(partition, failure)` takes a log
    directory offline. `uncleanable` holds, by partition, the reason why a log is not compacted again until the
    broker restarts or stops hosting the partition.
    """

    def __init__(
        self,
        ports: BrokerPorts,
        turns: Scheduler,
        logs: LogManager,
        partitions: Mapping[TopicPartition, Partition],
        settings: Callable[[], BrokerConfig],
        storage_failed: Callable[[Partition, StorageFailed], None],
    ) -> None:
        self._cleaners = ports.cleaners
        self._executor = ports.executor
        self._logs = logs
        self._partitions = partitions
        self._settings = settings
        self._storage_failed = storage_failed
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._slices = turns.slices()
        self._in_progress: dict[TopicPartition, asyncio.Task[Any] | None] = {}
        self._has_room = asyncio.Event()
        self._is_closed = False
        self._last_scan = ports.clock.now()
        self._largest_ratio = 0.0
        self._last: CleaningOutcome | None = None
        self._last_ms = 0
        self.uncleanable: dict[TopicPartition, str] = {}
        logs.futures.stop_cleaning = self.stop

    def start(self) -> None:
        """Start the task that finds dirty logs and cleans them."""
        self._tasks.spawn(self._schedule(), "log-cleaner")

    async def close(self) -> None:
        """Abort every cleaning, and begin no further cleaning."""
        self._is_closed = True
        for tp in tuple(self._in_progress):
            self._abort(tp)
        await self._cleaners.close()

    # ---- the RoleListener: a change of leadership may truncate the log

    def became_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Abort the cleaning of the partition, if one is in progress."""
        self._abort(tp)

    def became_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Abort the cleaning of the partition, if one is in progress."""
        self._abort(tp)

    def stopped(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Remove the partition from `uncleanable`. If the partition is being cleaned, abort the cleaning."""
        self.uncleanable.pop(tp, None)
        self._abort(tp)

    async def stop(self, tp: TopicPartition) -> None:
        """Abort the cleaning of the partition, and wait until it has ended."""
        while tp in self._in_progress:
            self._abort(tp)
            await self._clock.sleep(_ABORT_CHECK_MS)

    def _abort(self, tp: TopicPartition) -> None:
        task = self._in_progress.get(tp)
        if task is not None:
            self._in_progress[tp] = None
            task.cancel()

    # ---- the choice of the next log

    async def _schedule(self) -> None:
        while not self._is_closed:
            settings = self._settings()
            if (
                settings.log_cleaner_enable
                and len(self._in_progress) < settings.log_cleaner_threads
            ):
                chosen = await self._dirtiest()
                if chosen is not None and not self._is_closed:
                    self._begin(*chosen)
                    continue
            self._has_room.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(settings.log_cleaner_backoff_ms / 1_000):
                    await self._has_room.wait()

    async def _dirtiest(self) -> tuple[Partition, Dirt] | None:
        """Return the partition to clean next, and the dirty (not yet cleaned) part of its log.

        Of the partitions whose cleaning is due, this is the partition with the largest share of dirty bytes.
        Return None if there is no partition to clean.
        """
        chosen: tuple[Partition, Dirt] | None = None
        largest = 0.0
        self._slices.begin()
        for partition in tuple(self._partitions.values()):
            dirt = self.dirt(partition)
            if dirt is None or partition.tp in self._in_progress:
                continue
            largest = max(largest, dirt.ratio)
            if is_due(partition.log, dirt) and (chosen is None or dirt.ratio > chosen[1].ratio):
                chosen = partition, dirt
            await self._slices.end_step()
        self._last_scan, self._largest_ratio = self._clock.now(), largest
        if chosen is None or not self._may_clean(chosen[0]):
            return None
        return chosen

    def dirt(self, partition: Partition) -> Dirt | None:
        """Return the first and end offset of a log's dirty part, and the sizes (bytes) of its clean and dirty parts.

        Return None if the log is not compacted, cannot be cleaned, or is being copied to another directory: its copy
        might keep a record whose tombstone is removed.
        """
        if not self._may_clean(partition) or partition.tp in self.uncleanable:
            return None
        log = partition.log
        if "compact" not in log.config.cleanup_policy:
            return None
        try:
            return dirt_of(log, partition.last_stable_offset, self._clock.wall_ms())
        except StorageFailed as failure:
            self._storage_failed(partition, failure)
        except CorruptBatch as error:
            self._give_up(partition.tp, str(error))
        return None

    def _may_clean(self, partition: Partition) -> bool:
        """True if the partition's log is in use and is not being copied to another directory."""
        return self._is_served(partition) and partition.tp not in self._logs.futures.logs

    def _is_served(self, partition: Partition) -> bool:
        """True if the partition's log is in use: not deleted, not renamed, and its log directory is online."""
        return not partition.offline and self._logs.get(partition.tp) is partition.log

    async def compact_now(self, partition: Partition) -> Compacted:
        """Compact the whole log up to a new active segment, whatever its settings of dirt and age are.

        Records at the last stable offset or above it stay. Raises CleaningFailed if the log cannot be compacted.
        """
        tp, log = partition.tp, partition.log
        await self._until_idle(tp)
        if log.written_position > log.segments[-1].start:
            log.roll()
        records = size = 0
        while True:
            if reason := self.uncleanable.get(tp):
                raise CleaningFailed(reason)
            if not self._may_clean(partition):
                raise CleaningFailed("the replica was moved or deleted, or is being copied")
            dirt = dirt_of(log, partition.last_stable_offset, LONG_MAX)  # no record is too young
            if dirt.uncleanable_offset <= log.segments[0].base_offset:
                return Compacted(records, size, dirt.uncleanable_offset)  # no segment is sealed
            outcome: asyncio.Future[CleaningOutcome | None] = (
                asyncio.get_running_loop().create_future()
            )
            self._begin(partition, dirt, outcome)
            done = await outcome
            await self._until_idle(tp)
            if (
                done is None
            ):  # aborted by a change of leadership, or failed: then `uncleanable` says why
                await self._clock.sleep(_ABORT_CHECK_MS)
                continue
            records += done.records_read - done.records_kept
            size += done.bytes_read - done.bytes_written
            if done.end_offset >= dirt.uncleanable_offset:
                return Compacted(records, size, done.end_offset)

    async def _until_idle(self, tp: TopicPartition) -> None:
        while tp in self._in_progress:
            await self._clock.sleep(_ABORT_CHECK_MS)

    # ---- one cleaning

    def _begin(
        self,
        partition: Partition,
        dirt: Dirt,
        outcome: asyncio.Future[CleaningOutcome | None] | None = None,
    ) -> None:
        self._in_progress[partition.tp] = None
        self._tasks.spawn(self._clean(partition, dirt, outcome), f"log-cleaner-{partition.tp}")

    async def _clean(
        self,
        partition: Partition,
        dirt: Dirt,
        done: asyncio.Future[CleaningOutcome | None] | None,
    ) -> None:
        """Clean a log, and note the outcome. `done`: gets the outcome, None if the cleaning has failed."""
        tp = partition.tp
        self._in_progress[tp] = asyncio.current_task()
        begun = self._clock.now()
        try:
            outcome = await self._carry_out(partition, dirt)
        except asyncio.CancelledError:
            if self._in_progress[tp] is not None:  # not set to None by `_abort`: the broker stops
                raise
            logger.info("the cleaning of %s was aborted: its leader has changed", tp)
        except _Aborted:
            logger.info("the cleaning of %s was aborted: the log was truncated or deleted", tp)
        except CleaningFailed as failure:
            self._give_up(tp, str(failure))
        except StorageFailed as failure:
            if self._is_served(partition):
                self._storage_failed(partition, failure)
        except Exception as error:
            logger.exception("the cleaning of %s failed", tp)
            self._give_up(tp, f"{type(error).__name__}: {error}")
        else:
            self._note(tp, dirt, outcome, self._clock.now() - begun)
            self._has_room.set()
            if done is not None and not done.done():
                done.set_result(outcome)
        finally:
            del self._in_progress[tp]
            if done is not None and not done.done():
                done.set_result(None)

    async def _carry_out(self, partition: Partition, dirt: Dirt) -> CleaningOutcome:
        log = partition.log
        settings = self._settings()
        threads = settings.log_cleaner_threads
        task = task_of(
            log,
            dirt,
            self._clock.wall_ms(),
            dedupe_bytes=settings.log_cleaner_dedupe_buffer_size // threads,
            load_factor=settings.log_cleaner_io_buffer_load_factor,
            io_bytes=settings.log_cleaner_io_buffer_size // threads // 2,
            bytes_per_second=settings.log_cleaner_io_max_bytes_per_second,
        )
        slot = log.segments.slot_of(dirt.uncleanable_offset)
        segments = {segment.base_offset: segment for segment in log.segments[:slot]}
        cleaning = _Cleaning(partition, log, segments, log.segments[slot])
        try:
            encoded = await self._cleaners.clean(
                task.encode(), lambda group: self._put_in_place(cleaning, CleanedGroup(**group))
            )
            outcome = CleaningOutcome(**encoded)
            self._check(cleaning)
            await self._logs.mark_clean(log, outcome.end_offset)
        finally:
            if self._is_served(partition):
                with suppress(StorageFailed):
                    remove_copies(log.storage, log.directory)
        return outcome

    def _check(self, cleaning: _Cleaning) -> None:
        """Raise _Aborted if the log was truncated or deleted since its cleaning began."""
        if (
            not self._is_served(cleaning.partition)
            or cleaning.following not in cleaning.log.segments
        ):
            raise _Aborted

    async def _put_in_place(self, cleaning: _Cleaning, group: CleanedGroup) -> None:
        """Replace a group of segments by its compacted copy. The fsyncs run in the executor."""
        self._check(cleaning)
        log = cleaning.log
        if log.gaps.first_dirty_offset is None:
            await self._logs.mark_clean(log, log.log_start_offset)
            self._check(cleaning)
        replacement = Replacement(log, [cleaning.segments[base] for base in group.bases])
        try:
            replacement.begin()
            await self._executor.run(replacement.sync)
            self._check(cleaning)
            replacement.replace()
            await self._executor.run(replacement.sync)
            replacement.complete()
        except ValueError:
            raise _Aborted from None
        finally:
            if self._is_served(cleaning.partition):
                replacement.abort()

    def _give_up(self, tp: TopicPartition, reason: str) -> None:
        self.uncleanable[tp] = reason
        logger.error("%s will not be compacted again until the broker restarts: %s", tp, reason)

    def _note(self, tp: TopicPartition, dirt: Dirt, outcome: CleaningOutcome, took_ms: int) -> None:
        self._last, self._last_ms = outcome, took_ms
        logger.info(
            "cleaned %s up to offset %d in %d ms: %d keys from offset %d on; %d bytes became %d, %d records became %d",
            tp,
            outcome.end_offset,
            took_ms,
            outcome.keys,
            dirt.first_dirty_offset,
            outcome.bytes_read,
            outcome.bytes_written,
            outcome.records_read,
            outcome.records_kept,
        )

    # ---- reports

    def report(self, partition: Partition) -> dict[str, Any] | None:
        """Return the compaction state of a log for `minikafka status` and `why`; None if it is not compacted."""
        if "compact" not in partition.log.config.cleanup_policy:
            return None
        tp = partition.tp
        dirt = self.dirt(partition)
        return {
            "dirty_ratio": None if dirt is None else round(dirt.ratio, 4),
            "first_dirty_offset": partition.log.gaps.first_dirty_offset,
            "is_cleaned": tp in self._in_progress,
            "uncleanable": self.uncleanable.get(tp),
        }

    def register(self, metrics: Metrics) -> None:
        """Register Kafka's metrics of the cleaner."""
        gauges: dict[str, tuple[str, Callable[[], int]]] = {
            _MANAGER_BEAN + "max-dirty-percent": (
                "Largest share of dirty bytes in a log, in percent.",
                lambda: int(100 * self._largest_ratio),
            ),
            _MANAGER_BEAN + "time-since-last-run-ms": (
                "Milliseconds since the last check for dirty logs.",
                lambda: self._clock.now() - self._last_scan,
            ),
            _MANAGER_BEAN + "uncleanable-partitions-count": (
                "Partitions that are not compacted after a failure.",
                lambda: len(self.uncleanable),
            ),
            _BEAN + "cleaner-recopy-percent": (
                "Share of the bytes that the last cleaning kept, in percent.",
                lambda: (
                    100 * self._last.bytes_written // max(self._last.bytes_read, 1)
                    if self._last
                    else 0
                ),
            ),
            _BEAN + "max-clean-time-secs": (
                "Seconds that the last cleaning took.",
                lambda: self._last_ms // 1_000,
            ),
        }
        for name, (doc, read) in gauges.items():
            metrics.gauge(name, doc, read)
