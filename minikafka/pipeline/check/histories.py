"""The histories of producers and consumers: their format, and how they are read.

A producer's history has one row per record that it sent (docs/pipelines.md has the format). Records
are told apart by the SHA-256 of their values. Invariant: a history with a row that does not follow
the format is refused, and the error shows the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final, NoReturn, TypeAlias

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from minikafka.pipeline.failures import PipelineError

Counts: TypeAlias = Mapping[tuple[str, ...], int]
"""Number of rows by topic, and outcome of sends."""
OUTCOMES: Final = ("ok", "failed", "unknown", "aborted")
SENDS: Final = (
    "producer string, sequence long, topic string, partition int, offset long, outcome string,"
    " value string, value_sha256 string"
)
READS: Final = (
    "consumer string, position long, topic string, partition int, offset long,"
    " value string, value_sha256 string"
)
_OPTIONAL: Final = ("partition", "offset", "value", "value_sha256")
_TOPIC_PREFIX: Final = "topic:"
_SHA256: Final = "^[0-9a-f]{64}$"


def read_sends(spark: SparkSession, sources: Sequence[str], servers: str | None) -> DataFrame:
    """Return the sends of all histories: `SENDS` with `content` in place of the value."""
    return _read(spark, sources, SENDS, servers)


def read_reads(spark: SparkSession, sources: Sequence[str], servers: str | None) -> DataFrame:
    """Return the reads of all consumers' histories: `READS` with `content` in place of the value."""
    return _read(spark, sources, READS, servers)


def count_sends(sends: DataFrame) -> Counts:
    """Return the number of sends by topic and outcome. Raises PipelineError if one is invalid."""
    offset = f.col("offset")
    is_placed = f.col("partition").isNotNull() | (f.coalesce(offset, f.lit(-1)) < 0)
    valid = (
        f.col("producer").isNotNull()
        & f.col("sequence").isNotNull()
        & f.col("topic").isNotNull()
        & f.col("outcome").isin(*OUTCOMES)
        & is_placed
        & f.col("is_hash")
    )
    return _counted(
        sends,
        ("topic", "outcome"),
        valid,
        f"a send needs producer, sequence, topic, an outcome of {', '.join(OUTCOMES)}, and a partition with"
        " its offset",
    )


def count_reads(reads: DataFrame) -> Counts:
    """Return the number of reads by topic. Raises PipelineError if one is invalid."""
    names = ("consumer", "position", "topic", "partition", "offset")
    valid = f.col("is_hash")
    for name in names:
        valid = valid & f.col(name).isNotNull()
    return _counted(reads, ("topic",), valid, f"a read needs {', '.join(names)}")


def _counted(table: DataFrame, by: tuple[str, ...], valid: Column, rule: str) -> Counts:
    """Count all rows in one pass. Raises PipelineError if one is invalid."""
    wrong = ~f.coalesce(valid, f.lit(False))
    counts = (f.count(f.lit(1)).alias("rows"), f.count_if(wrong).alias("wrong"))
    counted = table.groupBy(*by).agg(*counts).collect()
    if any(row.wrong for row in counted):
        _refuse(table.where(wrong).first(), rule)
    return {tuple(row[name] for name in by): row.rows for row in counted}


def _refuse(wrong: Row | None, rule: str) -> NoReturn:
    assert wrong is not None, "the same table had an invalid row"
    shown = wrong.asDict()
    is_hash = shown.pop("is_hash")
    del shown["content"]
    if all(fact is None for fact in shown.values()):
        raise PipelineError(f"a line of a history is no JSON object with these columns: {rule}")
    text = ", ".join(f"{name} {fact!r}" for name, fact in shown.items())
    hint = "" if is_hash else "; value_sha256 is 64 hexadecimal digits in lower case"
    raise PipelineError(f"invalid row of a history: {text}; {rule}{hint}")


def content_of(value: Column) -> Column:
    """Return the number that stands for a value, null for none, in logs and in histories."""
    return f.xxhash64(f.coalesce(f.sha2(value, 256), f.lit("")))


def _read(
    spark: SparkSession, sources: Sequence[str], schema: str, servers: str | None
) -> DataFrame:
    tables = [_hashed(_source(spark, source, schema, servers)) for source in sources]
    return reduce(DataFrame.unionByName, tables)


def _hashed(table: DataFrame) -> DataFrame:
    """Replace the value, or its hash, by `content`; `is_hash`: a given hash can be one."""
    given = f.col("value_sha256")
    digest = f.coalesce(given, f.sha2(f.col("value"), 256), f.lit(""))
    is_hash = given.isNull() | given.rlike(_SHA256)
    columns = ("*", f.xxhash64(digest).alias("content"), is_hash.alias("is_hash"))
    return table.select(*columns).drop("value", "value_sha256")


def _source(spark: SparkSession, source: str, schema: str, servers: str | None) -> DataFrame:
    """Read one history: a topic with JSON values, a Parquet file or directory, or JSON lines."""
    if source.startswith(_TOPIC_PREFIX):
        return _topic(spark, source.removeprefix(_TOPIC_PREFIX), schema, servers)
    if source.rstrip("/").endswith(".parquet"):
        return _parquet(spark, source, schema)
    return spark.read.schema(schema).json(source)


def _topic(spark: SparkSession, topic: str, schema: str, servers: str | None) -> DataFrame:
    if servers is None:
        raise PipelineError(f"the history in topic {topic} needs --bootstrap HOST:PORT")
    reader = spark.read.format("minikafka").option("kafka.bootstrap.servers", servers)
    rows = reader.option("subscribe", topic).load()
    return rows.select(f.from_json(f.col("value").cast("string"), schema).alias("row")).select(
        "row.*"
    )


def _parquet(spark: SparkSession, path: str, schema: str) -> DataFrame:
    table = spark.read.parquet(path)
    fields = [field.split() for field in schema.split(", ")]
    missing = [name for name, _ in fields if name not in (*table.columns, *_OPTIONAL)]
    if missing:
        raise PipelineError(
            f"{path} has no column {', '.join(missing)}; its columns are {', '.join(table.columns)}"
        )
    columns = [
        _cast(table, name, kind) if name in table.columns else f.lit(None).cast(kind).alias(name)
        for name, kind in fields
    ]
    return table.select(*columns)


def _cast(table: DataFrame, name: str, kind: str) -> Column:
    """Return a column; a value stays binary, because sha2 reads strings and bytes alike."""
    return f.col(name) if name == "value" else f.col(name).cast(kind)
