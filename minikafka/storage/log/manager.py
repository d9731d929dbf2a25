"""All logs of one broker in its log directories (Kafka's LogManager).

Invariants: a log directory is live or, after its first failed operation, offline until the next
start (S37). All directories have the same identity and coordination mode (`meta.properties`). A replica whose topic id
differs from the topic's is moved aside, never served and never deleted (R69).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.coordination import CONTROLLER, COORDINATION
from minikafka.base.errors import ConfigError, StorageFailed
from minikafka.base.model import TopicPartition, topic_id_text
from minikafka.base.ports import Clock, Executor, Storage
from minikafka.storage.log.checkpoints import CHECKPOINTS, LOG_START_OFFSETS
from minikafka.storage.log.directory import DELETED_SUFFIX, STRAY_SUFFIX, LogDirectory, is_future
from minikafka.storage.log.future_logs import FutureLogs
from minikafka.storage.log.log import Log
from minikafka.storage.log.producer_table import ProducerRoom
from minikafka.storage.log.segments.segment import DELETED
from minikafka.storage.log.syncs import LogSyncs, sync_present

logger = logging.getLogger(__name__)

_META_VERSION: Final = "0"
_RETIRED_MAX: Final = 32
"""Maximum number of segments that are closed in one iteration of the event loop."""


class ReplicaLogInfo(NamedTuple):
    """One log as DescribeLogDirs shows it: the total bytes of the segments, and the log end offset.

    `is_future`: it is the copy of a replica that is being moved.
    """

    tp: TopicPartition
    size: int
    log_end_offset: int
    is_future: bool = False


class Directory(NamedTuple):
    """One log directory and its replicas; `replicas` is None if the directory is offline."""

    path: str
    replicas: tuple[ReplicaLogInfo, ...] | None


class LogManager:
    """The logs on this broker by partition, their directories, and the offline directories."""

    def __init__(
        self, storage: Storage, config: BrokerConfig, clock: Clock, executor: Executor
    ) -> None:
        self.storage = storage
        self.config = config
        self.clock = clock
        self.executor = executor
        self.logs: dict[TopicPartition, Log] = {}
        self.producer_room = ProducerRoom(config.minikafka_producer_ids_max)
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.offline: set[TopicPartition] = set()
        self._live = [LogDirectory(storage, path.rstrip("/") or "/") for path in config.log_dirs]
        self.syncs = LogSyncs(storage, executor, self.logs)
        self.futures = FutureLogs(storage, executor, self._live, self.logs, self._move_copy_aside)
        self._failed: list[LogDirectory] = []
        self.offline_directories: dict[str, str] = {}
        """Path of each directory that is offline after a failure → the reason, in the words of the system."""
        self._deleted: list[tuple[int, str, Log | None]] = []
        """Directories renamed for deletion: monotonic time (ms) when the deletion is due, path, log if it is open."""
        self._preferred: dict[TopicPartition, str] = {}
        """The directories in which replicas will be created that this broker does not host yet."""

    @property
    def failed_directories(self) -> int:
        """Number of log directories that are offline after a failure."""
        return len(self._failed)

    def paths(self) -> set[str]:
        """Return the paths of all directories of `log.dirs`."""
        return {directory.path for directory in (*self._live, *self._failed)}

    def directories(self) -> list[Directory]:
        """Return every directory of `log.dirs` with the logs in service."""
        live = [
            Directory(
                directory.path,
                tuple(
                    _shown(tp, log, is_future=self.futures.logs.get(tp) is log)
                    for tp, log in directory.logs.items()
                    if log in (self.logs.get(tp), self.futures.logs.get(tp))
                ),
            )
            for directory in self._live
        ]
        return live + [Directory(directory.path, None) for directory in self._failed]

    # Start.

    def lock(self) -> None:
        """Lock the directories for this process; a second call has no effect.

        Raises DirectoryInUse if another process holds a lock, StorageFailed if no directory works.
        """
        for directory in list(self._live):
            self._guarded(directory, directory.lock)

    def check_coordination(self) -> None:
        """Raise ConfigError if a directory has the other coordination mode, or an invalid meta.properties.

        A directory of a version without modes belongs to the controller mode.
        """
        own = self.config.minikafka_coordination
        for directory in self._live:
            properties = directory.read_properties()
            found = properties.get(COORDINATION, CONTROLLER) if properties else own
            if found != own:
                raise ConfigError(
                    f"{directory.path} belongs to a cluster with the coordination mode {found}, but this broker has "
                    f"the mode {own}: set {COORDINATION}={found}, or set log.dirs to a directory of this mode"
                )

    def known_cluster_id(self) -> str | None:
        """Return the cluster id of the log directories, None if they are new. Raises ConfigError."""
        found = (directory.read_properties().get("cluster.id") for directory in self._live)
        return next(filter(None, found), None)

    async def start(self, cluster_id: str | None = None) -> None:
        """Lock the directories, check their identity, open and recover every log.

        A directory that fails goes offline. Raises ConfigError, and StorageFailed if the last working
        directory fails.
        """
        self.lock()
        self.check_coordination()
        self._check_identity(cluster_id)
        for directory in list(self._live):
            await self.executor.run(partial(self._open, directory))
        self.futures.adopt(is_whole=not self._failed)
        for tp, log in self.logs.items():
            log.producers.share(self.producer_room)
            self.high_watermarks[tp] = self._directory_of(log).high_watermarks[tp]

    def _open(self, directory: LogDirectory) -> None:
        config = TopicConfig.from_broker(self.config, {})
        self._guarded(directory, partial(directory.open_logs, config))

    def _check_identity(self, cluster_id: str | None) -> None:
        """Check that all directories belong to this broker and cluster. Raises ConfigError.

        Write the identity into every directory that has no identity yet.
        """
        found = {directory.path: directory.read_properties() for directory in self._live}
        own_id = str(self.config.broker_id)
        for path, properties in found.items():
            broker = properties.get("broker.id", own_id)
            if broker != own_id:
                raise ConfigError(
                    f"{path} belongs to broker {broker}: set broker.id = {broker}, "
                    "or set log.dirs to a directory of this broker"
                )
            cluster = properties.get("cluster.id")
            cluster_id = cluster_id or cluster
            if cluster and cluster != cluster_id:
                raise ConfigError(
                    f"{path} belongs to cluster {cluster}, not {cluster_id}: correct zookeeper.connect, "
                    "or set log.dirs to a directory of this broker"
                )
        wanted = {"version": _META_VERSION, "broker.id": own_id}
        if cluster_id:
            wanted["cluster.id"] = cluster_id
        wanted[COORDINATION] = self.config.minikafka_coordination
        for directory in list(self._live):
            properties = found[directory.path]
            if {**properties, **wanted} != properties:
                self._guarded(
                    directory, partial(directory.write_properties, {**properties, **wanted})
                )

    # Logs.

    def get(self, tp: TopicPartition) -> Log | None:
        """Return the log of a partition, None if this broker has no log of the partition."""
        return self.logs.get(tp)

    def create(
        self, tp: TopicPartition, topic_id: bytes | None, config: TopicConfig, is_new: bool
    ) -> Log:
        """Return the partition's log; create it in the emptiest live directory if it does not exist.

        An existing log with another topic id is moved aside, and a new log is created. If `is_new`
        is False and a directory is offline, no log is created, because the existing log may be in
        the offline directory (R67): raises StorageFailed. Also raises StorageFailed if no directory
        is live, and ConfigError if the path of the log is a symbolic link.
        """
        log = self.logs.get(tp)
        if log is not None and topic_id and log.topic_id and log.topic_id != topic_id:
            self._move_stray(log, topic_id)
            log = None
        if log is None:
            if self._failed and not is_new:
                raise _offline(f"{self._failed[0].path}/{tp}")
            if not self._live:
                raise _offline(str(tp))
            self._set_copy_aside(tp)
            log = self._create_in(self._next_directory(tp), tp, topic_id, config)
        elif topic_id and log.topic_id is None:
            self._directory_of(log).assign_topic_id(log, topic_id)
        log.configure(config)
        return log

    def _create_in(
        self,
        directory: LogDirectory,
        tp: TopicPartition,
        topic_id: bytes | None,
        config: TopicConfig,
    ) -> Log:
        """Create a log with this topic id; delete the log again if its topic id cannot be written.

        Without an id, it would be taken for the log of a later topic with the same name.
        """
        log = self.logs[tp] = directory.create(tp, config)
        log.producers.share(self.producer_room)
        self.high_watermarks[tp] = 0
        self.offline.discard(tp)
        if topic_id and log.topic_id is None:
            try:
                directory.assign_topic_id(log, topic_id)
            except StorageFailed:
                path = self._move_aside(tp, DELETED_SUFFIX)
                self._deleted.append((self.clock.now(), path, None))
                raise
        return log

    def _next_directory(self, tp: TopicPartition) -> LogDirectory:
        """Return the directory for a new replica: the one that was asked for, else the one with the fewest logs."""
        preferred = self.live_directory(self._preferred.pop(tp, ""))
        return preferred or min(self._live, key=lambda live: len(live.logs))

    def live_directory(self, path: str) -> LogDirectory | None:
        """Return the directory with this path, None if it is offline or not in `log.dirs`."""
        return next((live for live in self._live if live.path == path), None)

    def prefer(self, tp: TopicPartition, path: str) -> None:
        """Create the replica, which this broker does not host yet, in the directory with this path."""
        self._preferred[tp] = path

    def _set_copy_aside(self, tp: TopicPartition) -> None:
        """Keep the copy of a replica that is gone under another name: the copy may be all that is left of it."""
        future = self.futures.logs.pop(tp, None)
        if future is not None:
            path = self._directory_of(future).move_aside(tp, self.clock.wall_ms(), STRAY_SUFFIX)
            logger.warning(
                "the replica of %s is gone; the incomplete copy of it is kept in %s", tp, path
            )

    def _move_stray(self, log: Log, topic_id: bytes) -> None:
        directory = self._directory_of(log)
        path = self._move_aside(log.tp, STRAY_SUFFIX)
        directory.sync()
        logger.warning(
            "The replica of %s has topic id %s instead of %s; moved to %s",
            log.tp,
            topic_id_text(log.topic_id or b""),
            topic_id_text(topic_id),
            path,
        )

    def _move_aside(self, tp: TopicPartition, suffix: str) -> str:
        """Take a replica out of service, and rename its directory; delete its copies in other directories."""
        directory = self._directory_of(self.logs.pop(tp))
        self.high_watermarks.pop(tp, None)
        path = directory.move_aside(tp, self.clock.wall_ms(), suffix)
        self.drop_copies(tp)
        return path

    async def retire_replaced(self, log: Log, replaced: Log) -> None:
        """End a move after `switch`: delete the former replica. Raises StorageFailed."""
        await self.futures.retire(log, replaced)
        await self.futures.finish(log)

    def drop_copies(self, tp: TopicPartition) -> None:
        """Delete the logs of a partition that are not its replica: its copy, and what a move has replaced."""
        self.futures.logs.pop(tp, None)
        for directory in self.futures.others(tp):
            self._move_copy_aside(directory, tp, DELETED_SUFFIX)

    def _move_copy_aside(self, directory: LogDirectory, tp: TopicPartition, suffix: str) -> None:
        """Rename a log that is not in service; until it is deleted, it can be read."""
        log = directory.logs[tp]
        path = directory.move_aside(tp, self.clock.wall_ms(), suffix, is_read=True)
        due = self.clock.now() + log.config.file_delete_delay_ms
        if suffix == DELETED_SUFFIX:
            self._deleted.append((due, path, log))
        else:
            log.abandon()

    def sync_directories(self) -> None:
        """Fsync every live directory, so that removed logs stay removed after a power loss.

        Raises StorageFailed.
        """
        for directory in self._live:
            directory.sync()

    def _directory_of(self, log: Log) -> LogDirectory:
        return next(
            directory for directory in self._live if log.directory.startswith(directory.path + "/")
        )

    def rename_for_deletion(self, tp: TopicPartition) -> None:
        """Take the log out of service; `delete_renamed` deletes its files after `file.delete.delay.ms` (R66).

        No effect if this broker has no log of the partition.
        """
        log = self.logs.get(tp)
        if log is not None:
            due = self.clock.now() + log.config.file_delete_delay_ms
            self._deleted.append((due, self._move_aside(tp, DELETED_SUFFIX), None))
        else:
            self.drop_copies(tp)

    def set_aside(self, tp: TopicPartition) -> str:
        """Take the log out of service but keep its files; return the new directory. Raises StorageFailed."""
        path = self._move_aside(tp, STRAY_SUFFIX)
        self.sync_directories()
        return path

    async def delete_retired(self, now: int) -> None:
        """Delete the files of removed segments whose delay is over, outside the event loop. Raises StorageFailed."""
        for directory in list(self._live):
            while segments := directory.retired.take_due(now, _RETIRED_MAX):
                for segment in segments:
                    segment.close()
                paths = [path + DELETED for segment in segments for path in segment.paths()]
                await self.executor.run(partial(_remove_files, self.storage, paths))

    async def delete_renamed(self, now: int) -> None:
        """Delete the files of the logs that were renamed for deletion and whose delay is over.

        If a deletion fails, the other logs are still deleted, and the last StorageFailed is raised at the
        end. The next start deletes the remaining files, or the next call if only a file descriptor was missing.
        """
        expired = [(path, log) for due, path, log in self._deleted if due <= now]
        self._deleted = [entry for entry in self._deleted if entry[0] > now]
        failed: StorageFailed | None = None
        for path, log in expired:
            try:
                if log is not None:
                    log.abandon()
                await self.executor.run(partial(self.storage.remove_tree, path))
            except StorageFailed as failure:
                failed = failure
                if failure.lacks_descriptors:
                    self._deleted.append((now, path, None))
        if failed is not None:
            raise failed

    # Checkpoints.

    def checkpoint_high_watermarks(self, known: Mapping[TopicPartition, int]) -> None:
        """Write replication-offset-checkpoint in every live directory. Raises StorageFailed."""
        self.high_watermarks.update(known)
        for directory in self._live:
            directory.write_high_watermarks(known)

    def checkpoint(self) -> None:
        """Write recovery points, log start offsets and the indexes of active segments; forget idle producers.

        Raises StorageFailed.
        """
        wall_ms = self.clock.wall_ms()
        for log in self.logs.values():
            log.checkpoint_indexes()
            log.producers.expire(wall_ms, self.config.producer_id_expiration_ms)
        self._limit_producers()
        for directory in self._live:
            directory.write_recovery_points()
            directory.write_log_starts()

    async def sync_checkpoints(self) -> None:
        """Make the checkpoints durable that were written without an fsync, outside the event loop.

        Without this, a power loss may leave an invalid file, and the log start offsets would be lost. Raises
        StorageFailed.
        """
        for directory in list(self._live):
            paths = [f"{directory.path}/{name}" for name in CHECKPOINTS]
            await self.executor.run(partial(sync_present, self.storage, directory.path, paths))

    def _limit_producers(self) -> None:
        """If more than three quarters of the allowed producers are known, forget the ones that are idle the longest.

        The logs with the most producers forget first, until half of the allowed producers are left.
        """
        by_count = sorted(self.logs.values(), key=lambda log: len(log.producers), reverse=True)
        room, config = self.producer_room, self.config
        room.begin_round(sum(len(log.producers) for log in by_count))
        if room.count <= room.maximum * 3 // 4:
            return
        interval = config.log_flush_offset_checkpoint_interval_ms
        rounds = -(-config.minikafka_producer_ids_keep_ms // interval)
        for log in by_count:
            if room.count <= room.maximum // 2:
                break
            log.producers.forget_idle(rounds, room.count - room.maximum // 2)

    async def sync_log_starts(self, logs: Iterable[Log]) -> None:
        """Make the checkpoints of these logs' start offsets durable, outside the event loop. Raises StorageFailed."""
        for directory in {self._directory_of(log) for log in logs}:
            directory.write_log_starts()
            path = f"{directory.path}/{LOG_START_OFFSETS}"
            await self.executor.run(partial(sync_present, self.storage, directory.path, [path]))

    async def mark_clean(self, log: Log, first_dirty_offset: int) -> None:
        """Persist that the log is compacted below this offset. Raises StorageFailed.

        The file is written outside the event loop.
        """
        before = log.gaps.first_dirty_offset
        log.gaps.accept(first_dirty_offset)
        try:
            await self._directory_of(log).write_first_dirty_offsets_in(self.executor)
        except StorageFailed:
            if log.gaps.first_dirty_offset == first_dirty_offset:
                log.gaps.first_dirty_offset = before
            raise

    # Failure and close.

    def fail_directory(self, path: str, error: str = "") -> list[TopicPartition]:
        """Take the directory that contains this path offline; return the partitions whose logs go offline (S37).

        `error`: the reason, which is added to `offline_directories`.
        """
        directory = self._holder(path, self._live)
        if directory is None:
            return []
        self._live.remove(directory)
        self._failed.append(directory)
        self.offline_directories[directory.path] = error
        lost = [tp for tp, log in directory.logs.items() if self.logs.get(tp) is log]
        for tp in lost:
            del self.logs[tp]
        for tp, log in directory.logs.items():
            if self.futures.logs.get(tp) is log:
                del self.futures.logs[tp]
        self.offline.update(lost)
        directory.abandon()
        return lost

    def has_path(self, path: str) -> bool:
        """True if the path is in one of the directories of `log.dirs`."""
        return self._holder(path, [*self._live, *self._failed]) is not None

    def _holder(self, path: str, among: Iterable[LogDirectory]) -> LogDirectory | None:
        return next((one for one in among if (path + "/").startswith(one.path + "/")), None)

    async def close(self) -> None:
        """Close every log; mark a directory as cleanly stopped if all its logs became durable."""
        for directory in list(self._live):
            await self.executor.run(partial(self._close, directory))
        for _, _, log in self._deleted:
            if log is not None:
                log.abandon()

    def _close(self, directory: LogDirectory) -> None:
        try:
            directory.close()
        except StorageFailed as failure:
            logger.error(
                "Log directory %s is not marked as cleanly stopped: %s", directory.path, failure
            )
            directory.abandon()

    def _guarded(self, directory: LogDirectory, action: Callable[[], None]) -> None:
        """Run an operation on a directory; if it fails, take the directory offline.

        The last live directory is not taken offline: its failure is raised as StorageFailed. Raises ConfigError if no
        file descriptor is free.
        """
        try:
            action()
        except StorageFailed as failure:
            if failure.lacks_descriptors:
                raise ConfigError(
                    f"{failure}: raise the limit of open files (ulimit -n); every log segment needs one"
                ) from failure
            if len(self._live) == 1:
                raise
            logger.error("Log directory %s is offline: %s", directory.path, failure)
            self.offline.update(tp for tp, log in directory.logs.items() if not is_future(log))
            self.fail_directory(directory.path, failure.reason)


def _shown(tp: TopicPartition, log: Log, *, is_future: bool) -> ReplicaLogInfo:
    return ReplicaLogInfo(tp, log.size, log.written_log_end_offset, is_future)


def _offline(path: str) -> StorageFailed:
    return StorageFailed(path, OSError(errno.EIO, "the log directory is offline"))


def _remove_files(storage: Storage, paths: list[str]) -> None:
    for path in paths:
        storage.remove(path)
