"""Streams in the output mode update, which Spark refuses for a Python data source, written to topics."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark import append_to_topics
from minikafka.tools.cluster import LocalCluster

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


async def write_letters(cluster: LocalCluster, target: str) -> None:
    """Create the topics `target` and `letters-to-TARGET`; write 25 records with one of five keys to the second."""
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic(target, 1, 3), NewTopic(f"letters-to-{target}", 1, 3))
        records = [Record(key=b"abcde"[n % 5 : n % 5 + 1], value=b"") for n in range(25)]
        await client.produce(f"letters-to-{target}", records, partition=0)


def letters(spark, servers: dict[str, str], target: str):
    """Return the stream of these records, in micro-batches of 20 and 5 records."""
    given = {"subscribe": f"letters-to-{target}", "startingOffsets": "earliest"}
    given |= {"maxOffsetsPerTrigger": "20"}
    return spark.readStream.format("minikafka").options(**servers, **given).load()


def run(frame, checkpoint: Path, options: dict[str, str]) -> str:
    """Run a stream to its end, and return the id of the query."""
    writer = frame.writeStream.outputMode("update").foreachBatch(append_to_topics(options))
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query.id


def rows(spark, servers: dict[str, str], topic: str) -> list:
    given = {"subscribe": topic, "includeHeaders": "true"}
    return spark.read.format("minikafka").options(**servers, **given).load().collect()


def test_invalid_options_are_refused_before_the_stream_starts():
    with pytest.raises(ConfigError, match="did you mean topic"):
        append_to_topics({"kafka.bootstrap.servers": "127.0.0.1:9092", "topics": "t"})


async def test_aggregation_in_update_mode_writes_changed_rows_with_their_origin(
    spark, cluster, tmp_path
):
    servers = {"kafka.bootstrap.servers": cluster.bootstrap}
    await write_letters(cluster, "updates")
    options = servers | {"topic": "updates", "originHeader": "origin"}
    counts = letters(spark, servers, "updates").groupBy("key").count()
    frame = counts.selectExpr("key", "cast(count as string) as value")

    query = run(frame, tmp_path, options)
    found = Counter(
        (*origin(row), bytes(row.key), bytes(row.value)) for row in rows(spark, servers, "updates")
    )
    keys = [b"a", b"b", b"c", b"d", b"e"]
    assert found == {(query, at, key, b"%d" % (4 + at)): 1 for key in keys for at in (0, 1)}


def origin(row) -> tuple[str, int]:
    """Return the query id and the micro-batch in the header of a record."""
    value = json.loads(dict(row.headers)["origin"])
    return value["query"], value["batch"]


async def test_states_in_update_mode_are_written_to_a_topic(spark, cluster, tmp_path):
    for module in ("pandas", "google.protobuf"):
        pytest.importorskip(module, reason="transformWithState needs pandas<3 and protobuf")
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Count(StatefulProcessor):
        def init(self, handle) -> None:
            self.total = handle.getValueState("total", "total long")

        def handleInputRows(self, key, rows, timers):  # noqa: N802
            before = self.total.get()[0] if self.total.exists() else 0
            self.total.update((before + len(list(rows)),))
            yield Row(key=key[0], value=str(self.total.get()[0]))

        def close(self) -> None:
            pass

    servers = {"kafka.bootstrap.servers": cluster.bootstrap}
    await write_letters(cluster, "states")
    frame = (
        letters(spark, servers, "states")
        .groupBy("key")
        .transformWithState(Count(), "key binary, value string", "Update", "None")
    )
    spark.conf.set(PROVIDER, ROCKSDB)
    try:
        run(frame, tmp_path, servers | {"topic": "states"})
    finally:
        spark.conf.unset(PROVIDER)
    found = Counter((bytes(row.key), bytes(row.value)) for row in rows(spark, servers, "states"))
    keys = [b"a", b"b", b"c", b"d", b"e"]
    assert found == Counter({(key, count): 1 for key in keys for count in (b"4", b"5")})
