"""One Spark session for the whole tier (starting it is what costs), and brokers to read from."""

from __future__ import annotations

import pytest
from support.fetch_brokers import FetchBrokers

from minikafka.spark.session import session


@pytest.fixture(scope="session")
def spark():
    """Two cores, two attempts per task, the Java of the wheel whatever the machine has."""
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
    """`format("minikafka")` with the brokers and topic `lines`; options by name."""

    def load(**given: str):
        reader = spark.read.format("minikafka").option("kafka.bootstrap.servers", brokers.bootstrap)
        return reader.options(**{"subscribe": "lines"} | given).load()

    return load
