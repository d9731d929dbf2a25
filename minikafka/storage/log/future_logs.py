"""Copies of replicas that are being moved to other log directories of this broker (Kafka's future logs, R68).

    begin      creates an empty copy, `topic-partition.<id>-future`, in the other directory
    complete   makes the copy and its checkpoints durable, and then the file `minikafka-moved` in it
    switch     renames the copy to `topic-partition`: from now on it is the replica
    retire     makes that name durable, then renames the former replica to `….-delete`
    finish     makes the deletion durable, then removes `minikafka-moved`

Invariant: after a crash at any time, some directory has the whole replica under its name. If two directories have it,
the one with `minikafka-moved` counts, and the other one is deleted at the start.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final

from minikafka.base.errors import ConfigError, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Executor, Storage
from minikafka.storage.log.directory import (
    DELETED_SUFFIX,
    MOVED,
    STRAY_SUFFIX,
    LogDirectory,
    is_future,
)
from minikafka.storage.log.log import Log

logger = logging.getLogger(__name__)

_MOVED_CONTENT: Final = b"If another log directory has this replica too, this one counts.\n"
MoveAside = Callable[[LogDirectory, TopicPartition, str], object]


class FutureLogs:
    """The copies on this broker by partition: `logs`.

    `replicas`: the log of each replica. `live`: the directories that work. `move_aside(directory, partition, suffix)`
    renames the directory of a log and takes the log out of service.
    """

    def __init__(
        self,
        storage: Storage,
        executor: Executor,
        live: Sequence[LogDirectory],
        replicas: dict[TopicPartition, Log],
        move_aside: MoveAside,
    ) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.stop_cleaning: Callable[[TopicPartition], Awaitable[None]] = _no_cleaner
        """Aborts the compaction of a replica. None begins while the replica has a copy."""
        self._storage = storage
        self.executor = executor
        self._live = live
        self._replicas = replicas
        self._move_aside = move_aside

    # ---- start

    def adopt(self, *, is_whole: bool) -> None:
        """Divide the logs of the live directories into replicas and copies, and end moves that a crash interrupted.

        `is_whole`: no directory is offline. Raises ConfigError if two directories have a replica, and neither or both
        of them were the target of a move.
        """
        for directory in self._live:
            for tp, log in tuple(directory.logs.items()):
                if not is_future(log):
                    self._adopt_replica(directory, tp, log)
        for directory in self._live:
            for tp, log in tuple(directory.logs.items()):
                if is_future(log):
                    self._adopt_copy(directory, tp, log)
        if is_whole:
            self._finish_all()

    def _adopt_replica(self, directory: LogDirectory, tp: TopicPartition, log: Log) -> None:
        other = self._replicas.get(tp)
        if other is not None:
            if self._was_moved(log) == self._was_moved(other):
                raise ConfigError(
                    f"{tp} is both in {other.directory} and in {log.directory}: remove one of them"
                )
            loser = other if self._was_moved(log) else log
            logger.warning("%s was moved to another log directory; deleting it", loser.directory)
            self._move_aside(self.directory_of(loser), tp, DELETED_SUFFIX)
            if loser is log:
                return
        self._replicas[tp] = log

    def _adopt_copy(self, directory: LogDirectory, tp: TopicPartition, log: Log) -> None:
        replica = self._replicas.get(tp)
        is_stale = replica is not None and replica.topic_id != log.topic_id
        if is_stale or tp in self.logs:
            logger.warning("%s is the copy of an earlier move; deleting it", log.directory)
            self._move_aside(directory, tp, DELETED_SUFFIX)
        else:
            self.logs[tp] = log

    def _was_moved(self, log: Log) -> bool:
        return self._storage.exists(f"{log.directory}/{MOVED}")

    def _finish_all(self) -> None:
        moved = [log for log in self._replicas.values() if self._was_moved(log)]
        if moved:
            for directory in self._live:
                directory.sync()
            for log in moved:
                self._remove_mark(log)

    # ---- a move

    def begin(self, tp: TopicPartition, directory: LogDirectory, unique: int) -> Log:
        """Create and return the copy of a replica in another directory. Raises StorageFailed."""
        replica = self._replicas[tp]
        future = directory.create_future(tp, replica.config, unique)
        if replica.topic_id is not None:
            directory.assign_topic_id(future, replica.topic_id)
        self.logs[tp] = future
        return future

    async def complete(self, future: Log, high_watermark: int) -> None:
        """Make the copy durable, with its checkpoints, and then that it counts. Raises StorageFailed."""
        directory = self.directory_of(future)
        directory.write_high_watermarks({future.tp: high_watermark})
        directory.write_recovery_points()
        path = f"{future.directory}/{MOVED}"
        await self.executor.run(
            partial(self._storage.write_atomically, path, _MOVED_CONTENT, sync=True)
        )

    def switch(self, tp: TopicPartition) -> Log:
        """Let the copy take the place of the replica; return it. Raises StorageFailed, and then changes nothing.

        The copy must have what the replica has, and be as durable.
        """
        replica, future = self._replicas[tp], self.logs[tp]
        assert future.log_end_offset == replica.log_end_offset, (replica, future)
        assert future.log_start_offset == replica.log_start_offset, (replica, future)
        assert future.recovery_point >= replica.recovery_point, (replica, future)
        self.directory_of(future).promote(tp)
        # Byte positions in the replica's files are looked up again in those of the copy.
        future.layout_generation = max(replica.layout_generation, future.layout_generation) + 1
        future.traffic = replica.traffic
        del self.logs[tp]
        self._replicas[tp] = future
        return future

    async def retire(self, future: Log, replica: Log) -> None:
        """Make the new name durable, then rename the former replica for deletion. Raises StorageFailed."""
        target, source = self.directory_of(future), self.directory_of(replica)
        try:
            await self.executor.run(target.sync)
        except StorageFailed:
            # The former replica lacks the latest records, so it must not count after a restart without the target.
            self._end_replaced(source, replica, STRAY_SUFFIX)
            raise
        self._end_replaced(source, replica, DELETED_SUFFIX)
        await self.executor.run(source.sync)

    def _end_replaced(self, source: LogDirectory, replica: Log, suffix: str) -> None:
        if source in self._live and source.logs.get(replica.tp) is replica:
            self._move_aside(source, replica.tp, suffix)

    async def finish(self, future: Log) -> None:
        """End a move whose former replica is durably deleted. Raises StorageFailed."""
        await self.executor.run(partial(self._remove_mark, future))

    def _remove_mark(self, log: Log) -> None:
        self._storage.remove(f"{log.directory}/{MOVED}")
        self._storage.sync_directory(log.directory)

    # ---- lookups

    def directory_of(self, log: Log) -> LogDirectory:
        """Return the live directory that has this log."""
        return next(one for one in self._live if log.directory.startswith(one.path + "/"))

    def others(self, tp: TopicPartition) -> Iterator[LogDirectory]:
        """Yield the live directories that have a log of the partition which is not its replica."""
        for directory in tuple(self._live):
            log = directory.logs.get(tp)
            if log is not None and log is not self._replicas.get(tp):
                yield directory


async def _no_cleaner(tp: TopicPartition) -> None:
    """Do nothing: no log is compacted."""
