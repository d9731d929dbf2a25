"""One Spark session for all tests, because starting it is slow, and brokers to read from."""

from __future__ import annotations

import pytest
from support.fetch_brokers import FetchBrokers
from support.running_cluster import cluster, shared_cluster

from minikafka.spark.session import session

__all__ = ["brokers", "cluster", "read", "shared_cluster", "spark"]


@pytest.fixture(scope="session")
def spark():
    """Return a session with two cores, two attempts per task, and always the Java of the wheel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JAVA_HOME", raising=False)
        running = session("tests", "local[2,2]", spark_sql_shuffle_partitions="2")
    yield running
    running.stop()


@pytest.fixture
def brokers():
    running = FetchBrokers(3)
    yield running
    running.close()


@pytest.fixture
def read(spark, brokers):
    """Read topic `lines` of the brokers through `format("minikafka")`, with options by name."""

    def load(**given: str):
        reader = spark.read.format("minikafka").option("kafka.bootstrap.servers", brokers.bootstrap)
        return reader.options(**{"subscribe": "lines"} | given).load()

    return load
