"""The segments of a log that retention deletes: by size, by time and by the log start offset.

As in Kafka, retention deletes whole segments, the oldest first, and stops at the first segment that must stay.
A segment with a record at the high watermark or above it stays. The active segment is deleted only together
with all other segments, after a roll.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from minikafka.storage.log.log import Log
from minikafka.storage.log.segments.segment import Segment

SEGMENTS_MAX: Final = 32
"""Maximum number of segments in one plan, because the check of a segment may read timestamps from a file."""

READ_MAX: Final = 4 << 20
"""Maximum number of bytes of log files that one plan reads, to limit the time that a plan takes."""


class RetentionPlan(NamedTuple):
    """The deletions of one retention run: all records below `log_start_offset`.

    `reasons`: messages for the broker's log output; none if the plan deletes nothing. `needs_roll`: the plan deletes
    every segment, so the active segment must be rolled first. `is_last`: no further segment must be deleted or checked
    now.
    """

    log_start_offset: int
    reasons: tuple[str, ...]
    needs_roll: bool
    is_last: bool


class _Candidate(NamedTuple):
    """A segment that may be deleted: its bytes, and the offset after its last record."""

    segment: Segment
    size: int
    end_offset: int


def plan(log: Log, high_watermark: int, wall_ms: int) -> RetentionPlan | None:
    """Return the deletions of a retention run at this time (Unix ms), None if nothing must be deleted or checked.

    A segment is deleted by time only after its own batches have confirmed its time index. This may take several plans,
    because one plan reads about `READ_MAX` bytes of log files. Raises StorageFailed.
    """
    if "delete" not in log.config.cleanup_policy:
        return None
    first = log.segments.count_below(log.log_start_offset)
    candidates = list(_candidates(log, first, high_watermark))
    by_size = _by_size(log, first, candidates)
    by_time, is_checked = _by_time(log, candidates[by_size:], wall_ms)
    count = by_size + by_time
    if not count:
        return None if is_checked else RetentionPlan(log.log_start_offset, (), False, False)
    reasons = []
    if by_size:
        rest = _size(log, first) - sum(candidate.size for candidate in candidates[:by_size])
        reasons.append(
            f"{_named(candidates[:by_size])} due to retention size {log.config.retention_bytes} breach; "
            f"the log size after deletion is {rest}"
        )
    if by_time:
        gone = candidates[by_size:count]
        has_timestamps = all(one.segment.largest_timestamp() >= 0 for one in gone)
        basis = "the largest record timestamp" if has_timestamps else "the last modified time"
        reasons.append(
            f"{_named(gone)} due to retention time {log.config.retention_ms} ms breach, based on {basis} of each"
        )
    return RetentionPlan(
        candidates[count - 1].end_offset,
        tuple(reasons),
        needs_roll=first + count == len(log.segments),
        is_last=is_checked and count < SEGMENTS_MAX,
    )


def below_start(log: Log) -> str:
    """Return a log message about the segments wholly below the log start offset, "" if there are none."""
    count = log.segments.count_below(log.log_start_offset)
    if not count:
        return ""
    gone = [
        _Candidate(segment, 0, log.segments[slot + 1].base_offset)
        for slot, segment in enumerate(log.segments[:count])
    ]
    return f"{_named(gone)} due to log start offset {log.log_start_offset} breach"


def earliest_timestamp(log: Log) -> int:
    """Return the timestamp (Unix ms) of the batch that holds the log start offset, or else of the next batch.

    Return -1 if there is no such batch. Raises StorageFailed.
    """
    for slot in range(log.segments.count_below(log.log_start_offset), len(log.segments)):
        timestamp = log.segments[slot].timestamp_at(log.log_start_offset)
        if timestamp >= 0:  # -1 if compaction has removed every record of the segment
            return timestamp
    return -1


def _candidates(log: Log, first: int, high_watermark: int) -> Iterator[_Candidate]:
    """Yield the segments that end at or below the high watermark, beginning at list index `first`.

    At most `SEGMENTS_MAX` segments are yielded. An empty active segment is left out.
    """
    segments = log.segments
    for slot in range(first, min(len(segments), first + SEGMENTS_MAX)):
        segment, is_active = segments[slot], slot == len(segments) - 1
        end_offset = log.log_end_offset if is_active else segments[slot + 1].base_offset
        size = segments.end_of(slot, log.written_position) - segment.start
        if high_watermark < end_offset or (is_active and not size):
            return
        yield _Candidate(segment, size, end_offset)


def _by_size(log: Log, first: int, candidates: list[_Candidate]) -> int:
    """Return how many segments, counted from the oldest, can be deleted if `retention.bytes` must remain."""
    count, limit = 0, log.config.retention_bytes
    if limit >= 0:
        excess = _size(log, first) - limit
        for candidate in candidates:
            excess -= candidate.size
            if excess < 0:
                break
            count += 1
    return count


def _by_time(log: Log, candidates: list[_Candidate], wall_ms: int) -> tuple[int, bool]:
    """Return how many segments, counted from the oldest, have only records that are older than `retention.ms`.

    The second value is False if the next segment has batches that must be read before its age is certain.
    """
    count, limit, left = 0, log.config.retention_ms, READ_MAX
    if limit < 0:
        return 0, True
    for segment, _, _ in candidates:
        if wall_ms - _age_basis(segment) > limit and not segment.is_confirmed:
            if left <= 0:
                return count, False
            left -= segment.confirm(left)
            if not segment.is_confirmed:
                return count, False
        if wall_ms - _age_basis(segment) <= limit:
            break
        count += 1
    return count, True


def _age_basis(segment: Segment) -> int:
    """Return the largest timestamp (Unix ms) of the segment; without timestamps, the time of the last write."""
    largest = segment.largest_timestamp()
    return largest if largest >= 0 else segment.modified_ms()


def _size(log: Log, first: int) -> int:
    return log.written_position - log.segments[first].start


def _named(gone: list[_Candidate]) -> str:
    count = len(gone)
    segments = "1 segment" if count == 1 else f"{count} segments"
    return (
        f"deleting {segments}, offsets {gone[0].segment.base_offset} to {gone[-1].end_offset - 1},"
    )
