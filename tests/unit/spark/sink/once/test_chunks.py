"""Encoded rows of a task that are too many for its message to the driver."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from support.spark.transaction_brokers import TransactionBrokers

from minikafka.spark.records.batches import whole
from minikafka.spark.records.decode import decode
from minikafka.spark.sink.once import chunks
from minikafka.spark.sink.once.chunks import StagedRowsLost
from minikafka.spark.sink.once.commit import commit_staged
from minikafka.spark.sink.once.staged import SinkWrite, StagedRows, stage_rows
from minikafka.spark.sink.options import parse
from minikafka.spark.source.ranges import DataLost

TOPIC = "__minikafka-staged-minikafka-spark-query"
ROWS = 600


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "INLINE_BYTES", 1_000)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4_000)


@pytest.fixture
def brokers() -> Iterator[TransactionBrokers]:
    running = TransactionBrokers(2)
    running.create("lines", 1)
    yield running
    running.close()


def options(brokers: TransactionBrokers):
    servers = {"kafka.bootstrap.servers": brokers.bootstrap, "topic": "lines"}
    return parse({**servers, "exactlyOnce": "true", "kafka.batch.size": "2000"})


def rows(task: int, count: int = ROWS) -> list[bytes]:
    return [b"row %d of task %d %s" % (number, task, bytes(30)) for number in range(count)]


def stage(brokers: TransactionBrokers, task: int, *, query: str | None = "query") -> StagedRows:
    told = SinkWrite("w", query, 0 if query else None, None, task)
    table = pa.RecordBatch.from_pydict({"value": rows(task)})
    return stage_rows(options(brokers), told, iter([table]))


def committed(brokers: TransactionBrokers) -> list[bytes]:
    sections = [whole(memoryview(batch)) for batch in brokers.visible("lines", 0)]
    found = [decode([one], "lines", 0, 0, 1 << 60, with_headers=False) for one in sections]
    return [value for table in found for value in table.column("value").to_pylist()]


def test_many_rows_pass_through_a_staged_topic_in_the_order_of_the_tasks(brokers):
    staged = [stage(brokers, task) for task in (8, 0, 1)]
    assert [one.data for one in staged] == [b"", b"", b""]
    assert {one.chunks.tp for one in staged} == {(TOPIC, 0), (TOPIC, 1)}
    commit_staged(options(brokers), staged)
    assert committed(brokers) == rows(0) + rows(1) + rows(8)


def test_task_keeps_no_chunk_that_is_acknowledged(brokers, monkeypatch):
    kept = []
    end = chunks._ChunkWriter.end

    def watched(writer):
        found = end(writer)
        kept.extend(writer._written)
        return found

    monkeypatch.setattr(chunks._ChunkWriter, "end", watched)
    stage(brokers, 0)
    assert len(kept) > 3
    assert not [one for one in kept if one.data or one.rows]


def test_chunks_of_an_attempt_that_failed_are_not_written(brokers):
    stage(brokers, 0)
    kept = stage(brokers, 0)
    stage(brokers, 0)
    commit_staged(options(brokers), [kept])
    assert committed(brokers) == rows(0)


def test_staged_records_are_deleted_after_the_commit(brokers):
    staged = [stage(brokers, task) for task in range(2)]
    commit_staged(options(brokers), staged)
    ends = [(one.log_start, one.high_watermark) for one in brokers.topics[TOPIC][:2]]
    assert all(start == end > 0 for start, end in ends)


def test_staged_topic_of_a_table_is_deleted_after_the_commit(brokers):
    staged = stage(brokers, 0, query=None)
    assert "__minikafka-staged-minikafka-spark-w" in brokers.topics
    commit_staged(options(brokers), [staged])
    assert committed(brokers) == rows(0)
    assert list(brokers.topics) == ["lines"]


def test_micro_batch_with_lost_chunks_is_not_committed(brokers):
    staged = stage(brokers, 0)
    brokers.topics[TOPIC][0].log_start = 3
    with pytest.raises(DataLost):
        commit_staged(options(brokers), [staged])
    assert committed(brokers) == []
    brokers.topics[TOPIC][0].log_start = 0
    commit_staged(options(brokers), [stage(brokers, 0)])
    assert committed(brokers) == rows(0)


def test_chunks_of_a_topic_that_was_created_again_are_not_taken_for_others(brokers):
    staged = stage(brokers, 0)
    del brokers.topics[TOPIC]
    other = stage(brokers, 0)
    assert other.chunks.offsets == staged.chunks.offsets
    with pytest.raises(StagedRowsLost, match="no longer has the rows"):
        commit_staged(options(brokers), [staged])
    assert committed(brokers) == []


def test_few_rows_stay_in_the_message_of_the_task(brokers):
    told = SinkWrite("w", "query", 0, None, 0)
    table = pa.RecordBatch.from_pydict({"value": rows(0, 5)})
    staged = stage_rows(options(brokers), told, iter([table]))
    assert staged.chunks is None
    assert list(brokers.topics) == ["lines"]
    commit_staged(options(brokers), [staged])
    assert committed(brokers) == rows(0, 5)
