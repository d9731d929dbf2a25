"""What is derived from the batches of a log in order: the state of its producers, and its transaction indexes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from minikafka.kafka.records.batch import end_of_transaction
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL,
    OVERHEAD,
    PRODUCER_ID,
    TRANSACTIONAL,
    Header,
)
from minikafka.kafka.records.transactions import Aborted, AbortedScan
from minikafka.storage.log.producers import ProducerStates
from minikafka.storage.log.segments.segment import Segment


def reload_producers(
    producers: ProducerStates, segments: list[Segment], end_offset: int, end_position: int
) -> None:
    """Load the newest snapshot at or below the log end, then apply the batches after the snapshot."""
    start = producers.restore(end_offset)
    for segment, position, header in batches_from(segments, start, end_position):
        if header[PRODUCER_ID] >= 0:
            if header[ATTRIBUTES] & CONTROL:
                end = end_of_transaction(_batch(segment, position, header))
                producers.end_transaction(header, header[BASE_OFFSET], *end)
            else:
                producers.update(header, header[BASE_OFFSET])
    producers.keep_snapshots({segment.base_offset for segment in segments})


def rebuild_transaction_indexes(
    producers: ProducerStates, segments: list[Segment], end_position: int
) -> None:
    """Rebuild the transaction index of the first segment whose index is incomplete, and of all later segments.

    Do nothing if every index is complete. A snapshot of `producers` names the transactions that are open where the
    rebuilding begins. Raises StorageFailed.
    """
    first = next(
        (slot for slot, one in enumerate(segments) if not one.transactions.is_complete), None
    )
    if first is None:
        return
    begin = segments[first].base_offset
    start, open_ = producers.open_transactions_at(begin)
    found: dict[int, list[Aborted]] = {}
    scan = AbortedScan(open_)
    for segment, position, header in batches_from(segments, start, end_position):
        if header[ATTRIBUTES] & CONTROL:
            kind, _ = end_of_transaction(_batch(segment, position, header))
            aborted = scan.marker(header, kind)
            if aborted is not None:
                found.setdefault(segment.base_offset, []).append(aborted)
        elif header[ATTRIBUTES] & TRANSACTIONAL:
            scan.batch(header)
    for segment in segments[first:]:
        segment.transactions.replace(found.get(segment.base_offset, ()))
        segment.transactions.write(sync=True)


def batches_from(
    segments: list[Segment], offset: int, end_position: int
) -> Iterator[tuple[Segment, int, Header]]:
    """Yield (segment, position in its file, header) of every batch whose last offset is `offset` or above."""
    first = max(bisect_right(segments, offset, key=_base_offset) - 1, 0)
    ends = [segment.start for segment in segments[first + 1 :]] + [end_position]
    for segment, end in zip(segments[first:], ends, strict=True):
        size = end - segment.start
        position = segment.find(offset, size) if offset > segment.base_offset else 0
        for at, header in segment.headers(position, size):
            yield segment, at, header


def _batch(segment: Segment, position: int, header: Header) -> bytes:
    return segment.file.pread(OVERHEAD + header[BATCH_LENGTH], position)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
