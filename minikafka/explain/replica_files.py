"""Functions that read a replica's offsets from the log directory, without a broker. They change no file."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.base.names import offsets_of
from minikafka.explain.picture import ReplicaFiles
from minikafka.log.checkpoints import HIGH_WATERMARKS, decode_offsets

_BATCH: Final = struct.Struct(">qi")
"""Format of the first two fields of every batch: base offset, and length of the remaining fields."""
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT: Final = 23
_HEADER_BYTES: Final = 61


def read_replica_files(log_dir: Path, tp: TopicPartition) -> ReplicaFiles:
    """Return the high watermark and the log end offset in the files of the partition's replica."""
    return ReplicaFiles(_high_watermark(log_dir, tp), _log_end_offset(log_dir / str(tp)))


def _high_watermark(log_dir: Path, tp: TopicPartition) -> int | None:
    try:
        return decode_offsets((log_dir / HIGH_WATERMARKS).read_bytes()).get(tp)
    except (OSError, ValueError, IndexError):
        return None


def _log_end_offset(directory: Path) -> int | None:
    """Return the offset after the last complete batch of the last segment."""
    try:
        end = offsets_of((path.name for path in directory.iterdir()), ".log")[-1]
        data = (directory / f"{end:020d}.log").read_bytes()
    except (OSError, IndexError):
        return None
    position = 0
    while position + _HEADER_BYTES <= len(data):
        base, length = _BATCH.unpack_from(data, position)
        after = position + _BATCH.size + length
        if length <= 0 or after > len(data):
            break
        last_delta = _LAST_OFFSET_DELTA.unpack_from(data, position + _LAST_OFFSET_DELTA_AT)[0]
        end = int(base + last_delta + 1)
        position = after
    return end
