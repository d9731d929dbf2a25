"""One log directory of `log.dirs`: its lock, its meta.properties, its logs and its checkpoint files.

Invariant: the clean-shutdown marker exists only between a shutdown that made every log durable and the next
start. Without the marker every log is recovered from its recovery point (R25).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Final

from minikafka.base.config import TopicConfig
from minikafka.base.errors import ConfigError, DirectoryInUse, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.names import (
    is_deleted_replica,
    parse_cluster_id,
    parse_future_directory,
    parse_number,
    parse_replica_directory,
)
from minikafka.base.ports import Executor, File, Storage
from minikafka.storage.log import checkpoints
from minikafka.storage.log.log import Log
from minikafka.storage.log.segments.segments import RetiredSegments

logger = logging.getLogger(__name__)

LOCK: Final = ".lock"
DELETED_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
FUTURE_SUFFIX: Final = "-future"
"""Suffix of the directory of a copy, which replaces the replica in another log directory when it is complete."""
MOVED: Final = "minikafka-moved"
"""File in the directory of a complete copy. If a crash leaves the replica in two directories, this one counts."""

NAME_BYTES_MAX: Final = 255
_NEXT: Final = ".next"
"""Suffix of the temporary file of a checkpoint that is written outside the event loop."""
_LEFTOVERS: Final = (_NEXT, _NEXT + ".tmp")
"""Suffixes of temporary files left by a crash. The next start removes these files: no later write replaces them."""


class LogDirectory:
    """One log directory and its logs. Every method raises StorageFailed when the disk fails.

    `logs`: the replicas in this directory, and the copies of replicas that are being moved to it (`is_future`).
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self.storage = storage
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.retired = RetiredSegments()
        self._lock: File | None = None
        self._topic_id_files: dict[bytes, str] = {}
        self._written: dict[str, bytes] = {}
        self._next = count()
        self._named: dict[str, frozenset[TopicPartition]] = {}
        """The partitions that have an entry in each checkpoint file, by file name."""

    # ---- start

    def lock(self) -> None:
        """Take the lock of the directory. Raises DirectoryInUse if another process holds it."""
        if self._lock is None:
            self.storage.make_directories(self.path)
            self._lock = self.storage.lock(f"{self.path}/{LOCK}")
        if self._lock is None:
            holder = self.storage.lock_holder(f"{self.path}/{LOCK}")
            raise DirectoryInUse(
                f"log.dirs: {self.path} is in use: {holder} holds {self.path}/{LOCK}; "
                "stop that process, or set another directory"
            )

    def read_properties(self) -> dict[str, str]:
        """Return the properties in meta.properties, {} if the file is missing. Raises ConfigError if it is invalid."""
        path = f"{self.path}/{checkpoints.META_PROPERTIES}"
        if not self.storage.exists(path):
            return {}
        try:
            properties = checkpoints.decode_properties(self.storage.read(path))
            checkpoints.check_version(properties)
            parse_number(properties.get("broker.id", "0"))
            parse_cluster_id(properties.get("cluster.id", "none"))
        except ValueError as error:
            raise ConfigError(
                f"{path} is invalid ({error}); restore the file or empty the directory"
            ) from None
        return properties

    def write_properties(self, properties: Mapping[str, str]) -> None:
        """Replace meta.properties. A directory without this file may be new, so its name is made durable first."""
        self._sync_own_name()
        data = checkpoints.encode_properties(properties)
        self.storage.write_atomically(f"{self.path}/{checkpoints.META_PROPERTIES}", data)

    def _sync_own_name(self) -> None:
        parent, slash, _ = self.path.rpartition("/")
        try:
            self.storage.sync_directory(parent or slash or ".")
        except StorageFailed as failure:
            if failure.cause.errno != errno.EACCES:
                raise
            logger.warning(
                "the name of %s is not made durable, because its parent cannot be read", self.path
            )

    def open_logs(self, config: TopicConfig) -> None:
        """Open every log with these topic settings. Recover logs after an unclean stop; remove deleted logs."""
        marker = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
        clean = self.storage.exists(marker)
        if clean:
            # Durably gone before a log changes: after a crash, every log is recovered (R25).
            self.storage.remove(marker)
            self.storage.sync_directory(self.path)
        recovery_points = self._read_offsets(checkpoints.RECOVERY_POINTS)
        log_starts = self._read_offsets(checkpoints.LOG_START_OFFSETS)
        first_dirty = self._read_offsets(checkpoints.FIRST_DIRTY_OFFSETS)
        high_watermarks = self._read_offsets(checkpoints.HIGH_WATERMARKS)
        found = list(self._found())
        if found:
            stop = "a clean stop" if clean else "an unclean stop"
            logger.info("%s: opening %d logs after %s", self.path, len(found), stop)
        for tp, path in found:
            log = Log.open(
                self.storage,
                path,
                tp,
                config,
                clean=clean,
                recovery_point=recovery_points.get(tp, 0),
                log_start_offset=log_starts.get(tp, 0),
                first_dirty_offset=first_dirty.get(tp),
            )
            log.topic_id = self._read_topic_id(path)
            self._adopt(log)
            high_watermark = min(high_watermarks.get(tp, 0), log.log_end_offset)
            self.high_watermarks[tp] = max(high_watermark, log.log_start_offset)
        self._lower_checkpoints(recovery_points, first_dirty, high_watermarks)
        if found:
            logger.info("%s: opened all logs", self.path)
        else:
            logger.info("%s: has no logs yet", self.path)

    def _lower_checkpoints(
        self,
        recovery_points: Mapping[TopicPartition, int],
        first_dirty: Mapping[TopicPartition, int],
        high_watermarks: Mapping[TopicPartition, int],
    ) -> None:
        """Write the checkpoints again, durably, if a log ends below an offset in them.

        The log will grow beyond this offset. The next start would then not check new records that may be damaged, the
        cleaner would leave new records out, and new records would count as committed.
        """
        logs = self.logs.items()
        if any(log.recovery_point < recovery_points.get(tp, 0) for tp, log in logs):
            self.write_recovery_points(sync=True)
        if any(
            first_dirty.get(tp, 0) > offset for tp, offset in self.first_dirty_offsets().items()
        ):
            self.write_first_dirty_offsets()
        if any(high_watermarks.get(tp, 0) > log.log_end_offset for tp, log in logs):
            self._write_offsets(checkpoints.HIGH_WATERMARKS, self.high_watermarks, sync=True)

    def _read_topic_id(self, directory: str) -> bytes | None:
        """Return the topic id (16 bytes) in a log's `partition.metadata`, None if the file is missing or invalid."""
        path = f"{directory}/{checkpoints.PARTITION_METADATA}"
        if not self.storage.exists(path):
            return None
        try:
            return checkpoints.decode_topic_id(self.storage.read(path))
        except ValueError as error:
            logger.warning("ignoring the invalid file %s: %s", path, error)
            return None

    def _found(self) -> Iterator[tuple[TopicPartition, str]]:
        """Yield the partition and path of each log; remove deleted replicas, and warn about other directories.

        Raises ConfigError if the directory of a replica is a symbolic link.
        """
        found: set[TopicPartition] = set()
        for name in self.storage.names(self.path):
            path = f"{self.path}/{name}"
            tp, is_deleted = _partition_of(name), is_deleted_replica(name)
            if (tp or is_deleted) and self.storage.is_link(path):
                raise ConfigError(_link_refused(path))
            if not self.storage.is_directory(path):
                if name.endswith(_LEFTOVERS):
                    self.storage.remove(path)
                continue
            if is_deleted:
                self.storage.remove_tree(path)
            elif name.endswith(STRAY_SUFFIX):
                logger.warning(
                    "%s is a stray replica and is not served; remove it if you do not need it", path
                )
            elif tp is not None and tp not in found:
                found.add(
                    tp
                )  # a replica comes before its copy in the same directory, which is of no use
                yield tp, path
            else:
                logger.warning("ignoring %a: it is not the directory of a replica", path)

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self.path}/{name}"
        if not self.storage.exists(path):
            return {}
        data = self.storage.read(path)
        if not data:  # Kafka makes its files empty
            return {}
        try:
            offsets = checkpoints.decode_offsets(data)
        except ValueError as error:
            logger.warning("ignoring the invalid file %s: %s", path, error)
            return {}
        self._named[name] = frozenset(offsets)
        return offsets

    # ---- logs

    def create(self, tp: TopicPartition, config: TopicConfig) -> Log:
        """Create and return an empty log. Raises ConfigError if the path of the log is a symbolic link."""
        return self._create(tp, f"{self.path}/{tp}", config)

    def create_future(self, tp: TopicPartition, config: TopicConfig, unique: int) -> Log:
        """Create and return an empty log for the copy of a replica of another directory."""
        return self._create(tp, f"{self.path}/{future_name(tp, unique)}", config)

    def _create(self, tp: TopicPartition, path: str, config: TopicConfig) -> Log:
        if self.storage.is_link(path):
            raise ConfigError(_link_refused(path))
        # Before the log exists: a crash must not give it the offsets of an earlier log.
        self._forget_predecessor(tp)
        log = Log.open(self.storage, path, tp, config, clean=True)
        self._adopt(log)
        self.high_watermarks[tp] = 0
        return log

    def _forget_predecessor(self, tp: TopicPartition) -> None:
        """Remove the offsets of an earlier log of this partition from the checkpoints."""
        if any(tp in named for named in self._named.values()):
            self._write_offsets(checkpoints.HIGH_WATERMARKS, self.high_watermarks, sync=True)
            self.write_recovery_points(sync=True)
            self.write_log_starts(sync=True)
            self.write_first_dirty_offsets()

    def assign_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Write the topic id (16 bytes) into the log's `partition.metadata` (R69).

        Logs of one topic share one file through hard links, because creating a link costs a hundredth of
        creating a file. The content of the file never changes.
        """
        path = f"{log.directory}/{checkpoints.PARTITION_METADATA}"
        other = self._topic_id_files.get(topic_id)
        if other is None or not self.storage.link(other, path):
            data = checkpoints.encode_topic_id(topic_id)
            self.storage.write_atomically(path, data, sync=False)
        self._topic_id_files[topic_id] = path
        log.topic_id = topic_id
        log.has_durable_name = False

    def _adopt(self, log: Log) -> None:
        log.write_checkpoints = partial(self._write_checkpoints_of, log)
        log.lower_high_watermark = partial(self._lower_high_watermark, log.tp)
        log.retired = self.retired
        log.gaps.on_marked = self.write_first_dirty_offsets
        self.logs[log.tp] = log

    def _write_checkpoints_of(self, log: Log) -> None:
        """Make the recovery points durable, and the log start offsets if the log has an entry or needs one."""
        self.write_recovery_points(sync=True)
        has_entry = log.tp in self._named.get(checkpoints.LOG_START_OFFSETS, ())
        if has_entry or _starts_inside(log):
            self.write_log_starts(sync=True)

    def _lower_high_watermark(self, tp: TopicPartition, offset: int) -> None:
        """Limit the checkpointed high watermark to this offset, and make the checkpoint durable if it has changed.

        With a higher checkpoint, a restart could take records that are appended later for committed records.
        """
        if self.high_watermarks.get(tp, 0) > offset:
            self.high_watermarks[tp] = offset
            self._write_offsets(checkpoints.HIGH_WATERMARKS, self.high_watermarks, sync=True)

    def sync(self) -> None:
        """Fsync the directory, so that created and renamed logs survive a power loss."""
        self.storage.sync_directory(self.path)

    def promote(self, tp: TopicPartition) -> None:
        """Give a complete copy the name of a replica. The rename is durable after the next `sync`."""
        log, path = self.logs[tp], f"{self.path}/{tp}"
        if self.storage.exists(path):
            raise StorageFailed(
                path, OSError(errno.EEXIST, "the name of the moved replica is taken")
            )
        self.storage.rename(log.directory, path, sync=False)
        log.renamed(path)

    def move_aside(
        self, tp: TopicPartition, unique: int, suffix: str, *, is_read: bool = False
    ) -> str:
        """Close the log and rename its directory to `topic-partition.<unique>-delete` or `-stray`.

        Return the new path. The rename is durable after the next `sync`. `is_read`: keep the files open, because
        responses with records of the log may not be sent yet; the caller closes the log later.
        """
        log = self.logs.pop(tp)
        self.high_watermarks.pop(tp, None)
        if not is_read:
            log.abandon()
            self.retired.close(log.directory)
        while True:
            tail = f".{unique:032x}{suffix}"
            path = f"{self.path}/{str(tp)[: NAME_BYTES_MAX - len(tail)]}{tail}"
            if not self.storage.exists(path):
                self.storage.rename(log.directory, path, sync=False)
                return path
            unique += 1

    # ---- checkpoints

    def write_high_watermarks(self, known: Mapping[TopicPartition, int]) -> None:
        """Write replication-offset-checkpoint with the high watermarks in `known` (partition -> offset).

        A partition that is not in `known` keeps its last value (R35).
        """
        for tp, log in self.logs.items():
            if tp in known:
                # A copy may end below: a higher checkpoint would later count records as committed that are not.
                self.high_watermarks[tp] = min(known[tp], log.written_log_end_offset)
        self._write_offsets(checkpoints.HIGH_WATERMARKS, self.high_watermarks)

    def write_recovery_points(self, *, sync: bool = False) -> None:
        """Write recovery-point-offset-checkpoint for all logs."""
        points = {tp: log.recovery_point for tp, log in self.logs.items()}
        self._write_offsets(checkpoints.RECOVERY_POINTS, points, sync=sync)

    def write_log_starts(self, *, sync: bool = False) -> None:
        """Write log-start-offset-checkpoint for the logs whose start lies inside the first segment, as in Kafka."""
        starts = {tp: log.log_start_offset for tp, log in self.logs.items() if _starts_inside(log)}
        self._write_offsets(checkpoints.LOG_START_OFFSETS, starts, sync=sync)

    def first_dirty_offsets(self) -> dict[TopicPartition, int]:
        """Return the offset at which the next compaction begins, for each log that is or was compacted."""
        return {
            tp: log.gaps.first_dirty_offset
            for tp, log in self.logs.items()
            if log.gaps.first_dirty_offset is not None
        }

    def write_first_dirty_offsets(self) -> None:
        """Write cleaner-offset-checkpoint for the logs that are or were compacted, and fsync it.

        The file is not created if no log is or was compacted.
        """
        offsets = self.first_dirty_offsets()
        if offsets or self._named.get(checkpoints.FIRST_DIRTY_OFFSETS):
            self._write_offsets(checkpoints.FIRST_DIRTY_OFFSETS, offsets, sync=True)

    async def write_first_dirty_offsets_in(self, executor: Executor) -> None:
        """Write cleaner-offset-checkpoint outside the event loop; never overwrite newer offsets with older ones."""
        name = checkpoints.FIRST_DIRTY_OFFSETS
        path = f"{self.path}/{name}"
        following = f"{path}.{next(self._next)}{_NEXT}"
        is_current = False
        while not is_current:
            offsets, before = self.first_dirty_offsets(), self._written.get(name)
            data = checkpoints.encode_offsets(offsets)
            await executor.run(partial(self.storage.write_atomically, following, data))
            is_current = (
                self._written.get(name) is before
            )  # the event loop may have written the file meanwhile
        self.storage.rename(following, path, sync=False)
        self._written[name] = data
        self._named[name] = frozenset(offsets)
        await executor.run(self.sync)

    def _write_offsets(
        self, name: str, offsets: Mapping[TopicPartition, int], *, sync: bool = False
    ) -> None:
        """Write an offset checkpoint if its content has changed; fsync the file only if `sync` is true.

        The periodic checkpoint fsyncs the file later. After a power loss, offsets from an old file are clamped to the
        log, and an invalid file is ignored (S35). `sync`: write and fsync the file even if its content has not changed,
        because the caller's next change relies on a durable file.
        """
        data = checkpoints.encode_offsets(offsets)
        if sync or self._written.get(name) != data:
            self.storage.write_atomically(f"{self.path}/{name}", data, sync=sync)
            self._written[name] = data
            self._named[name] = frozenset(offsets)

    # ---- end

    def close(self) -> None:
        """Make every log durable, write recovery points and log start offsets, and mark the stop as clean."""
        for log in self.logs.values():
            log.close()
        self.write_recovery_points(sync=True)
        self.write_log_starts(sync=True)
        # Last: the marker says that all of this is durable.
        marker = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
        self.storage.write_atomically(marker, checkpoints.CLEAN_SHUTDOWN_CONTENT)
        self.retired.close()
        self._unlock()

    def abandon(self) -> None:
        """Close all files without writing, after a disk failure."""
        for close in [
            *(log.abandon for log in self.logs.values()),
            self.retired.close,
            self._unlock,
        ]:
            _ignoring_failure(close)

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def is_future(log: Log) -> bool:
    """True if the log is the copy of a replica that is being moved."""
    return log.directory.endswith(FUTURE_SUFFIX)


def future_name(tp: TopicPartition, unique: int) -> str:
    """Return the name of the directory of a copy."""
    return f"{tp}.{unique:032x}{FUTURE_SUFFIX}"


def _starts_inside(log: Log) -> bool:
    """True if the log start offset lies above the first offset of the first segment."""
    return log.log_start_offset > log.segments[0].base_offset


def _ignoring_failure(action: Callable[[], None]) -> None:
    try:
        action()
    except StorageFailed as failure:
        logger.warning("closing the files of a failed log directory: %s", failure)


def _partition_of(name: str) -> TopicPartition | None:
    """Return the partition of the directory of a replica or of a copy, None for any other name."""
    try:
        return parse_replica_directory(name)
    except ValueError:
        return parse_future_directory(name)


def _link_refused(path: str) -> str:
    return (
        f"{path} must not be a symbolic link: replace the link by the replica's directory, "
        "or remove the link"
    )
