"""The Spark data source `minikafka`; imports only `minikafka.base`, so that executors need nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SET_BY_STREAMS: Final = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)
"""Variables that Spark 4.3 puts into a source's environment, with their values, whenever a stream starts."""


def register(spark: SparkSession) -> None:
    """Register `format("minikafka")` in a session whose Spark has not found it by itself.

    Spark finds an installed minikafka; a source checkout on the path is not found.
    """
    from pyspark.sql.utils import is_remote

    from minikafka.spark.datasource import MinikafkaDataSource

    if is_remote():  # the environment is the server's
        spark.dataSource.register(MinikafkaDataSource)
        return
    with _variables_of_streams(spark.sparkContext.environment):
        spark.dataSource.register(MinikafkaDataSource)


@contextmanager
def _variables_of_streams(environment: dict[str, str]) -> Iterator[None]:
    """Add the variables of streams to the environment while Spark copies it for a source.

    All streams share that copy, an unguarded HashMap. Two streams that start at once and both add a
    variable can leave it with a wrong size: then every executor fails with `OptionalDataException`. Two
    streams that replace the value of an existing variable do no harm.
    """
    missing = [name for name in _SET_BY_STREAMS if name not in environment]
    environment.update(dict.fromkeys(missing, ""))
    try:
        yield
    finally:
        for name in missing:
            del environment[name]
