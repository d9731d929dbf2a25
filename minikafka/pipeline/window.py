"""The window pipeline: counts records per tumbling or sliding time window, in total or by key.

Without a checkpoint, the whole topic is read once, and the windows count all records that exist now. With a
checkpoint, the topic is read as a stream. A window is written when the watermark has passed the window's end,
and the next run continues where the previous run ended. Readers of the Parquet files see each window once
(`tables`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from minikafka.base.errors import ConfigError
from minikafka.pipeline import plot
from minikafka.pipeline.checkpoint_query import check_query
from minikafka.pipeline.columns import text
from minikafka.pipeline.places import PLACE, PLACES, first_places, places_table
from minikafka.pipeline.plot import Picture, Series
from minikafka.pipeline.report import Report
from minikafka.pipeline.streams import AVAILABLE_NOW, MAX_OFFSETS_PER_TRIGGER, Trigger, run_stream
from minikafka.pipeline.summary import Summary, Table
from minikafka.pipeline.tables import TableSettings, save_table, table_stream
from minikafka.pipeline.times import MICROS_MAX, date_of, facts_of, timestamp_of
from minikafka.spark.datasource import FORMAT
from minikafka.spark.table.directory import TableDirectory

_ROWS_MAX: Final = 50
"""Maximum number of windows in the summary, which lists the newest windows."""
_TIME: Final = "_time"
_GROUP: Final = "group"
_NUMBER: Final = "_number"
_HAS_VALUE: Final = "_has_value"
_WITHOUT_TIME: Final = "without_time"
_WITHOUT_NUMBER: Final = "without_number"
_DRAWN: Final = (-62_135_596_800_000_000, 253_402_214_400_000_000)
"""The first and the last time that a picture can show: 0001-01-01 and 9999-12-31, in Unix microseconds."""
_OTHERS: Final = "others"
_KEY: Final = "key"
_PLACES: Final = ("topic", "partition")


@dataclass(frozen=True)
class WindowSettings:
    """The settings of the window pipeline.

    `by`, `value` and `time` name a field of a JSON value as `$.field`. `by` may also be `key`, `topic` or
    `partition`. If `time` is None, the record's timestamp is used. The windows are written to the directory
    `parquet` or to the topic `to`, if one of the two is set.
    """

    servers: str
    topics: tuple[str, ...]
    size_s: int
    slide_s: int | None = None
    by: str | None = None
    value: str | None = None
    time: str | None = None
    watermark_s: int = 600
    parquet: str | None = None
    to: str | None = None
    checkpoint: str | None = None
    trigger: Trigger = AVAILABLE_NOW
    plot: str | None = None
    skip_lost: bool = False
    """Continue after records that were deleted before they were read."""

    def query(self) -> dict[str, str | None]:
        """Return the options that must stay the same as long as a checkpoint is used."""
        slide = None if self.slide_s is None else f"{self.slide_s} s"
        return {
            "--size": f"{self.size_s} s",
            "--slide": slide,
            "--by": self.by,
            "--value": self.value,
            "--time": self.time,
        }

    def check(self) -> None:
        """Raise `ConfigError` for settings that contradict each other."""
        if self.slide_s is not None and self.slide_s > self.size_s:
            text = f"the slide of {self.slide_s} s is longer than the window of {self.size_s} s"
            raise ConfigError(f"{text}: records between two windows would not be counted")
        for name, path in (("by", self.by), ("value", self.value), ("time", self.time)):
            allowed = (_KEY, *_PLACES) if name == "by" else ()
            if path is not None and not path.startswith("$") and path not in allowed:
                words = ", ".join((*allowed, "$.field of a JSON value"))
                raise ConfigError(f"--{name} must be one of {words}, not {path!r}")
        if self.checkpoint and not (self.parquet or self.to):
            raise ConfigError("a stream needs --parquet DIR or --to TOPIC to write its windows to")
        if self.parquet and self.to:
            raise ConfigError("give one of --parquet and --to, not both")
        if self.parquet:
            TableDirectory(self.parquet)
        if self.checkpoint is None and self.trigger.interval is not None:
            raise ConfigError("--continuous needs --checkpoint DIR")
        if self.plot:
            plot.check_path(self.plot)
            if self.checkpoint and not self.parquet:
                raise ConfigError("--plot of a stream needs --parquet DIR, which it reads")


def run(spark: SparkSession, settings: WindowSettings, report: Report) -> Summary:
    """Count the records, write the windows, draw them if `plot` is set, and return the newest windows."""
    settings.check()
    found = _stream if settings.checkpoint else _batch
    return found(spark, settings, report)


def _batch(spark: SparkSession, settings: WindowSettings, report: Report) -> Summary:
    name = _name(settings)
    counted = Observation(name)
    source = spark.read.format(FORMAT).options(**_source_options(settings)).load()
    prepared = _prepared(source, settings).observe(counted, *_metrics(settings))
    windows = _windows(prepared.where(f.col(_TIME).isNotNull()), settings).persist()
    with report.stage(name):
        rows = windows.count()
        if settings.parquet:
            save_table(windows.coalesce(1), TableSettings(settings.parquet), "error")
        if settings.to:
            _as_records(windows).write.format(FORMAT).mode("append").options(
                **_sink_options(settings)
            ).save()
    facts = {"records": counted.get["records"], "windows": rows}
    summary = _finished(settings, windows, facts | _invalid(counted.get), counted.get)
    windows.unpersist()
    return summary


def _stream(spark: SparkSession, settings: WindowSettings, report: Report) -> Summary:
    assert settings.checkpoint is not None
    check_query(spark, settings.checkpoint, settings.query())
    name = _name(settings)
    source = spark.readStream.format(FORMAT).options(
        **_source_options(settings),
        startingOffsets="earliest",
        maxOffsetsPerTrigger=MAX_OFFSETS_PER_TRIGGER,
    )
    prepared = _prepared(source.load(), settings).observe(name, *_metrics(settings))
    timed = prepared.where(f.col(_TIME).isNotNull())
    late = timed.withWatermark(_TIME, f"{settings.watermark_s} seconds")
    windows = _windows(late, settings)
    with _writer(spark, settings, windows) as writer:
        checkpointed = writer.option("checkpointLocation", settings.checkpoint)
        totals = run_stream(spark, checkpointed, settings.trigger, report, name=name)
    observed = totals.observed.get(name, {})
    facts: dict[str, Any] = {"batches": totals.batches, "records": totals.rows_read}
    facts |= _invalid(observed)
    if settings.to:
        return Summary(name, facts | {"windows": totals.rows_written or 0}, _places(observed))
    written = spark.read.schema(windows.schema).parquet(str(settings.parquet)).drop("batch")
    facts["windows_in_all"] = written.count()
    return _finished(settings, written, facts, observed)


@contextmanager
def _writer(
    spark: SparkSession, settings: WindowSettings, windows: DataFrame
) -> Iterator[DataStreamWriter]:
    if settings.to:
        records = _as_records(windows).writeStream.format(FORMAT)
        yield records.options(**_sink_options(settings))
        return
    assert settings.checkpoint is not None
    assert settings.parquet is not None
    table = TableSettings(settings.parquet)
    with table_stream(spark, table, settings.checkpoint, by_batch=True) as add:
        yield windows.writeStream.foreachBatch(add)


def _name(settings: WindowSettings) -> str:
    step = f" every {settings.slide_s} s" if settings.slide_s else ""
    return f"windows of {settings.size_s} s{step} of {', '.join(settings.topics)}"


def _source_options(settings: WindowSettings) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": settings.servers,
        "subscribe": ",".join(settings.topics),
        "kafka.isolation.level": "read_committed",
        "failOnTimestampOverflow": "false",
        "failOnDataLoss": str(not settings.skip_lost).lower(),
    }


def _sink_options(settings: WindowSettings) -> dict[str, str]:
    assert settings.to is not None
    return {"kafka.bootstrap.servers": settings.servers, "topic": settings.to}


def _prepared(source: DataFrame, settings: WindowSettings) -> DataFrame:
    """Return the columns for the windows. A column is null if the JSON value lacks the field.

    The places of the records are for `_metrics`.
    """
    columns = [*map(f.col, PLACE), _in_reach(_time(settings.time), settings).alias(_TIME)]
    if settings.by:
        columns.append(_group(settings.by).alias(_GROUP))
    if settings.value:
        given = _json(settings.value)
        columns += [_number(given).alias(_NUMBER), given.isNotNull().alias(_HAS_VALUE)]
    return source.select(*columns)


def _json(path: str) -> Column:
    return f.get_json_object(text("value"), path)


def _time(path: str | None) -> Column:
    """Return the time of a record: its timestamp, or a field with Unix milliseconds or ISO 8601."""
    if path is None:
        return f.col("timestamp")
    found = _json(path)
    return f.coalesce(timestamp_of(found.try_cast("bigint")), found.try_cast("timestamp"))


def _in_reach(time: Column, settings: WindowSettings) -> Column:
    """Return the time, or null if Spark cannot compute the windows of this time: their edges need 64 bits."""
    limit = MICROS_MAX - 2_000_000 * (settings.size_s + (settings.slide_s or settings.size_s))
    return f.when(f.unix_micros(time).between(-limit, limit), time)


def _number(found: Column) -> Column:
    """Return the text as a number, or null if it is not a finite number."""
    number = found.try_cast("double")
    return f.when(f.abs(number) < float("inf"), number)


def _group(by: str) -> Column:
    if by.startswith("$"):
        return _json(by)
    return text(by) if by == _KEY else f.col(by).cast("string")


def _metrics(settings: WindowSettings) -> list[Column]:
    without_time = f.col(_TIME).isNull()
    metrics = [
        f.count(f.lit(1)).alias("records"),
        f.count_if(without_time).alias(_WITHOUT_TIME),
    ]
    is_invalid = without_time
    if settings.value:
        without_number = f.col(_HAS_VALUE) & f.col(_NUMBER).isNull()
        metrics.append(f.count_if(without_number).alias(_WITHOUT_NUMBER))
        is_invalid |= without_number
    return [*metrics, first_places(is_invalid).alias(PLACES)]


def _invalid(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of records without a valid time and without a valid number, if there are any."""
    found = {f"records_{name}": counts.get(name) for name in (_WITHOUT_TIME, _WITHOUT_NUMBER)}
    return {name: count for name, count in found.items() if count}


