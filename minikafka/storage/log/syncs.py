"""Fsyncs of logs, outside of the event loop: of their records, of what is derived from them, and of their names.

Invariant: the recovery point of a log is raised only after an fsync of all records below it and of the log's name. Each
file is opened again for its fsync, because the log may close its own file meanwhile.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from minikafka.base.config.keys import LONG_MAX
from minikafka.base.errors import StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Executor, Storage
from minikafka.storage.log.log import Log
from minikafka.storage.log.log_end import sync_name
from minikafka.storage.log.segments.index_files import sync_files
from minikafka.storage.log.segments.segment import LOG as LOG_SUFFIX
from minikafka.storage.log.segments.segment import Segment


class LogSyncs:
    """The fsyncs of the logs of a broker. `logs`: those in service, which change."""

    def __init__(
        self, storage: Storage, executor: Executor, logs: Mapping[TopicPartition, Log]
    ) -> None:
        self._storage = storage
        self._executor = executor
        self._logs = logs
        self._unsynced_since: dict[Log, int] = {}
        """Logs with flush.ms and records without an fsync → monotonic time (ms) when such records were first found."""

    async def sync_rolled(self) -> None:
        """Fsync the sealed segments that may not be durable, and raise the recovery points.

        Raises StorageFailed.
        """
        for log in list(self._logs.values()):
            unsynced = log.segments.unsynced
            if unsynced:
                log.epochs.ensure_file()
                # Read before the fsync, during which the log may roll, truncate or delete segments.
                count, removals = len(unsynced), log.segments.removals
                await self._sync(log, unsynced)
                log.sealed_synced(count, removals)

    async def sync_overdue(self, now: int) -> None:
        """Fsync the logs whose records have waited flush.ms for an fsync.

        Call this periodically. The wait of a log begins with the first call that finds records without an fsync.
        Raises StorageFailed.
        """
        unsynced = {
            log: self._unsynced_since.get(log, now)
            for log in self._logs.values()
            if log.config.flush_ms != LONG_MAX and log.written_log_end_offset > log.recovery_point
        }
        self._unsynced_since = unsynced
        for log, since in tuple(unsynced.items()):
            if now - since >= log.config.flush_ms:
                del unsynced[log]
                await self.sync_log(log)

    async def sync_log(self, log: Log) -> None:
        """Fsync the log, and raise its recovery point. Raises StorageFailed."""
        log.epochs.ensure_file()
        # Read before the fsync, during which the log may grow or truncate.
        end_offset, generation = log.written_log_end_offset, log.layout_generation
        count, removals = len(log.segments.unsynced), log.segments.removals
        segments = [*log.segments.unsynced, log.segments[-1]]
        await self._sync(log, segments)
        log.synced(end_offset, generation)
        if count:
            log.sealed_synced(count, removals)

    async def _sync(self, log: Log, segments: Iterable[Segment]) -> None:
        """Fsync the log files of these segments, all files derived from unsynced ones, and the names of the log."""
        logs = [segment.path(LOG_SUFFIX) for segment in segments]
        paths = [*logs, *log.segments.unsynced_derived(), log.epochs.path]
        await self._executor.run(partial(sync_present, self._storage, log.directory, paths))
        await self._sync_name(log)

    async def sync_names(self) -> None:
        """Make the directory and the topic id of each log with records durable. Raises StorageFailed."""
        for log in list(self._logs.values()):
            if not log.has_durable_name and log.segments[-1].is_made:
                await self._sync_name(log)

    async def _sync_name(self, log: Log) -> None:
        if not log.has_durable_name:
            topic_id = log.topic_id
            with _unless_moved():
                await self._executor.run(partial(sync_name, self._storage, log.directory))
            # The log may have got its topic id during the fsync.
            log.has_durable_name = log.topic_id == topic_id


def sync_present(storage: Storage, directory: str, paths: Sequence[str]) -> None:
    """Fsync the files and their directory; skip files that were deleted or renamed meanwhile."""
    for path in paths:
        with _unless_moved():
            sync_files(storage, [path])
    with _unless_moved():
        storage.sync_directory(directory)


@contextmanager
def _unless_moved() -> Iterator[None]:
    """Return a context manager that ignores the error of a file or directory that no longer has its name."""
    try:
        yield
    except StorageFailed as failure:
        if failure.cause.errno != errno.ENOENT:
            raise
