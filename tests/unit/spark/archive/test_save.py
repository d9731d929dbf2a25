"""Files of an archive, read back by pyarrow."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from support.encoders import CODECS, Sample, by_aiokafka
from support.fetch_brokers import FetchBrokers

from minikafka.base.model import TopicPartition
from minikafka.spark.archive.save import SCHEMA, Save, last_epoch, save
from minikafka.spark.archive.tiles import Tile
from minikafka.spark.source.options import Mode, parse

MOMENT = 1_700_000_000_123


@pytest.fixture
def brokers():
    running = FetchBrokers(1)
    yield running
    running.close()


def test_file_holds_the_records_of_its_tile_with_leader_epochs(brokers, tmp_path):
    (partition,) = brokers.create("lines")
    for codec in CODECS.values():
        partition.append(by_aiokafka([Sample(MOMENT, b"k", b"v", [("h", None)])] * 10, codec))
    given = {
        "kafka.bootstrap.servers": brokers.bootstrap,
        "subscribe": "lines",
        "includeHeaders": "true",
    }
    path = str(tmp_path / "staged")
    tile = Tile(5, 42)
    work = Save(parse(given, Mode.STREAM), TopicPartition("lines", 0), tile, 7, path)
    assert save(work) == {"records": 37, "bytes": (tmp_path / "staged").stat().st_size}
    table = pq.read_table(path)
    assert table.schema.equals(SCHEMA)
    assert table.column("offset").to_pylist() == list(range(5, 42))
    assert table.column("headers")[0].as_py() == [{"key": "h", "value": None}]
    assert set(table.column("leaderEpoch").to_pylist()) <= {-1, 0}
    assert last_epoch(path) == 7
