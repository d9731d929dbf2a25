"""The histories of clients as tables: one row per record that a producer sent or a consumer received.

Plain lines (docs/pipelines.md) are such rows; `operations.py` makes rows of the events of clients (docs/isolation.md).
Records are identified by the SHA-256 of the value. Invariant: a history with an invalid row is rejected.
The error shows the row. For histories in JSON lines or in a topic, the error also shows the row's location.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeAlias
from urllib.parse import unquote, urlsplit

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from minikafka.base.names import parse_json
from minikafka.checks.histories import (
    ABORT,
    ABORTED,
    COMMIT,
    EVENT_FIELDS,
    FAILED,
    NEEDS,
    OK,
    PLAIN,
    READ,
    SEEK,
    UNKNOWN,
    WRITE,
)
from minikafka.checks.histories import OUTCOMES as EVENT_OUTCOMES
from minikafka.checks.replicas.operations import reads_of, writes_of
from minikafka.spark.frames import kept
from minikafka.spark.pipelines.session.failures import PipelineError

Counts: TypeAlias = Mapping[tuple[str, ...], int]
"""Number of reads per topic, or number of sends per topic and outcome."""
OUTCOMES: Final = (OK, FAILED, UNKNOWN, ABORTED)
_OPTIONAL: Final = ("partition", "offset", "value", "value_sha256", *EVENT_FIELDS, "transaction")
_TOPIC_PREFIX: Final = "topic:"
_SHA256: Final = "^[0-9a-f]{64}$"
_SHOWN_MAX: Final = 100
"""Maximum number of characters of an invalid line that an error shows."""


class _Side(NamedTuple):
    """The rows that the histories of producers, or those of consumers, contain."""

    name: str
    """The column with the name of the client."""
    columns: str
    """The columns of plain lines with their types, without the value."""
    needs: tuple[str, ...]
    """The columns that a plain line must have."""
    events: tuple[str, ...]
    """The events that are read. Others are left out."""
    by: tuple[str, ...]
    """The columns by which rows are counted."""
    rule: str
    is_valid: str = "true"
    """SQL condition for a plain line that has all columns it needs."""

    @property
    def schema(self) -> str:
        """The columns of a history with their types."""
        values = "value string, value_sha256 string"
        return (
            f"{self.columns}, {values}, client string, number long, event string, transaction long"
        )


_SIDES: Final = {
    WRITE: _Side(
        "producer",
        "producer string, sequence long, topic string, partition int, offset long, outcome string",
        ("producer", "sequence", "topic", "outcome"),
        (WRITE, COMMIT, ABORT),
        ("topic", "outcome"),
        f"a send needs producer, sequence, topic, an outcome of {', '.join(OUTCOMES)}, and a partition"
        " if it has an offset",
        f"outcome IN {OUTCOMES} AND (partition IS NOT NULL OR coalesce(offset, -1) < 0)",
    ),
    READ: _Side(
        "consumer",
        "consumer string, position long, topic string, partition int, offset long",
        ("consumer", "position", "topic", "partition", "offset"),
        (READ, SEEK),
        ("topic",),
        "a read needs consumer, position, topic, partition, offset",
    ),
}


@dataclass(frozen=True)
class Histories:
    """The histories at these locations. `kind`: whether their writes (`WRITE`) or their reads (`READ`) are wanted.

    `servers`: the bootstrap servers for histories that are stored in topics.
    """

    sources: tuple[str, ...]
    kind: str
    servers: str | None

    def read(self, spark: SparkSession) -> tuple[DataFrame, Counts]:
        """Return one row per write or read, and the number of rows. Raises PipelineError if a line is invalid.

        The hash `content` replaces `value` and `value_sha256`. Reads have the column `run` (`reads_of`).
        """
        side = _SIDES[self.kind]
        tables = [_source(spark, source, side.schema, self.servers) for source in self.sources]
        lines = kept(reduce(DataFrame.unionByName, [_hashed(table, side) for table in tables]))
        is_wrong = _is_wrong(side)
        columns = f.count_if(~is_wrong), f.count_if(is_wrong), f.count("step")
        counted = lines.groupBy(*side.by).agg(*columns).collect()
        if any(wrong for *_, wrong, _ in counted):
            self._refuse_wrong(lines, side)
            lines = lines.where(~is_wrong)
        plain = lines.where("step IS NULL").drop("step", "is_hash")
        if self.kind == READ:
            plain = plain.withColumn("run", f.lit(0))
        if not any(events for *_, events in counted):
            return plain, {tuple(key): rows for *key, rows, _, _ in counted if rows}
        made = (writes_of if self.kind == WRITE else reads_of)(lines.where("step IS NOT NULL"))
        both = kept(plain.unionByName(made))
        return both, {tuple(key): rows for *key, rows in both.groupBy(*side.by).count().collect()}

    def _refuse_wrong(self, lines: DataFrame, side: _Side) -> None:
        """Raise PipelineError for the first invalid line.

        Return if the only ones are last lines that killed clients did not finish after events.
        """
        is_cut_off = False
        for row in chain.from_iterable(self._wrong_rows(lines.sparkSession, side)):
            if "line" not in row or not _Line(row.place, row.line).is_unfinished_event():
                _refuse(row, side)
            is_cut_off = True
        if not is_cut_off:
            _refuse(lines.where(_is_wrong(side)).first(), side)

    def _wrong_rows(self, spark: SparkSession, side: _Side) -> Iterator[Iterator[Row]]:
        """Yield the invalid rows of each history.

        A row from JSON lines or from a topic also has the columns `line` and `place`.
        """
        for source in self.sources:
            lines = _lines(spark, source, self.servers)
            table = (
                _source(spark, source, side.schema, self.servers)
                if lines is None
                else _parsed(lines, side.schema)
            )
            yield _hashed(table, side).where(_is_wrong(side)).toLocalIterator()


def _is_wrong(side: _Side) -> Column:
    """Return the condition that a line is invalid."""
    plain = " AND ".join((*(f"{name} IS NOT NULL" for name in side.needs), side.is_valid))
    cases = " ".join(f"WHEN '{kind}' THEN {_has_fields(kind)}" for kind in side.events)
    event = f"CASE step.event {cases} END"
    if "outcome" in side.needs:
        event += f" AND outcome IN {EVENT_OUTCOMES}"
    return f.expr(f"NOT coalesce(is_hash AND if(step IS NULL, {plain}, {event}), false)")


def _has_fields(kind: str) -> str:
    return " AND ".join(
        f"{'step.' * (name == 'transaction')}{name} IS NOT NULL" for name in NEEDS[kind]
    )


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

    def is_unfinished_event(self) -> bool:
        """True if the line is cut off and its file begins with an event: its client was killed meanwhile."""
        if not self.is_cut_off():
            return False
        with Path(unquote(urlsplit(self.place).path)).open("rb") as file:
            try:
                first = parse_json(file.readline())
            except ValueError:
                return False
        return all(name in first for name in EVENT_FIELDS)


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


def _refuse(wrong: Row | None, side: _Side) -> NoReturn:
    assert wrong is not None, "the count has found an invalid row in the same histories"
    shown = wrong.asDict()
    is_hash, step = shown.pop("is_hash"), shown.pop("step")
    del shown["content"]
    line = _Line(shown.pop("place"), shown.pop("line")) if "line" in shown else None
    if line is not None and step is None and all(fact is None for fact in shown.values()):
        _refuse_line(line, side.rule)
    rule = side.rule
    if step is not None:
        shown = {**step.asDict(), "client": shown.pop(side.name), **shown}
        rule = _rule_of(step.event)
    where = "" if line is None else f"{line.name()}: "
    text = ", ".join(f"{name} {fact!r}" for name, fact in shown.items())
    hint = "" if is_hash else "; value_sha256 is 64 hexadecimal digits in lower case"
    raise PipelineError(f"{where}invalid row of a history: {text}; {rule}{hint}")


def _rule_of(event: str) -> str:
    if event not in NEEDS:
        return f"an event must be one of {', '.join(NEEDS)}"
    needed = ", ".join(NEEDS[event])
    return f"the event {event} needs {needed}, and an outcome of {', '.join(EVENT_OUTCOMES)}"


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


def _hashed(table: DataFrame, side: _Side) -> DataFrame:
    """Return the lines with the hash `content` instead of a value, and the columns `is_hash` and `step`.

    `is_hash` is false if `value_sha256` is given but is not 64 hexadecimal digits in lower case. `step` has the event
    and its transaction; it is null for a plain line. Events that are not wanted are left out.
    """
    is_event = " AND ".join(f"{name} IS NOT NULL" for name in EVENT_FIELDS)
    given = f"if({is_event}, lower(value_sha256), value_sha256)"
    number, _ = PLAIN[side.name]
    others = tuple(kind for kind in NEEDS if kind not in side.events)
    columns = {
        side.name: f"if({is_event}, client, {side.name})",
        number: f"if({is_event}, number, {number})",
        "content": f"xxhash64(coalesce({given}, sha2(value, 256), ''))",
        "is_hash": f"value_sha256 IS NULL OR {given} RLIKE '{_SHA256}'",
        "step": f"if({is_event}, named_struct('event', event, 'transaction', transaction), NULL)",
    }
    wanted = table.where(f"NOT ({is_event}) OR event NOT IN {others}")
    made = wanted.withColumns({name: f.expr(text) for name, text in columns.items()})
    return made.drop("value", "value_sha256", *EVENT_FIELDS, "transaction")


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
    has_events = set(table.columns).issuperset(EVENT_FIELDS)
    missing = [name for name, _ in fields if name not in (*table.columns, *_OPTIONAL)]
    if missing and not has_events:
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
