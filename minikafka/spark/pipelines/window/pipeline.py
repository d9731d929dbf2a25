"""The window pipeline: counts records per tumbling or sliding time window, in total or by key.

Without a checkpoint, the whole topic is read once, and the windows count all records that exist now. With a
checkpoint, the topic is read as a stream. A window is written when the watermark has passed the window's end,
and the next run continues where the previous run ended. Readers of the Parquet files see each window once
(`tables`). Until then a window is in the checkpoint.

Spark's own state of a streaming aggregate drops late rows without counting records: its number of dropped rows
counts groups of a task. Here each micro-batch is a batch query that knows the watermark, so it counts each record.
`open-windows/N` in the checkpoint holds the open windows after micro-batch N, and `open-windows/N.json` its
watermark. Both are written before the result of the micro-batch. A micro-batch that is repeated after a crash
begins with the files of the previous one, and ends with the watermark that it had before the crash. So it has
the same result, also if the delay of the watermark was changed in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as f

from minikafka.spark.datasource import FORMAT
from minikafka.spark.option_map import SERVERS
from minikafka.spark.pipelines import plot
from minikafka.spark.pipelines.plot import Chart, Series
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.pipelines.session.report import Fact, Report, Summary, Table
from minikafka.spark.pipelines.streams import dead_letters
from minikafka.spark.pipelines.streams.checkpoints import STATE, CheckpointFiles, check_query
from minikafka.spark.pipelines.streams.dead_letters import added, places_table
from minikafka.spark.pipelines.streams.streams import MAX_OFFSETS_PER_TRIGGER, run_stream
from minikafka.spark.pipelines.streams.tables import (
    TableSettings,
    read_table,
    save_table,
    table_stream,
)
from minikafka.spark.pipelines.times import date_of, facts_of
from minikafka.spark.pipelines.window.counts import (
    ERROR,
    GROUP,
    OF_RUN,
    RECORDS,
    counted,
    judged,
    merged,
    metrics,
    prepared,
    schema,
    shown,
)
from minikafka.spark.pipelines.window.settings import WindowSettings
from minikafka.spark.progress import metrics_of
from minikafka.spark.sink.options import TOPIC

__all__ = ["WindowSettings", "run"]

_ROWS_MAX: Final = 50
"""Maximum number of windows in the summary, which lists the newest windows."""
Write = Callable[[DataFrame, int], None]


def run(spark: SparkSession, settings: WindowSettings, report: Report) -> Summary:
    """Count the records, write the windows, draw them if `plot` is set, and return the newest windows."""
    settings.check()
    found = _stream if settings.checkpoint else _batch
    return found(spark, settings, report)


def _batch(spark: SparkSession, settings: WindowSettings, report: Report) -> Summary:
    name = _name(settings)
    seen = Observation(name)
    source = spark.read.format(FORMAT).options(**_source_options(settings)).load()
    records = prepared(source, settings)
    observed = records.observe(seen, *metrics(settings, None))
    found = counted(observed, settings, None).persist()
    windows = shown(found, settings)
    with report.stage(name):
        totals = found.agg(f.count(f.lit(1)), f.coalesce(f.sum(RECORDS), f.lit(0))).head()
        assert totals is not None, "an aggregate has one row"
        if settings.parquet:
            table = TableSettings(settings.parquet, storage=settings.storage)
            save_table(windows.coalesce(1), table, "error")
        if settings.to:
            _send(windows, settings)
        counts = _counts(seen, records, settings, None)
        dead = _send_malformed(source, settings, counts)
    facts = account(counts, totals[1]) | _dead(settings, dead) | {"windows": totals[0]}
    summary = _finished(settings, windows, facts, counts)
    found.unpersist()
    return summary


def _stream(spark: SparkSession, settings: WindowSettings, report: Report) -> Summary:
    assert settings.checkpoint is not None
    open_windows = OpenWindows(spark, settings.checkpoint)
    check_query(spark, settings.checkpoint, settings.query(), DIRECTORY)
    name = _name(settings)
    source = spark.readStream.format(FORMAT).options(
        **_source_options(settings),
        startingOffsets="earliest",
        maxOffsetsPerTrigger=MAX_OFFSETS_PER_TRIGGER,
    )
    with _writer(spark, settings) as write:
        counting = _Counting(settings, open_windows, write)
        writer = source.load().writeStream.foreachBatch(counting.add)
        checkpointed = writer.option("checkpointLocation", settings.checkpoint)
        run_stream(spark, checkpointed, settings.trigger, report, name=name)
    counts = counting.counts
    facts: dict[str, Fact] = {"batches": counting.batches}
    facts |= account(counts, counting.counted, counting.still_open)
    facts |= {"records_open_in_all": open_windows.newest().records}
    if settings.slide_us < settings.size_us:
        facts["records_late_for_some_windows"] = counts.get("late_in_part", 0)
    facts |= _dead(settings, counting.dead)
    if settings.to:
        return _summary(settings, facts | {"windows": counting.windows}, counts)
    columns = shown(spark.createDataFrame([], schema(settings)), settings).schema
    table = TableSettings(str(settings.parquet), storage=settings.storage)
    written = read_table(spark, table, columns).drop("batch")
    return _finished(settings, written, facts | {"windows_in_all": written.count()}, counts)


class _Counting:
    """The micro-batches of one run: counts their records, writes the complete windows and keeps the others.

    `counts`: sums of the observed metrics. `counted`, `still_open`: the records of this run in windows that were
    written, and in windows that are open. `dead`: the number of dead letters.
    """

    def __init__(self, settings: WindowSettings, open_windows: OpenWindows, write: Write) -> None:
        self._settings = settings
        self._open = open_windows
        self._write = write
        self.batches = 0
        self.windows = 0
        self.counts: dict[str, Any] = {}
        self.counted = 0
        self.still_open = 0
        self.dead = 0

    def add(self, source: DataFrame, batch: int) -> None:
        """Count the records of a micro-batch."""
        mark = self._open.mark(batch - 1) or Mark()
        seen = Observation()
        records = prepared(source, self._settings)
        observed = records.observe(seen, *metrics(self._settings, mark.watermark))
        new = counted(observed, self._settings, mark.watermark)
        windows = self._with_open(new, batch).persist()
        try:
            windows.count()
            counts = _counts(seen, records, self._settings, mark.watermark)
            watermark = self._watermark(mark, counts, batch)
            self._divide(windows, watermark, batch)
            self.dead += _send_malformed(source, self._settings, counts)
        finally:
            windows.unpersist()
        self.batches += 1
        counts.pop("newest")
        self.counts |= {key: added(self.counts.get(key), one) for key, one in counts.items()}

    def _with_open(self, new: DataFrame, batch: int) -> DataFrame:
        """Return the new windows merged with the open windows of the previous micro-batch."""
        if self._open.mark(batch - 1) is None:
            return new
        before = self._open.rows(new.sparkSession, batch - 1, schema(self._settings))
        if not self.batches:
            before = before.withColumn(OF_RUN, f.lit(0).cast("long"))
        return merged(before, new, self._settings)

    def _watermark(self, mark: Mark, counts: Mapping[str, Any], batch: int) -> int | None:
        """Return the watermark after a micro-batch: that of its first attempt, if this is a repetition."""
        before_crash = self._open.mark(batch)
        if before_crash is not None:
            return before_crash.watermark
        return mark.advanced(counts["newest"], self._settings.watermark_s)

    def _divide(self, windows: DataFrame, watermark: int | None, batch: int) -> None:
        """Keep the windows that end after the watermark, and write the others."""
        is_complete = f.coalesce(f.col("window_end") <= f.lit(watermark), f.lit(False))
        sums = {
            row[0]: row[1:]
            for row in windows.groupBy(is_complete)
            .agg(f.count(f.lit(1)), f.sum(RECORDS), f.sum(OF_RUN))
            .collect()
        }
        nothing = (0, 0, 0)
        written, _, of_run = sums.get(True, nothing)
        _, records, self.still_open = sums.get(False, nothing)
        self._open.keep(batch, windows.where(~is_complete), Mark(watermark, records))
        self._write(shown(windows.where(is_complete), self._settings), batch)
        self.windows += written
        self.counted += of_run


@contextmanager
def _writer(spark: SparkSession, settings: WindowSettings) -> Iterator[Write]:
    """Yield the function that writes the complete windows of a micro-batch."""
    if settings.to:
        yield lambda windows, batch: _send(windows, settings)
        return
    assert settings.checkpoint is not None
    assert settings.parquet is not None
    table = TableSettings(settings.parquet, storage=settings.storage)
    with table_stream(spark, table, settings.checkpoint, by_batch=True) as add:
        yield add


def _counts(
    seen: Observation, records: DataFrame, settings: WindowSettings, watermark: int | None
) -> dict[str, Any]:
    """Return the metrics of the prepared records. Read them again if no record has a window and Spark dropped them."""
    if found := metrics_of(seen):
        return found
    row = records.agg(*metrics(settings, watermark)).head()
    assert row is not None, "an aggregate has one row"
    return row.asDict()


def _name(settings: WindowSettings) -> str:
    step = f" every {settings.slide_s} s" if settings.slide_s else ""
    return f"windows of {settings.size_s} s{step} of {', '.join(settings.topics)}"


def _source_options(settings: WindowSettings) -> dict[str, str]:
    return {
        SERVERS: settings.servers,
        "subscribe": ",".join(settings.topics),
        "kafka.isolation.level": "read_committed",
        "failOnTimestampOverflow": "false",
        "failOnDataLoss": str(not settings.skip_lost).lower(),
        **({"includeHeaders": "true"} if settings.dead_letter else {}),
        **settings.security,
    }


def _send(windows: DataFrame, settings: WindowSettings) -> None:
    """Write the windows to the topic `to`."""
    key = f.col(GROUP) if GROUP in windows.columns else f.lit(None).cast("string")
    records = windows.select(key.alias("key"), f.to_json(f.struct("*")).alias("value"))
    options = {SERVERS: settings.servers, TOPIC: str(settings.to), **settings.security}
    records.write.format(FORMAT).mode("append").options(**options).save()


def _send_malformed(source: DataFrame, settings: WindowSettings, counts: Mapping[str, Any]) -> int:
    """Write the malformed records to the topic `dead_letter`, and return their number.

    The records are read again only if some of them are malformed.
    """
    if not (settings.dead_letter and counts["malformed"]):
        return 0
    found = judged(source, settings).where(f.col(ERROR).isNotNull())
    records = dead_letters.letters(found, f.col(ERROR))
    servers = {SERVERS: settings.servers, **settings.security}
    return dead_letters.send(records, servers, settings.dead_letter)


def account(
    counts: Mapping[str, Any], in_windows: int, still_open: int | None = None
) -> dict[str, Fact]:
    """Return the account of all records that were read: the sum of the other numbers is `records`.

    The numbers are observed independently: those of `counts` where the records are read, `in_windows` and
    `still_open` where the windows are. If the sum differs, `records_unaccounted` has the difference.
    `still_open`: None if no window stays open, because no further records are read.
    """
    found = {"records": counts.get("records", 0), "records_counted": in_windows}
    if still_open is not None:
        found |= {"records_open": still_open, "records_late": counts.get("late", 0)}
    found |= {f"records_{name}": counts.get(name, 0) for name in ("without_time", "malformed")}
    rest = 2 * found["records"] - sum(found.values())
    extra = {"records_unaccounted": rest, "records_without_number": counts.get("without_number")}
    return found | {name: number for name, number in extra.items() if number}


def _dead(settings: WindowSettings, number: int) -> dict[str, Fact]:
    return {"dead_letters": number} if settings.dead_letter else {}


def _finished(
    settings: WindowSettings, windows: DataFrame, facts: dict[str, Fact], counts: Mapping[str, Any]
) -> Summary:
    order = [f.desc("window_start"), *([f.desc(GROUP)] if settings.by else [])]
    newest = facts_of(windows.orderBy(*order).limit(_ROWS_MAX))
    if settings.plot:
        picture, left_out = picture_of(settings, _name(settings), windows)
        plot.write(picture, settings.plot, settings.storage)
        facts["plot"] = settings.plot
        facts |= {"windows_not_drawn": left_out} if left_out else {}
    table = Table("newest_windows", tuple(windows.columns), newest[::-1])
    return _summary(settings, facts, counts, table)


def _summary(
    settings: WindowSettings, facts: dict[str, Fact], counts: Mapping[str, Any], *tables: Table
) -> Summary:
    places = places_table("first_invalid_records", counts)
    ok = "records_unaccounted" not in facts
    return Summary(_name(settings), facts, (*tables, *places), ok)


_DRAWN: Final = (-62_135_596_800_000_000, 253_402_214_400_000_000)
"""The first and the last time that a picture can show: 0001-01-01 and 9999-12-31, in Unix microseconds."""
_OTHERS: Final = "others"


def picture_of(settings: WindowSettings, title: str, windows: DataFrame) -> tuple[Chart, int]:
    """Return a picture of the counts over time: bars for tumbling windows, lines for sliding windows.

    The second value is the number of windows that are left out, because no date can show their times.
    """
    in_years = f.unix_micros("window_start").between(*_DRAWN) & f.unix_micros("window_end").between(
        *_DRAWN
    )
    left_out = windows.where(~in_years).count()
    windows = windows.where(in_years)
    names = _largest_groups(windows) if settings.by else []
    if settings.by:
        name = f.coalesce(f.col(GROUP), f.lit("(none)"))
        shown = f.when(name.isin(names), name).otherwise(_OTHERS)
        windows = windows.groupBy("window_start", shown.alias(GROUP)).agg(
            f.sum("count").alias("count")
        )
    rows = windows.withColumn("window_start", f.unix_micros("window_start"))
    is_sliding = settings.slide_s is not None and settings.slide_s < settings.size_s
    picture = Chart(
        title=title,
        y_label=f"records per {settings.size_s} s",
        series=_series(rows.orderBy("window_start").collect(), settings.by),
        bar_s=None if is_sliding else float(settings.size_s),
    )
    return picture, left_out


def _largest_groups(windows: DataFrame) -> list[str]:
    name = f.coalesce(f.col(GROUP), f.lit("(none)")).alias(GROUP)
    sums = windows.groupBy(name).agg(f.sum("count").alias("n"))
    ordered = sums.orderBy(f.desc("n"), GROUP).limit(plot.SERIES_MAX + 1).collect()
    kept = ordered if len(ordered) <= plot.SERIES_MAX else ordered[: plot.SERIES_MAX - 1]
    return [row[GROUP] for row in kept]


def _series(rows: Sequence[Row], by: str | None) -> list[Series]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[GROUP] if by else "count", []).append(row)
    return [
        Series(name, [_date(row["window_start"]) for row in some], [row["count"] for row in some])
        for name, some in sorted(found.items(), key=lambda item: (item[0] == _OTHERS, item[0]))
    ]


def _date(micros: int) -> datetime:
    date = date_of(micros)
    assert date is not None, "picture_of leaves out the others"
    return date


DIRECTORY: Final = "open-windows"
_MICROS_MIN: Final = -(2**63)


@dataclass(frozen=True)
class Mark:
    """The watermark after a micro-batch, in Unix microseconds, and the number of records in open windows.

    `watermark`: None before the first record with a time.
    """

    watermark: int | None = None
    records: int = 0

    def advanced(self, newest: int | None, delay_s: int) -> int | None:
        """Return the watermark after records up to the time `newest`; a watermark never goes back."""
        if newest is None:
            return self.watermark
        reached = max(newest - 1_000_000 * delay_s, _MICROS_MIN)
        return reached if self.watermark is None else max(self.watermark, reached)


class OpenWindows:
    """The open windows in a checkpoint. Raises `PipelineError` for a checkpoint with Spark's own state."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._files = CheckpointFiles(spark, checkpoint)
        if self._files.has(STATE):
            raise PipelineError(
                f"the checkpoint {checkpoint} was written by an earlier version, which did not count late"
                " records: name a new checkpoint directory, and a new directory for the results"
            )

    def newest(self) -> Mark:
        """Return the mark of the newest micro-batch."""
        names = [name for name in self._files.names(DIRECTORY) if name.endswith(".json")]
        numbers = [int(name.removesuffix(".json")) for name in names]
        return (self.mark(max(numbers)) if numbers else None) or Mark()

    def mark(self, batch: int) -> Mark | None:
        """Return the mark after a micro-batch; None if there is none."""
        name = f"{DIRECTORY}/{batch}.json"
        if not self._files.read(name):
            return None  # a crash may leave an empty file
        return Mark(**(self._files.facts(name) or {}))

    def rows(self, spark: SparkSession, batch: int, schema: str) -> DataFrame:
        """Return the open windows after a micro-batch, which has a mark."""
        return spark.read.schema(schema).parquet(self._files.url(f"{DIRECTORY}/{batch}"))

    def keep(self, batch: int, rows: DataFrame, mark: Mark) -> None:
        """Write the open windows and the mark after a micro-batch, and remove those that no run can need."""
        rows.write.mode("overwrite").parquet(self._files.url(f"{DIRECTORY}/{batch}"))
        self._files.write(f"{DIRECTORY}/{batch}.json", json.dumps(asdict(mark)))
        for name in (str(batch - 2), f"{batch - 2}.json"):
            self._files.remove(f"{DIRECTORY}/{name}")
