"""Every way that Spark has to name a source or a sink, on a real cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.tools.cluster import LocalCluster

FORMAT = "minikafka"


@pytest.fixture
async def given(cluster: LocalCluster, request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the options of a read of five records, and create the topic that `sink` names."""
    topic = request.node.name
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic(topic, 1, 3), NewTopic(f"{topic}-to", 1, 3))
        await client.produce(topic, [Record(value=b"%d" % n) for n in range(5)], partition=0)
    return {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic}


def sink(given: dict[str, str]) -> dict[str, str]:
    return given | {"topic": f"{given['subscribe']}-to"}


def written(spark, to: dict[str, str]) -> int:
    options = to | {"subscribe": to["topic"]}
    return spark.read.format(FORMAT).options(**options).load().count()


@pytest.fixture
def drop(spark):
    yield
    for name in ("named_table", "created_table", "saved_table"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.catalog.dropTempView("named_view")


def clause(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{text}'" for name, text in options.items())


def create(spark, options: dict[str, str]) -> None:
    """Create a view, and a table with everything that a table may have, of the same options."""
    listed = clause(options)
    spark.sql(f"CREATE TEMPORARY VIEW named_view USING {FORMAT} OPTIONS ({listed})")
    spark.sql(
        f"CREATE TABLE named_table USING {FORMAT} OPTIONS ({listed})"
        " COMMENT 'about lines' TBLPROPERTIES ('team' = 'lines')"
    )


def finish(writer, checkpoint: Path, name: str, start: Callable[[Any], Any]) -> None:
    """Run a named stream to its end."""
    named = writer.queryName(name).option("checkpointLocation", str(checkpoint / name))
    start(named.trigger(availableNow=True)).awaitTermination()


async def test_every_way_to_name_a_source_reads_the_same_rows(spark, given, drop):
    create(spark, given)
    spark.catalog.createTable("created_table", source=FORMAT, **given)
    reader = spark.read.options(**given)
    rows = {
        "load": reader.format(FORMAT).load(),
        "argument": spark.read.load(format=FORMAT, **given),
        "path": spark.read.format(FORMAT).options(**given).load("/anything"),
        "view": spark.table("named_view"),
        "with": spark.sql(f"SELECT * FROM named_table WITH ({clause(given)})"),
        "table": spark.read.options(**given).table("named_table"),
        "created": spark.read.options(**given).table("created_table"),
    }
    assert {way: frame.count() for way, frame in rows.items()} == dict.fromkeys(rows, 5)
    with pytest.raises(Exception, match="Spark does not pass the options of CREATE TABLE"):
        spark.table("named_table").count()


async def test_every_way_to_name_a_sink_writes_the_rows(spark, given, drop):
    to = sink(given)
    create(spark, to)
    frame = spark.sql("SELECT CAST('x' AS BINARY) AS value")
    all_columns = spark.table("named_view").limit(1)
    frame.write.format(FORMAT).mode("append").options(**to).save()
    frame.write.save(format=FORMAT, mode="append", **to)
    frame.write.format(FORMAT).mode("append").options(**to).save("/anything")
    spark.sql("INSERT INTO named_view (value) VALUES (CAST('x' AS BINARY))")
    spark.sql(f"INSERT INTO named_table WITH ({clause(to)}) (value) VALUES (CAST('x' AS BINARY))")
    all_columns.writeTo("named_table").options(**to).append()
    all_columns.write.insertInto("named_view")
    all_columns.write.format(FORMAT).mode("append").options(**to).saveAsTable("named_table")
    frame.write.format(FORMAT).options(**to).saveAsTable("saved_table")
    assert written(spark, to) == 9


async def test_named_streams_write_to_a_topic_in_every_way(spark, given, drop, tmp_path):
    to = sink(given)
    create(spark, to)
    start = {"startingOffsets": "earliest"}

    def writer(stream):
        return stream.selectExpr("value").writeStream.options(**to)

    source = spark.readStream.format(FORMAT).options(**given | start).load()
    table = spark.readStream.options(**given | start).table("named_table")
    finish(writer(source).format(FORMAT), tmp_path, "started", lambda one: one.start())
    finish(writer(table).format(FORMAT), tmp_path, "path", lambda one: one.start("/anything"))
    every = source.writeStream.options(**to)
    finish(every, tmp_path, "table", lambda one: one.toTable("named_table"))

    def save(batch, number: int) -> None:
        batch.select("value").write.format(FORMAT).mode("append").options(**to).save()

    finish(source.writeStream.foreachBatch(save), tmp_path, "each", lambda one: one.start())
    assert written(spark, to) == 20
