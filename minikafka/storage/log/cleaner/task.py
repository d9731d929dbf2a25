"""The input and the result of the cleaning of one log: plain values that can be sent to another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CleaningTask:
    """The task to clean the segments of one log below `uncleanable_offset`, the base offset of a segment.

    `segments`: base offsets of the segments to clean. `later_segments`: base offsets of all later segments.
    Records from `first_dirty_offset` on are new since the last cleaning. `producers`: [id, last offset or -1,
    epoch] of every active producer. `kept_end`: the batch that ends at this offset stays; -1: no such batch.
    Sizes are bytes, times Unix ms.
    """

    directory: str
    segments: list[int]
    later_segments: list[int]
    segment_bytes: int
    index_bytes: int
    first_dirty_offset: int
    uncleanable_offset: int
    now_ms: int
    delete_retention_ms: int
    index_interval_bytes: int
    producers: list[list[int]]
    kept_end: int
    dedupe_bytes: int
    load_factor: float
    io_bytes: int
    bytes_per_second: float

    def encode(self) -> dict[str, Any]:
        """Return the task as a JSON-compatible dict."""
        return asdict(self)

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> CleaningTask:
        """Return the task from a dict that `encode` returned."""
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """Segments that were copied into one durable file: `<first base offset>.log.cleaned`, `size` bytes."""

    bases: list[int]
    size: int


@dataclass(frozen=True, slots=True)
class CleaningOutcome:
    """The result of a cleaning: the offset below which the log is clean, and counts of bytes and records.

    `is_full`: the map was full before all dirty records below the uncleanable offset were mapped.
    """

    end_offset: int
    is_full: bool
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    keys: int
