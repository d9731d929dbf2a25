"""Files of an archive, read back by pyarrow."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.kafka.encoders import CODECS, Sample, altered, by_aiokafka
from support.spark.fetch_brokers import FetchBrokers

from minikafka.base.model import TopicPartition
from minikafka.spark.parquet.archive_directory import Tile
from minikafka.spark.parquet.archive_save import SCHEMA, Save, end_of, save
from minikafka.spark.source.options import Mode, parse
from minikafka.spark.wire.leaders import Position

MOMENT = 1_700_000_000_123


@pytest.fixture
def brokers():
    running = FetchBrokers(1)
    yield running
    running.close()


def staged(archive: Path, result: dict) -> Path:
    return archive / "_staging" / result["staged"]


def test_file_holds_the_records_of_its_tile_with_leader_epochs(brokers, tmp_path):
    (partition,) = brokers.create("lines")
    for codec in CODECS.values():
        partition.append(by_aiokafka([Sample(MOMENT, b"k", b"v", [("h", None)])] * 10, codec))
    given = {
        "kafka.bootstrap.servers": brokers.bootstrap,
        "subscribe": "lines",
        "includeHeaders": "true",
    }
    end = Position(60, 7, "id")
    work = Save(
        parse(given, Mode.STREAM), TopicPartition("lines", 0), Tile(5, 42), end, str(tmp_path)
    )
    result = save(work)
    path = staged(tmp_path, result)
    assert (result["records"], result["bytes"]) == (37, path.stat().st_size)
    assert save(work)["staged"] != path.name, "two attempts of a task wrote one file"
    table = pq.read_table(path)
    assert table.schema.equals(SCHEMA)
    assert table.column("offset").to_pylist() == list(range(5, 42))
    assert table.column("headers")[0].as_py() == [{"key": "h", "value": None}]
    assert set(table.column("leaderEpoch").to_pylist()) <= {-1, 0}
    assert end_of(pa.OSFile(str(path)), 42) == Position(42, 7, "id")


@pytest.mark.parametrize(("end", "records"), [(40, 20), (50, 20), (5, 5)])
def test_tile_covers_offsets_that_compaction_removed(brokers, tmp_path, end, records):
    (partition,) = brokers.create("lines")
    samples = [Sample(MOMENT, b"k", b"v")] * 10
    partition.append(by_aiokafka(samples))
    partition.append(altered(by_aiokafka(samples, CODECS["zstd"]), last_delta=19), base=20)
    partition.append(altered(by_aiokafka(samples), last_delta=9, attributes=0x20))
    given = {
        "kafka.bootstrap.servers": brokers.bootstrap,
        "subscribe": "lines",
        "includeHeaders": "true",
    }
    options = parse(given, Mode.STREAM)
    tp = TopicPartition("lines", 0)
    result = save(Save(options, tp, Tile(0, end), Position(end, 0), str(tmp_path)))
    assert result["records"] == records
    offsets = pq.read_table(staged(tmp_path, result)).column("offset").to_pylist()
    assert offsets == [*range(10), *range(20, 30)][:records]


def test_tile_without_any_record_is_a_file_without_rows(brokers, tmp_path):
    (partition,) = brokers.create("lines")
    partition.append(altered(by_aiokafka([Sample(MOMENT, b"k", b"v")]), attributes=0x20))
    given = {"kafka.bootstrap.servers": brokers.bootstrap, "subscribe": "lines"}
    options = parse(given | {"includeHeaders": "true"}, Mode.STREAM)
    tp = TopicPartition("lines", 0)
    result = save(Save(options, tp, Tile(0, 1), Position(1, 3), str(tmp_path)))
    assert result["records"] == 0
    assert pq.read_table(staged(tmp_path, result)).num_rows == 0
    assert end_of(pa.OSFile(str(staged(tmp_path, result))), 1) == Position(1, 3)


def test_each_row_has_the_leader_epoch_of_its_batch(brokers, tmp_path):
    (partition,) = brokers.create("lines")
    for epoch in (3, 4, 7):
        batch = bytearray(by_aiokafka([Sample(MOMENT, b"k", b"v")] * 10))
        batch[12:16] = epoch.to_bytes(4, "big")
        partition.append(bytes(batch))
    given = {
        "kafka.bootstrap.servers": brokers.bootstrap,
        "subscribe": "lines",
        "includeHeaders": "true",
    }
    options = parse(given, Mode.STREAM)
    work = Save(options, TopicPartition("lines", 0), Tile(5, 25), Position(30, 7), str(tmp_path))
    table = pq.read_table(staged(tmp_path, save(work)))
    assert table.column("leaderEpoch").to_pylist() == [3] * 5 + [4] * 10 + [7] * 5
