"""The removed segments of a log directory, until their files are deleted."""

from __future__ import annotations

import pytest
from support.storage.logs import DIRECTORY, remove_below, three_segments

from minikafka.base.errors import StorageFailed
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.segments.segment import Segment
from minikafka.storage.log.segments.segments import RetiredSegments


def retired(*delays: int) -> tuple[RetiredSegments, list[Segment]]:
    """Return a `RetiredSegments` that holds one segment per delay (ms), and the list of these segments."""
    storage = MemoryStorage()
    storage.make_directories(DIRECTORY)
    segments = [Segment.create(storage, DIRECTORY, 10 * n, 0, 4096) for n in range(len(delays))]
    kept = RetiredSegments()
    for segment, delay in zip(segments, delays, strict=True):
        kept.add(segment, delay)
    return kept, segments


def test_removed_segment_is_due_for_deletion_after_its_delay() -> None:
    kept, (first, second) = retired(100, 50)
    assert kept.take_due(1000, 9) == []
    assert kept.take_due(1050, 9) == [second]
    assert kept.take_due(1099, 9) == []
    assert kept.take_due(1100, 9) == [first]


def test_removed_segment_without_a_delay_is_due_at_once() -> None:
    kept, segments = retired(0)
    assert kept.take_due(1000, 9) == segments


def test_due_segments_are_returned_a_few_at_a_time() -> None:
    kept, segments = retired(0, 0, 0)
    assert [kept.take_due(1, 2), kept.take_due(1, 2), kept.take_due(1, 2)] == [
        segments[:2],
        segments[2:],
        [],
    ]


def test_closing_one_log_closes_only_the_removed_segments_of_that_log() -> None:
    log = three_segments(MemoryStorage())
    segment = log.segments[0]
    remove_below(log, 10)
    log.retired.close("/d/u-0")
    assert segment.file.size() > 0
    log.retired.close(log.directory)
    with pytest.raises(StorageFailed):
        segment.file.size()
    assert log.retired.take_due(1 << 40, 9) == []
