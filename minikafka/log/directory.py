"""One log directory (`log.dirs`): its lock, its identity, its logs and its three checkpoint files.

Invariant: the clean-shutdown marker is there only between a close in which every log was made durable
and the next start; without it every log is recovered from its recovery point (R25).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from minikafka.base.config import TopicConfig
from minikafka.base.errors import ConfigError, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.ports import File, Storage
from minikafka.log import checkpoints
from minikafka.log.log import Log

logger = logging.getLogger(__name__)

LOCK: Final = ".lock"
DELETED_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"

_NAME_BYTES_MAX: Final = 255
_PARTITION: Final = re.compile(r"((?!\.{1,2}-[0-9]+\Z)[a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_INT_MAX: Final = 2**31 - 1


class LogDirectory:
    """The logs below one path. Every method raises StorageFailed when the disk does."""

    def __init__(self, storage: Storage, path: str) -> None:
        self.storage = storage
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._lock: File | None = None
        self._topic_id_files: dict[bytes, str] = {}
        self._written: dict[str, bytes] = {}
        self._named: dict[str, frozenset[TopicPartition]] = {}
        """Whose offsets each checkpoint file has."""

    # ---- start

    def lock(self) -> None:
        """Make the directory this process's own. Raises ConfigError when another process has it."""
        if self._lock is None:
            self.storage.make_directories(self.path)
            self._lock = self.storage.lock(f"{self.path}/{LOCK}")
        if self._lock is None:
            raise ConfigError(
                f"log.dirs: {self.path} is in use by another broker; stop it or give this one a directory of its own"
            )

    def read_properties(self) -> dict[str, str]:
        """meta.properties; empty when there is none. Raises ConfigError."""
        path = f"{self.path}/{checkpoints.META_PROPERTIES}"
        if not self.storage.exists(path):
            return {}
        try:
            return checkpoints.decode_properties(self.storage.read(path))
        except ValueError as error:
            raise ConfigError(
                f"{path} cannot be read ({error}); restore it or empty the directory"
            ) from None

    def write_properties(self, properties: Mapping[str, str]) -> None:
        """Replace meta.properties."""
        data = checkpoints.encode_properties(properties)
        self.storage.write_atomically(f"{self.path}/{checkpoints.META_PROPERTIES}", data)

    def open_logs(self, config: TopicConfig) -> None:
        """Open every log with these settings, recovering each after an unclean stop; drop deleted ones."""
        marker = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
        clean = self.storage.exists(marker)
        if clean:
            self.storage.remove(marker)
            self.storage.sync_directory(self.path)
        recovery_points = self._read_offsets(checkpoints.RECOVERY_POINTS)
        log_starts = self._read_offsets(checkpoints.LOG_START_OFFSETS)
        first_dirty = self._read_offsets(checkpoints.FIRST_DIRTY_OFFSETS)
        high_watermarks = self._read_offsets(checkpoints.HIGH_WATERMARKS)
        for tp, path in self._found():
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
        logger.info(
            "%s: %d logs after a%s stop",
            self.path,
            len(self.logs),
            " clean" if clean else "n unclean",
        )

    def _read_topic_id(self, directory: str) -> bytes | None:
        """Return the topic id (16 bytes) in a log's `partition.metadata`, None if there is no valid one."""
        path = f"{directory}/{checkpoints.PARTITION_METADATA}"
        if not self.storage.exists(path):
            return None
        try:
            return checkpoints.decode_topic_id(self.storage.read(path))
        except ValueError as error:
            logger.warning("%s is not used: %s", path, error)
            return None

    def _found(self) -> Iterator[tuple[TopicPartition, str]]:
        """Directories of logs; those that were deleted go now, those that were moved aside are named."""
        for name in self.storage.names(self.path):
            path = f"{self.path}/{name}"
            if not self.storage.is_directory(path):
                continue
            if name.endswith(DELETED_SUFFIX):
                self.storage.remove_tree(path)
            elif name.endswith(STRAY_SUFFIX):
                logger.warning(
                    "%s was moved aside and is not served; remove it when it is not needed", path
                )
            elif (tp := _parse_name(name)) is not None:
                yield tp, path

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self.path}/{name}"
        if not self.storage.exists(path):
            return {}
        try:
            offsets = checkpoints.decode_offsets(self.storage.read(path))
        except ValueError as error:
            logger.warning("%s is not used: %s", path, error)
            return {}
        self._named[name] = frozenset(offsets)
        return offsets

    # ---- logs

    def create(self, tp: TopicPartition, config: TopicConfig) -> Log:
        """A new, empty log."""
        self._forget_predecessor(tp)
        log = Log.open(self.storage, f"{self.path}/{tp}", tp, config, clean=True)
        self._adopt(log)
        self.high_watermarks[tp] = 0
        return log

    def _forget_predecessor(self, tp: TopicPartition) -> None:
        """The offsets of a log that was moved aside may still be in the files, and are not those of a new one."""
        if any(tp in named for named in self._named.values()):
            self._write_offsets(checkpoints.HIGH_WATERMARKS, self.high_watermarks, sync=True)
            self.write_recovery_points(sync=True)
            self.write_log_starts(sync=True)
            self.write_first_dirty_offsets()

    def assign_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Write the topic id (16 bytes) into the log's `partition.metadata` (R69).

        Logs of one topic share one file under several names: a name costs a hundredth of a file, and the content
        never changes.
        """
        path = f"{log.directory}/{checkpoints.PARTITION_METADATA}"
        other = self._topic_id_files.get(topic_id)
        if other is None or not self.storage.link(other, path):
            data = checkpoints.encode_topic_id(topic_id)
            self.storage.write_atomically(path, data, sync=False)
        self._topic_id_files[topic_id] = path
        log.topic_id = topic_id

    def _adopt(self, log: Log) -> None:
        log.before_truncation = partial(self.write_recovery_points, sync=True)
        log.gaps.on_marked = self.write_first_dirty_offsets
        self.logs[log.tp] = log

    def sync(self) -> None:
        """Make durable what logs there are, and which of them were moved aside."""
        self.storage.sync_directory(self.path)

    def move_aside(self, tp: TopicPartition, unique: int, suffix: str) -> str:
        """Close the log and rename its directory `topic-partition.<unique>-delete` (or -stray); the new path.

        Durable with the next `sync`.
        """
        log = self.logs.pop(tp)
        self.high_watermarks.pop(tp, None)
        log.abandon()
        while True:
            tail = f".{unique:032x}{suffix}"
            path = f"{self.path}/{str(tp)[: _NAME_BYTES_MAX - len(tail)]}{tail}"
            if not self.storage.exists(path):
                self.storage.rename(log.directory, path, sync=False)
                return path
            unique += 1

    # ---- checkpoints

    def write_high_watermarks(self, known: Mapping[TopicPartition, int]) -> None:
        """replication-offset-checkpoint; a log whose mark is not given keeps the one noted before (R35)."""
        for tp in self.logs:
            if tp in known:
                self.high_watermarks[tp] = known[tp]
        self._write_offsets(checkpoints.HIGH_WATERMARKS, self.high_watermarks)

    def write_recovery_points(self, *, sync: bool = False) -> None:
        """recovery-point-offset-checkpoint of all logs."""
        points = {tp: log.recovery_point for tp, log in self.logs.items()}
        self._write_offsets(checkpoints.RECOVERY_POINTS, points, sync=sync)

    def write_log_starts(self, *, sync: bool = False) -> None:
        """log-start-offset-checkpoint: only logs that start inside their first segment, as in Kafka."""
        starts = {
            tp: log.log_start_offset
            for tp, log in self.logs.items()
            if log.log_start_offset > log.segments[0].base_offset
        }
        self._write_offsets(checkpoints.LOG_START_OFFSETS, starts, sync=sync)

    def write_first_dirty_offsets(self) -> None:
        """Write cleaner-offset-checkpoint: the logs that are or were compacted; no file before there is one."""
        offsets = {
            tp: log.gaps.first_dirty_offset
            for tp, log in self.logs.items()
            if log.gaps.first_dirty_offset is not None
        }
        if offsets or self._named.get(checkpoints.FIRST_DIRTY_OFFSETS):
            self._write_offsets(checkpoints.FIRST_DIRTY_OFFSETS, offsets, sync=True)

    def _write_offsets(
        self, name: str, offsets: Mapping[TopicPartition, int], *, sync: bool = False
    ) -> None:
        """Mostly without fsync: what a power loss leaves is clamped to the log or, when unreadable, not used (S35).

        `sync`: what is written next relies on it.
        """
        data = checkpoints.encode_offsets(offsets)
        if sync or self._written.get(name) != data:
            self.storage.write_atomically(f"{self.path}/{name}", data, sync=sync)
            self._written[name] = data
            self._named[name] = frozenset(offsets)

    # ---- end

    def close(self) -> None:
        """Make every log durable, note where it stands, and mark the stop as clean."""
        for log in self.logs.values():
            log.close()
        self.write_recovery_points()
        self.write_log_starts()
        marker = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
        self.storage.write_atomically(marker, checkpoints.CLEAN_SHUTDOWN_CONTENT)
        self._unlock()

    def abandon(self) -> None:
        """Give all files back and write nothing: the disk failed."""
        for give_back in [*(log.abandon for log in self.logs.values()), self._unlock]:
            _ignoring_failure(give_back)

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _ignoring_failure(action: Callable[[], None]) -> None:
    try:
        action()
    except StorageFailed as failure:
        logger.warning("while giving up a failed directory: %s", failure)


def _parse_name(name: str) -> TopicPartition | None:
    """What else lies there is no replica: its name could not be written to a checkpoint and read again."""
    match = _PARTITION.fullmatch(name)
    if match is None or int(match[2]) > _INT_MAX:
        return None
    return TopicPartition(match[1], int(match[2]))