def _places(counts: Mapping[str, Any]) -> tuple[Table, ...]:
    return places_table("first_invalid_records", counts)


def _windows(prepared: DataFrame, settings: WindowSettings) -> DataFrame:
    slide = None if settings.slide_s is None else f"{settings.slide_s} seconds"
    window = f.window(_TIME, f"{settings.size_s} seconds", slide)
    keys = [window, *([f.col(_GROUP)] if settings.by else [])]
    sums = [
        getattr(f, kind)(_NUMBER).alias(kind) for kind in ("sum", "min", "max") if settings.value
    ]
    counted = prepared.groupBy(*keys).agg(f.count(f.lit(1)).alias("count"), *sums)
    return counted.select(
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
        *([_GROUP] if settings.by else []),
        "count",
        *(("sum", "min", "max") if settings.value else ()),
    )


def _as_records(windows: DataFrame) -> DataFrame:
    key = f.col(_GROUP) if _GROUP in windows.columns else f.lit(None).cast("string")
    return windows.select(key.alias("key"), f.to_json(f.struct("*")).alias("value"))


def _finished(
    settings: WindowSettings, windows: DataFrame, facts: dict[str, Any], counts: Mapping[str, Any]
) -> Summary:
    order = [f.desc("window_start"), *([f.desc(_GROUP)] if settings.by else [])]
    newest = facts_of(windows.orderBy(*order).limit(_ROWS_MAX))
    if settings.plot:
        picture, left_out = _picture(settings, windows)
        plot.write(picture, settings.plot)
        facts["plot"] = settings.plot
        facts |= {"windows_not_drawn": left_out} if left_out else {}
    table = Table("newest_windows", tuple(windows.columns), newest[::-1])
    return Summary(_name(settings), facts, (table, *_places(counts)))


