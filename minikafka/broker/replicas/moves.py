"""Moves of replicas between the log directories of this broker (R68, KIP-113).

A move copies the log of a replica to `topic-partition.<id>-future` in the other directory, and then lets the copy take
the replica's place (`storage/log/future_logs.py`). Kafka's rules hold: a request for another directory begins again,
one for the replica's own directory cancels the move, a move goes on after a restart, and the log is not compacted
meanwhile: the copy could keep a record whose tombstone was removed before it was copied.

The segments are read and fsynced in the executor. One replica at a time is copied to each directory. Unlike Kafka,
a move to a disk that is almost full waits; writing on would take the directory offline, with its other replicas.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from minikafka.base.errors import CorruptBatch, ErrorCode, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Tasks
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.turns import Slices
from minikafka.storage.log.copying import ByteRange, LogCopy, read_range
from minikafka.storage.log.directory import NAME_BYTES_MAX, future_name
from minikafka.storage.log.log import Log
from minikafka.storage.log.manager import LogManager
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.purgatory import Purgatory
from minikafka.storage.replication.throttle import RETRY_MS, Throttle

logger = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 64 * 1024
_SYNC_BYTES: Final = 8 * 1024 * 1024
"""Bytes that are fsynced together. Without these fsyncs, a slow disk would delay the writes of other replicas."""
_REST_BYTES: Final = 4 * 1024 * 1024
"""Maximum number of bytes that are copied without a pause at the end, while producers wait."""
_AGAIN_MS: Final = 5_000
"""Interval at which a move is tried again that cannot continue."""
_RESERVE_SHARE: Final = 100
_RESERVE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""A move leaves 1/_RESERVE_SHARE of the disk free, but at most this many bytes."""


