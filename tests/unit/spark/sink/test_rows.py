"""Rows of a table as records: columns, topics, partitions, and errors that name the row."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.client.partitioner import partition_for_key
from minikafka.spark.records.encode import Rows
from minikafka.spark.sink.rows import HEADERS, Origin, Router, RowRefused, check_schema

NOW_MS = 1_700_000_000_000
COUNTS = {"one": 1, "seven": 7}
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": HEADERS,
}


def router(topic: str | None = None, origin: Origin | None = None) -> Router:
    return Router(topic, origin, COUNTS.__getitem__, lambda: NOW_MS)


def batch_of(**columns: list[Any]) -> pa.RecordBatch:
    arrays = {name: pa.array(values, TYPES[name]) for name, values in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def parts(found: Router, *batches: pa.RecordBatch) -> list[tuple[TopicPartition, Rows]]:
    """Return each partition with its rows."""
    return [
        (tp, table.rows.taken(table.order[start:end]))
        for table in found.divide(batches)
        for tp, start, end in table.parts
    ]


def divided(found: Router, *batches: pa.RecordBatch) -> dict[TopicPartition, list[bytes]]:
    return {tp: rows.values.to_pylist() for tp, rows in parts(found, *batches)}


def test_rows_go_to_the_partitions_of_their_keys_in_order():
    keys = [b"%d" % (number % 20) for number in range(200)]
    values = [b"%d" % number for number in range(200)]
    found = divided(router("seven"), batch_of(key=keys, value=values))
    wanted: dict[TopicPartition, list[bytes]] = {}
    for key, value in zip(keys, values, strict=True):
        tp = TopicPartition("seven", partition_for_key(key, 7))
        wanted.setdefault(tp, []).append(value)
    assert found == wanted


def test_topic_column_sets_the_topic_of_each_row_unless_the_option_is_given():
    batch = batch_of(value=[b"a", b"b", b"c"], topic=["one", "seven", "one"], partition=[0, 5, 0])
    assert divided(router(), batch) == {
        TopicPartition("one", 0): [b"a", b"c"],
        TopicPartition("seven", 5): [b"b"],
    }
    batch = batch_of(value=[b"a"], topic=["seven"], partition=[0])
    assert divided(router("one"), batch) == {TopicPartition("one", 0): [b"a"]}


def test_row_without_a_partition_goes_to_the_partition_of_its_key():
    batch = batch_of(key=[b"k", b"k"], value=[b"a", b"b"], partition=[None, 3])
    assert divided(router("seven"), batch) == {
        TopicPartition("seven", partition_for_key(b"k", 7)): [b"a"],
        TopicPartition("seven", 3): [b"b"],
    }


def test_missing_columns_have_defaults():
    [(tp, rows)] = parts(router("one"), batch_of(value=[b"a", None]))
    assert tp == TopicPartition("one", 0)
    assert rows.keys.to_pylist() == [None, None]
    assert rows.values.to_pylist() == [b"a", None]
    assert rows.timestamps.tolist() == [NOW_MS, NOW_MS]
    assert rows.headers is None


def test_timestamps_are_milliseconds_and_default_to_the_present():
    batch = batch_of(value=[b"a", b"b", b"c"], timestamp=[1_999, None, -1])
    [(_, rows)] = parts(router("one"), batch)
    assert rows.timestamps.tolist() == [1, NOW_MS, -1]


def test_strings_are_written_as_utf_8():
    batch = pa.RecordBatch.from_pydict({"key": ["k\u00e4"], "value": ["v\u00fc"]})
    [(_, rows)] = parts(router("one"), batch)
    assert rows.keys.to_pylist() + rows.values.to_pylist() == [
        "k\u00e4".encode(),
        "v\u00fc".encode(),
    ]


@pytest.mark.parametrize("with_headers", [False, True])
def test_origin_header_comes_last_and_contains_the_row_number_in_the_task(with_headers):
    found = router("one", Origin("origin", "q", 3, 2))
    own = [[{"key": "a", "value": b"1"}], None, []]
    columns = {"headers": own} if with_headers else {}
    rows = [
        row
        for _ in range(2)
        for _, part in parts(found, batch_of(value=[b"x", b"y", b"z"], **columns))
        for row in part.headers.to_pylist()
    ]
    assert [json.loads(row[-1]["value"]) for row in rows] == [
        {"query": "q", "batch": 3, "task": 2, "sequence": number} for number in range(6)
    ]
    assert {row[-1]["key"] for row in rows} == {"origin"}
    before = [row[:-1] for row in rows[:3]]
    assert before == ([own[0], [], []] if with_headers else [[], [], []])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"topic": ["one", None]}, "row 4 of the task has no topic"),
        (
            {"topic": ["one", "seven"], "partition": [0, 7]},
            "row 4 .* partition 7 of seven.* 0 to 6",
        ),
        ({"topic": ["one", "one"], "partition": [0, -1]}, "row 4 .* partition -1 of one"),
        (
            {"topic": ["one", "one"], "headers": [None, [{"key": None, "value": b""}]]},
            "row 4 .* header without a key",
        ),
    ],
)
def test_error_for_a_row_that_cannot_be_written_names_the_row(columns, message):
    found = router()
    list(parts(found, batch_of(value=[b""] * 3, topic=["one"] * 3)))
    with pytest.raises(RowRefused, match=message):
        list(parts(found, batch_of(value=[b"", b""], **columns)))


def schema(**columns: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


TEXT = StringType()


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"key": TEXT}, "t", "column value is needed"),
        ({"value": TEXT}, None, "option topic or a column topic"),
        ({"value": IntegerType()}, "t", "column value must be binary or string, not int: cast it"),
        ({"value": TEXT, "partition": LongType()}, "t", "partition must be int"),
        ({"value": TEXT, "headers": MapType(TEXT, TEXT)}, "t", "headers must be array"),
    ],
)
def test_schema_with_missing_columns_or_wrong_column_types_is_refused(columns, topic, message):
    with pytest.raises(ConfigError, match=message):
        check_schema(schema(**columns), topic)


def test_columns_that_the_sink_does_not_use_are_ignored():
    check_schema(schema(value=TEXT, offset=LongType(), timestampType=IntegerType()), "t")
