"""The histories of producers and consumers: their format, and functions that read them.

A producer's history has one row per record that the producer sent; docs/pipelines.md describes the format.
Records are identified by the SHA-256 of the value. Invariant: a history with an invalid row is rejected.
The error shows the row. For histories in JSON lines or in a topic, the error also shows the row's location.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeAlias
from urllib.parse import unquote, urlsplit

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from minikafka.spark.pipelines.session.failures import PipelineError

Counts: TypeAlias = Mapping[tuple[str, ...], int]
"""Number of reads per topic, or number of sends per topic and outcome."""
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
_SHOWN_MAX: Final = 100
"""Maximum number of characters of an invalid line that an error shows."""


@dataclass(frozen=True)
class Histories:
    """The locations of producers' histories (`schema` is `SENDS`) or consumers' histories (`READS`).

    `servers`: the bootstrap servers for histories that are stored in topics.
    """

    sources: tuple[str, ...]
    schema: str
    servers: str | None

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the rows of all histories. The hash `content` replaces `value` and `value_sha256`."""
        tables = [_source(spark, source, self.schema, self.servers) for source in self.sources]
        return reduce(DataFrame.unionByName, map(_hashed, tables))

    def first_row(self, spark: SparkSession, condition: Column) -> Row | None:
        """Return the first row that meets the condition; None if there is no such row.

        A row from JSON lines or from a topic also has the columns `line` and `place`.
        """
        for source in self.sources:
            lines = _lines(spark, source, self.servers)
            table = (
                _source(spark, source, self.schema, self.servers)
                if lines is None
                else _parsed(lines, self.schema)
            )
            if (found := _hashed(table).where(condition).first()) is not None:
                return found
        return None


class _Line(NamedTuple):
    """A line of a history: the text, and the place, which is a file URL or an offset in a topic."""

    place: str
    text: str

    def name(self) -> str:
        """Return where the line was read, as text. For a local file: the path, and the line number if it is known."""
        url = urlsplit(self.place)
        if url.scheme != "file":
            return self.place
        path = unquote(url.path)
        number = _line_number(Path(path), self.text)
        return f"{path}, line {number}" if number else path

    def is_cut_off(self) -> bool:
        """True if the line is the last line of its file and does not end with a newline.

        False for a topic, and for a file that this process cannot read.
        """
        url = urlsplit(self.place)
        if url.scheme != "file":
            return False
        try:
            with Path(unquote(url.path)).open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - len(self.text.encode())))
                return file.read().decode(errors="replace") == self.text
        except OSError:  # perhaps only the executors have the file
            return False


