"""Filters of a query that become offset ranges, in a real Spark with a real cluster."""

from __future__ import annotations

import asyncio
import random

import pytest
from pyspark.errors import PySparkException

from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.tools.cluster import LocalCluster

ENABLED = "spark.sql.python.filterPushdown.enabled"
FIRST = 1_900_000_000_000
"""The timestamp of the earliest record: 2030-03-17T17:46:40Z."""

QUERIES = {
    "partition = 0 AND offset < 100": 100,
    "offset IN (0, 299) AND NOT topic = 'other'": 4,
    "partition <> 1 AND timestamp >= timestamp'2030-03-17T17:46:40.250500Z'": None,
    "timestamp < timestamp'2030-03-17T17:46:40.010Z' AND offset > 5.5": None,
    "partition = 0 OR offset = 7": 301,
}
"""Each filter, with the number of rows if it does not depend on random timestamps."""


@pytest.fixture
def read(spark, cluster: LocalCluster):
    """Return a function that loads the topic. Spark's setting allows filters to reach the data source."""

    def load(**given: str):
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "filtered"}
        return spark.read.format("minikafka").options(**options | given).load()

    spark.conf.set(ENABLED, "true")
    yield load
    spark.conf.unset(ENABLED)


async def fill(cluster: LocalCluster) -> None:
    """Create the topic with 300 records in each of two partitions, with timestamps out of order."""
    rng = random.Random(11)
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic("filtered", 2, 3))
        for partition in range(2):
            times = [FIRST + number + rng.randrange(-40, 40) for number in range(300)]
            for first in range(0, 300, 25):
                records = [Record(timestamp=time, value=b"v") for time in times[first : first + 25]]
                await client.produce("filtered", records, partition=partition)


async def test_query_with_pushed_filters_returns_the_same_rows(cluster, read):
    await fill(cluster)

    def job() -> list[int]:
        rows = read().drop("value", "key").cache()
        for where, count in QUERIES.items():
            pushed = read(pushFilters="true", includeValue="false", includeKey="false").where(where)
            found = sorted(pushed.collect())
            assert found == sorted(rows.where(where).collect()), where
            assert count is None or len(found) == count, where
        rows.unpersist()
        queries = [read(pushFilters=pushed).where("partition = 1") for pushed in ("true", "false")]
        return [query.rdd.getNumPartitions() for query in queries]

    assert await asyncio.to_thread(job) == [1, 2]


async def test_option_for_filters_without_the_setting_of_spark_names_the_setting(spark, read):
    spark.conf.unset(ENABLED)
    with pytest.raises(PySparkException, match=ENABLED):
        await asyncio.to_thread(read(pushFilters="true").where("partition = 0").collect)
