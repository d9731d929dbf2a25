"""What of a log directory of Apache Kafka minikafka cannot take over. Nothing in the directory is changed.

Raises StorageFailed if the disk fails, and ConfigError for a directory that is not one of a broker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from minikafka.base.coordination import COORDINATION, LEADERS
from minikafka.base.errors import ConfigError
from minikafka.base.names import parse_replica_directory
from minikafka.storage.log.checkpoints import META_PROPERTIES, decode_properties

Progress = Callable[[int, int], None]
"""Takes the bytes that were read, and all bytes."""

_HEADER: Final = Struct(">qiib")
"""Base offset, length of what follows, leader epoch, magic."""
_LENGTH_END: Final = 12
_MAGIC: Final = 2
_SEGMENT: Final = ".log"
_LOOK_EVERY: Final = 4_096
"""Number of batches between two reports of progress."""
_KRAFT: Final = "use the directories of a cluster with ZooKeeper"
_REWRITE: Final = "write the topic again with Kafka, for example by a copy to a new topic"


class Obstacle(NamedTuple):
    """What minikafka cannot take over. `path`: the file or directory. `remedy`: what the user can do."""

    path: str
    what: str
    remedy: str


def obstacles(directory: Path, on_progress: Progress) -> Iterator[Obstacle]:
    """Yield each obstacle in a log directory: of the directory itself, then of each replica."""
    names = sorted(os.listdir(directory))
    replicas = [name for name in names if _is_replica(name) and _may_be_replica(directory / name)]
    yield from _of_directory(directory, names, replicas)
    segments = [
        path
        for name in replicas
        for path in sorted((directory / name).glob(f"*{_SEGMENT}"))
        if path.is_file()
    ]
    total, done = sum(path.stat().st_size for path in segments), 0
    for path in segments:
        found = _old_format(path, done, total, on_progress)
        if found is not None:
            yield found
        done += path.stat().st_size
    on_progress(total, total)


def _is_replica(name: str) -> bool:
    with suppress(ValueError):
        return parse_replica_directory(name).partition >= 0
    return False


def _may_be_replica(path: Path) -> bool:
    return path.is_dir() or path.is_symlink()


def _of_directory(directory: Path, names: list[str], replicas: list[str]) -> Iterator[Obstacle]:
    meta = directory / META_PROPERTIES
    if not meta.is_file():
        if replicas:
            text = "there are replicas but no meta.properties, which has the ids of the broker and its cluster"
            yield Obstacle(str(meta), text, "restore the file")
        else:
            raise ConfigError(f"{directory} is not a log directory of Kafka: name one of log.dirs")
    else:
        yield from _of_properties(meta)
    for name in names:
        path = str(directory / name)
        if name in replicas and (directory / name).is_symlink():
            yield Obstacle(path, "a symbolic link", "move the directory to this place")
        elif name.startswith("__cluster_metadata-"):
            yield Obstacle(path, "metadata of KRaft", _KRAFT)
        elif name == "remote-log-index-cache" or name.startswith("__remote_log_metadata-"):
            remedy = "copy these topics with Kafka to topics without remote.storage.enable"
            yield Obstacle(path, "tiered storage: older records are in a remote store", remedy)


def _of_properties(meta: Path) -> Iterator[Obstacle]:
    try:
        found = decode_properties(meta.read_bytes())
    except ValueError as error:
        yield Obstacle(str(meta), f"it is invalid: {error}", "restore the file")
        return
    version = found.get("version", "")
    if version == "1":
        yield Obstacle(str(meta), "the directory of a broker with KRaft (version 1)", _KRAFT)
    elif version != "0":
        yield Obstacle(str(meta), f"unknown version {version!r}", "restore the file")
    elif found.get(COORDINATION) == LEADERS:
        text = "minikafka has used the directory without a controller, in the mode leaders"
        yield Obstacle(str(meta), text, "copy its topics to a cluster in the mode controller")


def _old_format(path: Path, done: int, total: int, on_progress: Progress) -> Obstacle | None:
    """Return the obstacle if the segment has records in message format 0 or 1. What follows damage is not read.

    `done`: the bytes of the segments before this one.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        position = count = 0
        while position + _HEADER.size <= size:
            header = os.pread(file.fileno(), _HEADER.size, position)
            _, length, _, magic = _HEADER.unpack(header)
            if magic in (0, 1) and length > 0:
                what = f"records in message format {magic}, from byte {position} on"
                return Obstacle(str(path), what, _REWRITE)
            if magic != _MAGIC or length <= 0:
                break
            position += _LENGTH_END + length
            count += 1
            if count % _LOOK_EVERY == 0:
                on_progress(done + position, total)
    return None
