"""The queries of the window pipeline: records to counted windows, and the account of all records.

Each record belongs to exactly one of these: without a time, malformed, late (all its windows had been written
when it was read), or in a window. A record is in several sliding windows. It is counted as a record only in the
newest of them, so that the sums of `RECORDS` over windows are numbers of records.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from minikafka.spark.pipelines.run.columns import SHOWN_MAX, text
from minikafka.spark.pipelines.streams.dead_letters import PLACE, PLACES, first_places
from minikafka.spark.pipelines.times import MICROS_MAX, timestamp_of
from minikafka.spark.pipelines.window.settings import KEY, WindowSettings

GROUP: Final = "group"
ERROR: Final = "_error"
"""Name of the column that says why a record is malformed. It is null for other records."""
RECORDS: Final = "_records"
"""Name of the column with the records whose newest window this is."""
OF_RUN: Final = "_of_run"
"""Name of the column with those of `RECORDS` that the current run has read."""
_TIME: Final = "_time"
_GIVEN: Final = "_given"
_NUMBER: Final = "_number"
_HAS_VALUE: Final = "_has_value"
_WINDOW: Final = "_window"
_SUMS: Final = ("sum", "min", "max")


def judged(source: DataFrame, settings: WindowSettings) -> DataFrame:
    """Return the records of a source with the columns `_TIME` and `ERROR`. A malformed record has no time."""
    given = _json(settings.time) if settings.time else f.col("timestamp")
    time = _time(f.col(_GIVEN)) if settings.time else f.col(_GIVEN)
    timed = source.withColumn(_GIVEN, given).withColumn(_TIME, _in_reach(time, settings))
    found = timed.withColumn(ERROR, _error(settings))
    return found.withColumn(_TIME, f.when(f.col(ERROR).isNull(), f.col(_TIME)))


def prepared(source: DataFrame, settings: WindowSettings) -> DataFrame:
    """Return the columns for the windows. A column is null if the JSON value lacks the field."""
    columns = [f.col(name) for name in (*PLACE, ERROR, _TIME)]
    if settings.by:
        columns.append(_group(settings.by).alias(GROUP))
    if settings.value:
        given = _json(settings.value)
        columns += [_number(given).alias(_NUMBER), given.isNotNull().alias(_HAS_VALUE)]
    return judged(source, settings).select(*columns)


def _error(settings: WindowSettings) -> Column:
    """Return why a record is malformed; null if it is not."""
    given, time = f.col(_GIVEN), f.col(_TIME)
    if settings.time:
        shown = f.concat(f.lit(f"{settings.time} is not a time: "), f.left(given, f.lit(SHOWN_MAX)))
        no_time = f.when(given.isNotNull() & time.isNull(), shown)
    else:
        # The source reads a timestamp that Spark cannot hold as null.
        no_time = f.when(time.isNull(), f.lit("the timestamp is too far from 1970 for Spark"))
    if not settings.reads_json:
        return no_time
    # Inside an array, also text after the end of the value is an error.
    is_one = f.json_array_length(f.concat(f.lit("["), text("value"), f.lit("]"))) == 1
    is_json = f.coalesce(is_one, f.lit(False))
    return f.when(f.col("value").isNotNull() & ~is_json, "the value is not JSON").otherwise(no_time)


def _json(path: str) -> Column:
    return f.get_json_object(text("value"), path)


def _time(found: Column) -> Column:
    """Return the time in a text with Unix milliseconds or ISO 8601."""
    return f.coalesce(timestamp_of(found.try_cast("bigint")), found.try_cast("timestamp"))


def _in_reach(time: Column, settings: WindowSettings) -> Column:
    """Return the time, or null if the edges of its windows do not fit into 64 bits of microseconds."""
    limit = MICROS_MAX - 2 * (settings.size_us + settings.slide_us)
    return f.when(f.unix_micros(time).between(-limit, limit), time)


def _number(found: Column) -> Column:
    """Return the text as a number, or null if it is not a finite number."""
    number = found.try_cast("double")
    return f.when(f.abs(number) < float("inf"), number)


def _group(by: str) -> Column:
    if by.startswith("$"):
        return _json(by)
    return text(by) if by == KEY else f.col(by).cast("string")


def metrics(settings: WindowSettings, watermark: int | None) -> list[Column]:
    """Return the observed metrics of the prepared records: an account of all records, and the first places.

    `watermark`: the watermark before these records, in Unix microseconds. Windows that end at or before it were
    written.
    """
    time = f.unix_micros(_TIME)
    without_time = f.col(ERROR).isNull() & time.isNull()
    is_invalid = time.isNull()
    found = [
        f.count(f.lit(1)).alias("records"),
        f.count_if(without_time).alias("without_time"),
        f.count_if(f.col(ERROR).isNotNull()).alias("malformed"),
        f.max(time).alias("newest"),
    ]
    if settings.value:
        without_number = f.col(_HAS_VALUE) & f.col(_NUMBER).isNull() & time.isNotNull()
        found.append(f.count_if(without_number).alias("without_number"))
        is_invalid |= without_number
    found.append(first_places(is_invalid).alias(PLACES))
    if watermark is not None:
        is_late = _newest_end(settings) <= watermark
        found += [
            f.count_if(is_late).alias("late"),
            f.count_if(~is_late & (_oldest_end(settings) <= watermark)).alias("late_in_part"),
        ]
    return found


def _newest_end(settings: WindowSettings) -> Column:
    """Return the end of the newest window of a record, in Unix microseconds."""
    time = f.unix_micros(_TIME)
    return time - f.pmod(time, f.lit(settings.slide_us)) + settings.size_us


def _oldest_end(settings: WindowSettings) -> Column:
    """Return the end of the oldest window of a record, in Unix microseconds."""
    time = f.unix_micros(_TIME)
    return time + settings.slide_us - f.pmod(time - settings.size_us, f.lit(settings.slide_us))


def counted(records: DataFrame, settings: WindowSettings, watermark: int | None) -> DataFrame:
    """Return the windows of the prepared records that end after the watermark, as in `schema`."""
    slide = None if settings.slide_s is None else f"{settings.slide_s} seconds"
    window = f.window(_TIME, f"{settings.size_s} seconds", slide).alias(_WINDOW)
    others = [f.col(name) for name in (GROUP, _NUMBER) if name in records.columns]
    rows = records.where(f.col(_TIME).isNotNull()).select(window, _TIME, *others)
    start, end = f.unix_micros(f"{_WINDOW}.start"), f.unix_micros(f"{_WINDOW}.end")
    if watermark is not None:
        rows = rows.where(end > watermark)
    keys = [start.alias("window_start"), end.alias("window_end")]
    is_newest = f.unix_micros(_TIME) - start < settings.slide_us
    return rows.groupBy(*keys, *([GROUP] if settings.by else [])).agg(
        f.count(f.lit(1)).alias("count"),
        f.count_if(is_newest).alias(RECORDS),
        f.count_if(is_newest).alias(OF_RUN),
        *(getattr(f, kind)(_NUMBER).alias(kind) for kind in _SUMS if settings.value),
    )


def schema(settings: WindowSettings) -> str:
    """Return the columns of counted windows. Times are in Unix microseconds, which Parquet keeps in any year."""
    group = f"{GROUP} string, " if settings.by else ""
    sums = "".join(f", {kind} double" for kind in _SUMS if settings.value)
    counts = f"count long, {RECORDS} long, {OF_RUN} long"
    return f"window_start long, window_end long, {group}{counts}{sums}"


def merged(before: DataFrame, new: DataFrame, settings: WindowSettings) -> DataFrame:
    """Return the windows of both frames, each window once."""
    keys = ["window_start", "window_end", *([GROUP] if settings.by else [])]
    totals = [f.sum(name).alias(name) for name in ("count", RECORDS, OF_RUN)]
    sums = [getattr(f, kind)(kind).alias(kind) for kind in _SUMS if settings.value]
    return before.unionByName(new).groupBy(*keys).agg(*totals, *sums)


def shown(windows: DataFrame, settings: WindowSettings) -> DataFrame:
    """Return the windows with the columns of the result."""
    return windows.select(
        f.timestamp_micros("window_start").alias("window_start"),
        f.timestamp_micros("window_end").alias("window_end"),
        *([GROUP] if settings.by else []),
        "count",
        *(_SUMS if settings.value else ()),
    )
