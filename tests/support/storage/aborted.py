"""The transaction indexes of a log, compared with the batches of the log."""

from __future__ import annotations

from minikafka.kafka.records.batch import end_of_transaction
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL,
    COUNT,
    OVERHEAD,
    TRANSACTIONAL,
)
from minikafka.kafka.records.transactions import ABORT, Aborted, AbortedScan
from minikafka.storage.log.log import Log
from minikafka.storage.log.replay import batches_from
from minikafka.storage.log.segments.transaction_index import TXN_INDEX, decode


def indexed(log: Log) -> list[Aborted]:
    """Return the entries of all transaction indexes of the log, after a check that the files have the same entries."""
    for segment in log.segments:
        path = segment.path(TXN_INDEX)
        stored = decode(log.storage.read(path)) if log.storage.exists(path) else []
        assert stored == list(segment.transactions), path
    return [aborted for segment in log.segments for aborted in segment.transactions]


def check_indexes(log: Log) -> None:
    """Check that every aborted batch with records is found by the indexes, and that every entry has its marker."""
    scan, markers, hidden = AbortedScan(), set(), set()
    with_records: dict[int, list[int]] = {}
    for segment, position, header in batches_from(log.segments, 0, log.written_position):
        offset, producer = header[BASE_OFFSET], header[9]
        if header[ATTRIBUTES] & CONTROL:
            batch = segment.file.pread(OVERHEAD + header[BATCH_LENGTH], position)
            kind, _ = end_of_transaction(batch)
            if kind == ABORT:
                markers.add((segment.base_offset, offset))
            aborted = scan.marker(header, kind)
            mine = with_records.pop(producer, [])
            if aborted is not None:
                hidden.update((producer, each) for each in mine)
        elif header[ATTRIBUTES] & TRANSACTIONAL:
            scan.batch(header)
            if header[COUNT]:
                with_records.setdefault(producer, []).append(offset)
    indexed(log)
    for segment in log.segments:
        for aborted in segment.transactions:
            assert (segment.base_offset, aborted.last_offset) in markers, aborted
    for producer, offset in hidden:
        found = log.aborted_transactions(offset, offset + 1)
        assert any(one == producer and first <= offset for one, first in found), (producer, offset)
