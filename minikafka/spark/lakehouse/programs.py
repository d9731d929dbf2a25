"""Tables as the target of streams in programs of users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from minikafka.base.errors import ConfigError
from minikafka.spark import QUERY_ID, checkpoint_of
from minikafka.spark.lakehouse.append import LakeWriter, StreamBatch
from minikafka.spark.lakehouse.rules import parse_rules
from minikafka.spark.lakehouse.stage import NULL, REFUSE
from minikafka.spark.lakehouse.tables import DELTA, FORMATS, ICEBERG, RECORDS, LakeSettings
from minikafka.spark.micro_batches import plan_of


def append_to_table(
    format: str,
    path: str = "",
    *,
    table: str = RECORDS,
    catalog: Mapping[str, str] | None = None,
    storage: Mapping[str, str] | None = None,
    partition_by: Sequence[str] = (),
    timestamps: str = REFUSE,
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that adds each micro-batch of a stream to a table once.

    `format`: `delta` or `iceberg`. `path`: the table's directory or URI; it may be left out if `catalog`, pyiceberg's
    properties of a catalog, is given. `table`: the name in the catalog. `storage`: deltalake's options of an object
    storage. `partition_by`: columns, `date(COLUMN)` or `hour(COLUMN)`. `timestamps`: `refuse` or `null` for times
    outside of the years 1 to 9999. Raises `ConfigError` for invalid arguments.
    """
    settings = table_settings(
        format,
        path,
        table=table,
        catalog=catalog,
        storage=storage,
        partition_by=partition_by,
        timestamps=timestamps,
    )
    writer = LakeWriter(settings)

    def append(batch: DataFrame, number: int) -> None:
        writer.add_micro_batch(batch, _micro_batch(batch.sparkSession, number))

    return append


def table_settings(
    format: str,
    path: str,
    *,
    table: str = RECORDS,
    catalog: Mapping[str, str] | None = None,
    storage: Mapping[str, str] | None = None,
    partition_by: Sequence[str] = (),
    timestamps: str = REFUSE,
    compression: str = "zstd",
) -> LakeSettings:
    """Return the settings of a table. Raises `ConfigError` for a value that is not allowed."""
    if format not in FORMATS:
        raise ConfigError(f"format must be delta or iceberg, not {format!r}")
    if timestamps not in (REFUSE, NULL):
        raise ConfigError(f"timestamps must be refuse or null, not {timestamps!r}")
    if format == DELTA and (catalog or table != RECORDS):
        raise ConfigError("catalog and table have no effect on the format delta: remove them")
    if format == ICEBERG and storage:
        raise ConfigError(
            "storage has no effect on the format iceberg: name its properties in catalog"
        )
    if not path and not catalog:
        raise ConfigError("path is missing: name the directory or the URI of the table")
    rules = parse_rules([partition_by] if isinstance(partition_by, str) else partition_by)
    return LakeSettings(
        format, path, table, catalog or {}, storage or {}, rules, timestamps, compression
    )


def _micro_batch(spark: SparkSession, number: int) -> StreamBatch:
    query = spark.sparkContext.getLocalProperty(QUERY_ID)
    checkpoint = checkpoint_of(spark)
    if not query or not checkpoint:
        raise ConfigError(
            "append_to_table writes the micro-batches of a stream: pass it to writeStream.foreachBatch"
        )
    return StreamBatch(
        query, number, plan_of(_planned(spark, checkpoint, number)).digest, checkpoint
    )


def _planned(spark: SparkSession, checkpoint: str, number: int) -> str:
    """Return the text of Spark's file with the planned offsets of a micro-batch."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets/{number}")
    stream = path.getFileSystem(spark._jsc.hadoopConfiguration()).open(path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
