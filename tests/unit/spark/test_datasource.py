"""The data source without a Spark session: schemas, pickling, and reads of offset ranges from a broker."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSourceReader,
    GreaterThan,
    InputPartition,
    LessThan,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType
from support.kafka.encoders import CODECS, Sample, altered, by_aiokafka
from support.spark.fetch_brokers import FetchBrokers

from minikafka.base.errors import ConfigError, CorruptBatch
from minikafka.spark import datasource as source
from minikafka.spark import option_map
from minikafka.spark.datasource import MinikafkaDataSource
from minikafka.spark.records import decode


@pytest.fixture
def brokers():
    running = FetchBrokers()
    yield running
    running.close()


@pytest.fixture
def reader(brokers):
    def make(**given: str):
        least = {"kafka.bootstrap.servers": brokers.bootstrap, "subscribe": "lines"}
        made = MinikafkaDataSource(CaseInsensitiveDict(least | given))
        return made.reader(made.schema())

    return make


@pytest.mark.parametrize(
    ("spark_schema", "arrow_schema"),
    [
        (source.SCHEMA, decode.SCHEMA),
        (source.SCHEMA_WITH_HEADERS, decode.SCHEMA_WITH_HEADERS),
    ],
)
def test_arrow_schema_matches_the_spark_schema(spark_schema, arrow_schema):
    assert to_arrow_schema(spark_schema, timezone="UTC").equals(arrow_schema)


def test_headers_are_a_column_only_if_requested(reader):
    least = {"kafka.bootstrap.servers": "one:1", "subscribe": "t"}
    with_headers = MinikafkaDataSource(least | {"includeHeaders": "true"}).schema()
    assert with_headers.fieldNames() == [
        *MinikafkaDataSource(least).schema().fieldNames(),
        "headers",
    ]


@pytest.mark.parametrize("key", [False, True])
@pytest.mark.parametrize("value", [False, True])
@pytest.mark.parametrize("headers", [False, True])
def test_columns_that_are_left_out_are_in_no_schema(key, value, headers):
    given = {"includeKey": key, "includeValue": value, "includeHeaders": headers}
    least = {"kafka.bootstrap.servers": "one:1", "subscribe": "t"}
    columns = MinikafkaDataSource(
        least | {name: str(flag).lower() for name, flag in given.items()}
    ).schema()
    assert [flag for flag in (key, value, headers) if flag] == [
        True for name in columns.fieldNames() if name in ("key", "value", "headers")
    ]
    arrow = decode.schema(key=key, value=value, headers=headers)
    assert to_arrow_schema(columns, timezone="UTC").equals(arrow)


def test_only_the_option_makes_a_reader_take_filters(reader):
    """Spark refuses a reader that takes filters if its setting does not allow this."""
    assert type(reader()).pushFilters is DataSourceReader.pushFilters
    assert type(reader(pushFilters="true")).pushFilters is not DataSourceReader.pushFilters


def test_reader_with_filters_plans_only_the_selected_offsets_after_pickling(brokers, reader):
    (partition,) = brokers.create("lines")
    partition.append(by_aiokafka([Sample(1, b"k", b"v")] * 10))
    made = reader(pushFilters="true", includeValue="false")
    filters = [LessThan(("offset",), 7), GreaterThan(("offset",), 3)]
    assert list(made.pushFilters(filters)) == filters
    (part,) = made.partitions()
    copy = cloudpickle.loads(cloudpickle.dumps(made))
    rows = [row for batch in copy.read(part) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == [4, 5, 6]
    assert all("value" not in row and row["key"] == b"k" for row in rows)


def test_schema_given_by_the_user_is_refused():
    made = MinikafkaDataSource({"kafka.bootstrap.servers": "one:1", "subscribe": "t"})
    with pytest.raises(ConfigError, match="fixed schema"):
        made.reader(StructType([StructField("value", source.SCHEMA["topic"].dataType)]))
    with pytest.raises(ConfigError, match="fixed schema"):
        made.reader(
            StructType(
                [
                    *source.SCHEMA.fields[:-1],
                    StructField("timestampType", source.SCHEMA["topic"].dataType),
                ]
            )
        )


def test_ignored_options_are_told_in_one_warning(caplog, monkeypatch):
    monkeypatch.setattr(option_map, "_logged", set())
    least = {"kafka.bootstrap.servers": "one:1", "topic": "t"}
    given = {"kafka.max.poll.records": "5", "kafka.linger.ms": "1", "maxOffsetsPerTrigger": "2"}
    made = MinikafkaDataSource(CaseInsensitiveDict(least | given | {"subscribe": "t"}))
    made.schema()
    made.streamReader(source.SCHEMA)
    (told,) = caplog.messages
    assert "kafka.linger.ms (it is a setting of writes); kafka.max.poll.records (a task" in told
    made.reader(source.SCHEMA)
    assert "maxOffsetsPerTrigger (a batch read has no micro-batches)" in caplog.messages[1]
    made.writer(source.SCHEMA, False)
    made.streamWriter(source.SCHEMA, False)
    assert "The minikafka sink ignores" in caplog.messages[2]
    assert len(caplog.messages) == 3
    monkeypatch.setattr(option_map, "_logged", set())
    runner = "pyspark.sql.worker.python_streaming_sink_runner"
    monkeypatch.setattr("sys.argv", ["daemon.py", runner])
    made.streamWriter(source.SCHEMA, False)
    assert len(caplog.messages) == 3


def test_reader_and_partitions_can_be_pickled(brokers, reader):
    brokers.create("lines")[0].append(by_aiokafka([Sample(1, b"k", b"v")]))
    made = reader()
    sent, parts = cloudpickle.loads(cloudpickle.dumps((made, made.partitions())))
    assert [batch.num_rows for batch in sent.read(parts[0])] == [1]


def test_reader_of_an_empty_topic_plans_no_partitions_and_returns_no_rows(brokers, reader):
    brokers.create("lines", 3)
    assert reader().partitions() == []
    assert list(reader().read(InputPartition(None))) == []


def test_large_ranges_are_split_into_batches_of_limited_size(brokers, reader):
    (partition,) = brokers.create("lines")
    for index in range(60):
        codec = [*CODECS.values()][index % 5]
        partition.append(by_aiokafka([Sample(index, b"k%d" % index, bytes(1_000))] * 100, codec))
    (wanted,) = reader().partitions()
    batches = list(reader().read(wanted))
    assert max(batch.nbytes for batch in batches) < 3 << 20
    table = pa.Table.from_batches(batches)
    assert table.column("offset").to_pylist() == list(range(6_000))
    assert table.column("key").to_pylist() == [b"k%d" % (index // 100) for index in range(6_000)]


def test_batch_with_a_wrong_checksum_fails_the_read_unless_checks_are_off(brokers, reader):
    batch = altered(by_aiokafka([Sample(1, b"k", b"v")]), crc=1)
    brokers.create("lines")[0].append(batch)
    (wanted,) = reader().partitions()
    with pytest.raises(CorruptBatch, match="CRC"):
        list(reader().read(wanted))
    unchecked = reader(**{"kafka.check.crcs": "false"})
    assert [found.num_rows for found in unchecked.read(wanted)] == [1]
