"""The picture of the counts per window over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from minikafka.pipeline import plot
from minikafka.pipeline.plot import Picture, Series
from minikafka.pipeline.times import date_of
from minikafka.pipeline.window.counts import GROUP
from minikafka.pipeline.window.settings import WindowSettings

_DRAWN: Final = (-62_135_596_800_000_000, 253_402_214_400_000_000)
"""The first and the last time that a picture can show: 0001-01-01 and 9999-12-31, in Unix microseconds."""
_OTHERS: Final = "others"


def picture_of(settings: WindowSettings, title: str, windows: DataFrame) -> tuple[Picture, int]:
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
    picture = Picture(
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