def _line_number(path: Path, text: str) -> int | None:
    """Return the number of the first line with this text; None if no line is found.

    No line is found in a compressed file, which this function does not decompress, nor in a file that only
    the executors have.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.rstrip(b"\r\n") == text.encode():
                    return number
    except OSError:
        return None
    return None


def count_sends(sends: DataFrame, histories: Histories) -> Counts:
    """Return the number of sends by topic and outcome. Raises PipelineError if a send is invalid."""
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
    rule = (
        f"a send needs producer, sequence, topic, an outcome of {', '.join(OUTCOMES)}, and a partition"
        " if it has an offset"
    )
    return _counted(sends, ("topic", "outcome"), valid, rule, histories)


def count_reads(reads: DataFrame, histories: Histories) -> Counts:
    """Return the number of reads by topic. Raises PipelineError if a read is invalid."""
    names = ("consumer", "position", "topic", "partition", "offset")
    valid = f.col("is_hash")
    for name in names:
        valid = valid & f.col(name).isNotNull()
    return _counted(reads, ("topic",), valid, f"a read needs {', '.join(names)}", histories)


def _counted(
    table: DataFrame, by: tuple[str, ...], valid: Column, rule: str, histories: Histories
) -> Counts:
    """Return the number of rows per value of the columns `by`. Raises PipelineError for an invalid row."""
    wrong = ~f.coalesce(valid, f.lit(False))
    counts = (f.count(f.lit(1)).alias("rows"), f.count_if(wrong).alias("wrong"))
    counted = table.groupBy(*by).agg(*counts).collect()
    if any(row.wrong for row in counted):
        row = histories.first_row(table.sparkSession, wrong)
        _refuse(table.where(wrong).first() if row is None else row, rule)
    return {tuple(row[name] for name in by): row.rows for row in counted}


def _refuse(wrong: Row | None, rule: str) -> NoReturn:
    assert wrong is not None, "the count has found an invalid row in the same histories"
    shown = wrong.asDict()
    is_hash = shown.pop("is_hash")
    del shown["content"]
    line = _Line(shown.pop("place"), shown.pop("line")) if "line" in shown else None
    if line is not None and all(fact is None for fact in shown.values()):
        _refuse_line(line, rule)
    where = "" if line is None else f"{line.name()}: "
    text = ", ".join(f"{name} {fact!r}" for name, fact in shown.items())
    hint = "" if is_hash else "; value_sha256 is 64 hexadecimal digits in lower case"
    raise PipelineError(f"{where}invalid row of a history: {text}; {rule}{hint}")


def _refuse_line(line: _Line, rule: str) -> NoReturn:
    text = line.text if len(line.text) <= _SHOWN_MAX else f"{line.text[:_SHOWN_MAX]}…"
    if line.is_cut_off():
        raise PipelineError(
            f"{line.name()} is cut off: {text}: let its writer finish, or remove the line"
        )
    raise PipelineError(
        f"{line.name()} is not a JSON object with the required columns: {text}: {rule}"
    )


def content_of(value: Column) -> Column:
    """Return the hash of a value; null has a hash too. Logs and histories are compared by this hash."""
    return f.xxhash64(f.coalesce(f.sha2(value, 256), f.lit("")))


def _hashed(table: DataFrame) -> DataFrame:
    """Replace the columns `value` and `value_sha256` by the hash `content`, and add the column `is_hash`.

    `is_hash` is false if `value_sha256` is given but is not 64 hexadecimal digits in lower case.
    """
    given = f.col("value_sha256")
    digest = f.coalesce(given, f.sha2(f.col("value"), 256), f.lit(""))
    is_hash = given.isNull() | given.rlike(_SHA256)
    columns = ("*", f.xxhash64(digest).alias("content"), is_hash.alias("is_hash"))
    return table.select(*columns).drop("value", "value_sha256")


def _source(spark: SparkSession, source: str, schema: str, servers: str | None) -> DataFrame:
    """Return the rows of one history: a topic with JSON values, a Parquet file or directory, or JSON lines."""
    if _is_parquet(source):
        return _parquet(spark, source, schema)
    if source.startswith(_TOPIC_PREFIX):
        return _parsed(_topic(spark, source, servers), schema).drop("line", "place")
    return spark.read.schema(schema).json(source)


def _is_parquet(source: str) -> bool:
    return not source.startswith(_TOPIC_PREFIX) and source.rstrip("/").endswith(".parquet")


def _lines(spark: SparkSession, source: str, servers: str | None) -> DataFrame | None:
    """Return the lines of a history as columns `line` and `place`; None for Parquet, which has no lines."""
    if _is_parquet(source):
        return None
    if source.startswith(_TOPIC_PREFIX):
        return _topic(spark, source, servers)
    lines = spark.read.text(source).where("trim(value) <> ''")
    return lines.select(f.col("value").alias("line"), f.col("_metadata.file_path").alias("place"))


def _topic(spark: SparkSession, source: str, servers: str | None) -> DataFrame:
    topic = source.removeprefix(_TOPIC_PREFIX)
    if servers is None:
        raise PipelineError(f"the history in topic {topic} needs --bootstrap HOST:PORT")
    reader = spark.read.format("minikafka").option("kafka.bootstrap.servers", servers)
    place = f.format_string("offset %d of %s-%d", "offset", "topic", "partition")
    rows = reader.option("subscribe", topic).load()
    return rows.select(f.col("value").cast("string").alias("line"), place.alias("place"))


def _parsed(lines: DataFrame, schema: str) -> DataFrame:
    """Return the columns `line` and `place`, and a column for each field of the JSON object in `line`.

    `place`: the URL of the file or, for a topic, the offset of the line.
    """
    row = f.from_json("line", schema).alias("row")
    return lines.select("line", "place", row).select("line", "place", "row.*")


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
    """Return a column cast to `kind`. `value` is not cast, because sha2 accepts strings and bytes."""
    return f.col(name) if name == "value" else f.col(name).cast(kind)