class Moves:
    """The moves in progress on one broker.

    `directory_failed(failure)` takes a log directory offline.
    """

    def __init__(
        self,
        logs: LogManager,
        partitions: Mapping[TopicPartition, Partition],
        metadata: MetadataCache,
        purgatory: Purgatory,
        throttle: Throttle,
        slices: Slices,
        clock: Clock,
        tasks: Tasks,
        directory_failed: Callable[[StorageFailed], None],
    ) -> None:
        self._logs = logs
        self._partitions = partitions
        self._metadata = metadata
        self._purgatory = purgatory
        self._throttle = throttle
        self._clock = clock
        self._tasks = tasks
        self._directory_failed = directory_failed
        self._slices = slices
        self.copied: set[Log] = set()
        self._turn_at: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By directory: held by the move that copies to it."""
        self._ending: set[TopicPartition] = set()
        """The replicas whose former directory is not deleted yet."""

    def alter(self, tp: TopicPartition, path: str) -> ErrorCode:
        """Begin to move the replica to the log directory at this path, as Kafka does; return the error code."""
        logs = self._logs
        if len(future_name(tp, 0)) > NAME_BYTES_MAX:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if path not in logs.paths():
            return ErrorCode.LOG_DIR_NOT_FOUND
        if logs.live_directory(path) is None or tp in logs.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if tp not in self._partitions or logs.get(tp) is None:
            if tp.partition in self._metadata.topics.get(tp.topic, {}):
                logs.prefer(tp, path)
            return ErrorCode.REPLICA_NOT_AVAILABLE
        if tp in self._ending:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        try:
            return self._direct(tp, path)
        except StorageFailed as failure:
            self._directory_failed(failure)
            return ErrorCode.KAFKA_STORAGE_ERROR

    def _direct(self, tp: TopicPartition, path: str) -> ErrorCode:
        logs = self._logs
        future, target = logs.futures.logs.get(tp), logs.live_directory(path)
        assert target is not None, path
        if future is not None:
            if logs.futures.directory_of(future) is target:
                return ErrorCode.NONE
            logger.info("the move of %s to %s is cancelled", tp, future.directory)
            logs.drop_copies(tp)
            logs.sync_directories()
        replica = logs.logs[tp]
        if logs.futures.directory_of(replica) is target:
            return ErrorCode.NONE
        if logs.failed_directories:  # an offline directory may have the copy of an earlier move
            return ErrorCode.KAFKA_STORAGE_ERROR
        future = logs.futures.begin(tp, target, self._clock.wall_ms())
        logger.info("moving %s from %s to %s", tp, replica.directory, future.directory)
        self.resume(tp)
        return ErrorCode.NONE

    def resume(self, tp: TopicPartition) -> None:
        """Continue the move of a replica that has a copy. Called when the move or the replica's service begins."""
        replica, future = self._logs.get(tp), self._logs.futures.logs.get(tp)
        if replica is not None and future is not None and future not in self.copied:
            self.copied.add(future)
            self._tasks.spawn(self._move(LogCopy(replica, future)), f"move-{tp}")

    async def _move(self, copy: LogCopy) -> None:
        problem = ""
        try:
            await self._logs.futures.stop_cleaning(copy.replica.tp)
            while self._is_wanted(copy) and (found := await self._attempt(copy)):
                if found != problem:
                    problem = found
                    logger.warning("the move of %s waits: %s", copy.replica.tp, problem)
                await self._clock.sleep(_AGAIN_MS)
        finally:
            self.copied.discard(copy.future)

    def _is_wanted(self, copy: LogCopy) -> bool:
        """True unless the move was cancelled, the replica was deleted, or one of the two directories has failed."""
        tp, logs = copy.replica.tp, self._logs
        return logs.get(tp) is copy.replica and logs.futures.logs.get(tp) is copy.future

    async def _attempt(self, copy: LogCopy) -> str:
        """Copy until the move has ended, and return "". Else return what the move waits for."""
        directory = self._logs.futures.directory_of(copy.future).path
        try:
            async with self._turn_at[directory]:
                while self._is_wanted(copy) and not await self._step(copy, directory):
                    pass
        except (_CannotContinue, CorruptBatch) as problem:
            return str(problem)
        except StorageFailed as failure:
            if self._is_wanted(copy):  # else its files have other names
                self._directory_failed(failure)
            return str(failure) if self._is_wanted(copy) else ""
        return ""

    async def _step(self, copy: LogCopy, directory: str) -> bool:
        """Copy one chunk, or let the complete copy take the replica's place; return True when it has."""
        if copy.future.config is not copy.replica.config:
            copy.future.configure(copy.replica.config)
        if not copy.is_agreed:
            copy.agree()
        room = self._throttle.room()
        if room <= 0:
            await self._clock.sleep(RETRY_MS)
            return False
        size = min(room, _CHUNK_BYTES)
        wanted = copy.next_range(size)
        if wanted is None or copy.lag <= size:
            return await self._end(copy)
        await self._copy(copy, wanted, directory)
        await self._slices.end_step()
        return False

    async def _copy(self, copy: LogCopy, wanted: ByteRange, directory: str) -> None:
        storage = self._logs.storage
        data, (total, usable) = await self._logs.executor.run(
            lambda: (read_range(storage, wanted), storage.room(directory))
        )
        if not self._is_wanted(copy) or not copy.is_agreed:
            return
        if usable < len(data) + min(total // _RESERVE_SHARE, _RESERVE_BYTES_MAX):
            raise _CannotContinue(f"the disk has only {usable} bytes left")
        if not data:
            raise _CannotContinue(f"{wanted.path} is missing")
        partition = self._partitions.get(copy.replica.tp)
        high_watermark = 0 if partition is None else partition.high_watermark
        self._throttle.record(copy.append(data, high_watermark))
        if copy.unsynced >= _SYNC_BYTES:
            copy.unsynced = 0
            await self._logs.syncs.sync_log(copy.future)

    # ---- the end

    async def _end(self, copy: LogCopy) -> bool:
        """Let the copy take the replica's place. Return False if records were appended faster than they are copied."""
        logs, tp = self._logs, copy.replica.tp
        partition = self._partitions.get(tp)
        if partition is None:
            raise _CannotContinue("this broker does not serve the replica")
        self._copy_rest(copy)
        await self._make_durable(copy, partition)
        if not self._is_wanted(copy) or not self._switch(copy, partition):
            return False
        logger.info("%s was moved to %s", tp, copy.future.directory)
        self._ending.add(tp)
        try:
            await logs.retire_replaced(copy.future, copy.replica)
        except StorageFailed as failure:
            if (
                logs.get(tp) is copy.future
            ):  # else the replica has been deleted, and its files have other names
                self._directory_failed(failure)
        finally:
            self._ending.discard(tp)
        return True

    async def _make_durable(self, copy: LogCopy, partition: Partition) -> None:
        logs, future = self._logs, copy.future
        first_dirty = copy.replica.gaps.first_dirty_offset
        if first_dirty not in (None, future.gaps.first_dirty_offset):
            await logs.mark_clean(future, first_dirty)
        copy.save_producers()
        await logs.syncs.sync_log(future)
        await logs.sync_log_starts([future])
        await logs.futures.complete(future, partition.high_watermark)

    def _switch(self, copy: LogCopy, partition: Partition) -> bool:
        """Copy the rest without a pause, and replace the log of the partition."""
        if copy.replica.pending:
            self._purgatory.finish_tick(self._clock.now())
        if not copy.is_agreed or copy.lag > _REST_BYTES:
            return False
        self._copy_rest(copy)
        if copy.replica.pending or not copy.is_complete() or not self._is_wanted(copy):
            return False
        copy.equalize()
        partition.replace_log(self._logs.futures.switch(copy.replica.tp))
        return True

    def _copy_rest(self, copy: LogCopy) -> None:
        """Copy all that is written, without a pause."""
        while (rest := copy.next_range(_CHUNK_BYTES)) is not None:
            data = read_range(self._logs.storage, rest)
            if not data:
                raise _CannotContinue(f"{rest.path} is missing")
            self._throttle.record(copy.append(data))
        copy.raise_start()


class _CannotContinue(Exception):
    """A move waits for something."""