def _picture(settings: WindowSettings, windows: DataFrame) -> tuple[Picture, int]:
    """Return a picture of the counts over time: bars for tumbling windows, lines for sliding windows.

    The number is that of the windows that are left out because no date shows their times.
    """
    in_years = f.unix_micros("window_start").between(*_DRAWN) & f.unix_micros("window_end").between(
        *_DRAWN
    )
    left_out = windows.where(~in_years).count()
    windows = windows.where(in_years)
    names = _largest_groups(windows) if settings.by else []
    if settings.by:
        name = f.coalesce(f.col(_GROUP), f.lit("(none)"))
        shown = f.when(name.isin(names), name).otherwise(_OTHERS)
        windows = windows.groupBy("window_start", shown.alias(_GROUP)).agg(
            f.sum("count").alias("count")
        )
    rows = windows.withColumn("window_start", f.unix_micros("window_start"))
    is_sliding = settings.slide_s is not None and settings.slide_s < settings.size_s
    picture = Picture(
        title=_name(settings),
        y_label=f"records per {settings.size_s} s",
        series=_series(rows.orderBy("window_start").collect(), settings.by),
        bar_s=None if is_sliding else float(settings.size_s),
    )
    return picture, left_out


def _largest_groups(windows: DataFrame) -> list[str]:
    name = f.coalesce(f.col(_GROUP), f.lit("(none)")).alias(_GROUP)
    sums = windows.groupBy(name).agg(f.sum("count").alias("n"))
    ordered = sums.orderBy(f.desc("n"), _GROUP).limit(plot.SERIES_MAX + 1).collect()
    kept = ordered if len(ordered) <= plot.SERIES_MAX else ordered[: plot.SERIES_MAX - 1]
    return [row[_GROUP] for row in kept]


def _series(rows: Sequence[Row], by: str | None) -> list[Series]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[_GROUP] if by else "count", []).append(row)
    return [
        Series(name, [_date(row["window_start"]) for row in some], [row["count"] for row in some])
        for name, some in sorted(found.items(), key=lambda item: (item[0] == _OTHERS, item[0]))
    ]


def _date(micros: int) -> datetime:
    date = date_of(micros)
    assert date is not None, "_picture leaves out the others"
    return date
