"""The replicas, segment files and checkpoints in the log directories of brokers.

This code runs on the driver, and reads only file names and checkpoint files. Invariant: no file is changed.
A directory that no broker has used is rejected, so that a wrong path does not look like an empty cluster.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.base.names import offsets_of, parse_number, parse_replica_directory
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.storage.log import checkpoints
from minikafka.storage.log.directory import LOCK

_LOG: Final = ".log"


class SegmentFile(NamedTuple):
    """One segment file of a replica; the first five fields are the columns of `headers.SEGMENTS`."""

    path: str
    broker: int
    topic: str
    partition: int
    base_offset: int
    size: int


class CheckedReplica(NamedTuple):
    """One replica, with the offsets that its broker's checkpoints state."""

    broker: int
    topic: str
    partition: int
    start: int
    """Log start offset."""
    dense_from: int
    """First offset that the cleaner has not compacted. Without compaction, the log start offset."""
    high_watermark: int | None
    """The checkpointed high watermark. None without a checkpoint: the whole log then counts as committed."""
    torn_from: int | None
    """The recovery point after an unclean shutdown: later offsets may be damaged. None after a clean shutdown."""


def log_directories(paths: Iterable[str]) -> list[Path]:
    """Return the log directories among `paths`, and the log directories named `broker-N` directly below `paths`.

    Raises PipelineError if there is no log directory at or directly below a path, or if the directories belong to
    different clusters.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            raise PipelineError(f"there is no directory {path}: name the directories of log.dirs")
        candidates = [path, *sorted(path.glob("broker-*"))]
        logs = [one for one in candidates if (one / checkpoints.META_PROPERTIES).is_file()]
        if not logs:
            raise PipelineError(
                f"{path} is no log directory of a broker: it has no {checkpoints.META_PROPERTIES},"
                " and no directory broker-N that has one; name the directories of log.dirs"
            )
        found += logs
    distinct = list({path.resolve(): path for path in found}.values())
    _check_cluster(distinct)
    return distinct


def _check_cluster(directories: Iterable[Path]) -> None:
    """Raise PipelineError if the directories belong to different clusters."""
    clusters: dict[str, Path] = {}
    for directory in directories:
        if cluster := _properties(directory).get("cluster.id"):
            clusters.setdefault(cluster, directory)
    if len(clusters) > 1:
        named = ", ".join(f"{path} of cluster {name}" for name, path in clusters.items())
        raise PipelineError(f"the log directories are of several clusters: {named}; check one")


def running_brokers(directories: Iterable[Path]) -> list[int]:
    """Return the ids of the brokers that hold the lock file of a log directory."""
    return sorted({_broker(path) for path in directories if _is_locked(path / LOCK)})


def _is_locked(file: Path) -> bool:
    """True if a broker holds the lock file. This function briefly takes a shared lock and writes nothing."""
    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def find(
    directories: Sequence[Path], topics: Sequence[str]
) -> tuple[list[CheckedReplica], list[SegmentFile]]:
    """Return the replicas of these topics (all topics if empty) and the segment files of the replicas.

    Raises PipelineError if two directories hold the same replica of the same broker.
    """
    replicas: list[CheckedReplica] = []
    segments: list[SegmentFile] = []
    places: dict[tuple[int, TopicPartition], Path] = {}
    for directory in directories:
        broker = _broker(directory)
        offsets = _Checkpoints(directory)
        for tp, path in _partitions(directory):
            if topics and tp.topic not in topics:
                continue
            if (other := places.setdefault((broker, tp), path)) != path:
                raise PipelineError(
                    f"{other} and {path} are the same replica of broker {broker}: name one"
                )
            own = list(_segments(path, broker, tp))
            segments += own
            first = own[0].base_offset if own else 0
            replicas.append(offsets.replica(broker, tp, first))
    return replicas, segments


def _broker(directory: Path) -> int:
    try:
        return parse_number(_properties(directory)["broker.id"])
    except (KeyError, ValueError) as error:
        file = directory / checkpoints.META_PROPERTIES
        raise PipelineError(f"{file} has no valid broker.id: {error}") from error


def _properties(directory: Path) -> dict[str, str]:
    file = directory / checkpoints.META_PROPERTIES
    try:
        return checkpoints.decode_properties(file.read_bytes())
    except ValueError as error:
        raise PipelineError(f"{file} is invalid: {error}") from error


def _partitions(directory: Path) -> Iterator[tuple[TopicPartition, Path]]:
    """Yield the partition and the path of each replica in a log directory.

    Deleted and moved replicas are left out, because their directories have other names.
    """
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            try:
                yield parse_replica_directory(path.name), path
            except ValueError:
                continue


def _segments(path: Path, broker: int, tp: TopicPartition) -> Iterator[SegmentFile]:
    for base in offsets_of((file.name for file in path.iterdir()), _LOG):
        file = path / f"{base:020d}{_LOG}"
        yield SegmentFile(str(file), broker, *tp, base, file.stat().st_size)


class _Checkpoints:
    """The offset checkpoints of one log directory."""

    def __init__(self, directory: Path) -> None:
        self._high_watermarks = _offsets(directory / checkpoints.HIGH_WATERMARKS)
        self._starts = _offsets(directory / checkpoints.LOG_START_OFFSETS)
        self._recovery_points = _offsets(directory / checkpoints.RECOVERY_POINTS)
        self._first_dirty = _offsets(directory / checkpoints.FIRST_DIRTY_OFFSETS)
        self._is_clean = (directory / checkpoints.CLEAN_SHUTDOWN).exists()

    def replica(self, broker: int, tp: TopicPartition, first: int) -> CheckedReplica:
        """Return the replica with its offsets. `first`: the base offset of the replica's first segment."""
        start = max(self._starts.get(tp, 0), first)
        return CheckedReplica(
            broker,
            *tp,
            start,
            max(start, self._first_dirty.get(tp, 0)),
            self._high_watermarks.get(tp),
            None if self._is_clean else self._recovery_points.get(tp, 0),
        )


def _offsets(file: Path) -> dict[TopicPartition, int]:
    try:
        return checkpoints.decode_offsets(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, IndexError) as error:
        raise PipelineError(
            f"{file} is invalid ({error}): move it away to check without it"
        ) from error
