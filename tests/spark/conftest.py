"""One Spark session for all tests, because starting it is slow."""

from __future__ import annotations

import pytest
from support.running_cluster import cluster, shared_cluster
from support.spark_connector import with_connector

from minikafka.spark.session import session

__all__ = ["cluster", "shared_cluster", "spark"]


@pytest.fixture(scope="session")
def spark():
    """Return a session with two cores, two attempts per task, and always the Java of the wheel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JAVA_HOME", raising=False)
        running = session(
            "tests", "local[2,2]", spark_sql_shuffle_partitions="2", **with_connector()
        )
    yield running
    running.stop()
