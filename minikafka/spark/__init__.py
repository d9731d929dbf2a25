"""The Spark data source `minikafka`.

What runs in executors imports only `base`, `kafka.messages` and the modules of `kafka.records` that need no library.
The jobs in `pipelines` run on the driver, and may import more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from minikafka.spark import cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_ID: Final = "sql.streaming.queryId"
"""Name of the local property in which Spark has the id of the running stream."""
RUN_ID: Final = "spark.jobGroup.id"
"""Name of the local property in which the tasks of a stream have the id of the query's run."""
_SET_BY_STREAMS: Final = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)
"""Variables that Spark 4.3 sets in a source's environment whenever a stream starts."""


def register(spark: SparkSession) -> None:
    """Register `format("minikafka")` in a session.

    Spark finds an installed minikafka automatically, but not a source checkout on the Python path.
    """
    from pyspark.sql.utils import is_remote

    from minikafka.spark.datasource import MinikafkaDataSource

    if is_remote():  # no SparkContext: the server has its own environment
        spark.dataSource.register(MinikafkaDataSource)
        return
    environment = spark.sparkContext.environment
    environment[cores.VARIABLE] = str(cores.of_session(spark.sparkContext))
    with _variables_of_streams(environment):
        spark.dataSource.register(MinikafkaDataSource)


def append_to_topics(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that appends the rows of each micro-batch to topics.

    Spark refuses the output mode update for a Python data source, but not for `foreachBatch`. `options`: the
    options of a write. Raises `ConfigError` for invalid options.
    """
    from minikafka.spark.datasource import FORMAT
    from minikafka.spark.option_map import CHECKPOINT
    from minikafka.spark.sink.options import parse

    given = dict(options)
    is_known = not parse(given).exactly_once or CHECKPOINT in given

    def append(batch: DataFrame, _: int) -> None:
        writer = batch.write.format(FORMAT).mode("append").options(**given)
        found = None if is_known else checkpoint_of(batch.sparkSession)
        (writer.option(CHECKPOINT, found) if found else writer).save()

    return append


def checkpoint_of(spark: SparkSession) -> str | None:
    """Return the checkpoint of the stream whose micro-batch this thread handles; None if Spark does not tell."""
    from pyspark.sql.utils import is_remote

    if is_remote():
        return None
    query = spark.sparkContext.getLocalProperty(QUERY_ID)
    jvm: Any = spark._jvm
    running = spark._jsparkSession.sharedState().activeStreamingQueries()
    found = query and running.get(jvm.java.util.UUID.fromString(query))
    return str(found.resolvedCheckpointRoot()) if found else None


@contextmanager
def _variables_of_streams(environment: dict[str, str]) -> Iterator[None]:
    """Add the variables in `_SET_BY_STREAMS` to the environment while Spark copies the environment.

    All streams of a source share the copy, a HashMap without a lock. If two streams start at the same time
    and both add a variable, the HashMap may get a wrong size, and every executor fails with
    `OptionalDataException`. Replacing the value of an existing variable is safe.
    """
    missing = [name for name in _SET_BY_STREAMS if name not in environment]
    environment.update(dict.fromkeys(missing, ""))
    try:
        yield
    finally:
        for name in missing:
            del environment[name]
