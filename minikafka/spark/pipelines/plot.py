"""Pictures of results over time, as PNG or as an HTML page that works without a network.

The colours are the palette of Okabe and Ito, which colour-blind people can distinguish. Lines also differ
in markers and dashes. An HTML page also has the numbers in a table below the picture.
"""

from __future__ import annotations

import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from minikafka.base.errors import ConfigError
from minikafka.spark.storage.single_files import check_file, write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES: Final = (".png", ".html")
SERIES_MAX: Final = 7
"""Maximum number of series in a picture. If there are more, pipelines sum the smallest series as `others`."""
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS: Final = "os^Dv<>"
_DASHES: Final = ("-", "--", "-.", ":")
_NAME_MAX: Final = 36
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 31, tzinfo=UTC)
"""The ends of the axis of time. matplotlib rounds a later time to the year 10000, which it refuses."""
_POINTS_MARKED_MAX: Final = 60
_MARGIN: Final = 0.05
"""Part of the axis that stays free on each side."""
_WIDE_BARS_MAX: Final = 200
"""Number of bars next to each other that are wider than their edges."""
_SETTINGS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "minikafka",
    "font.size": 10,
}
_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em }}
svg {{ max-width: 100%; height: auto }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd }}
th:first-child, td:first-child {{ text-align: left }}
</style>
{svg}
<details><summary>The numbers</summary>
<table><thead><tr>{head}</tr></thead><tbody>
{rows}
</tbody></table></details>
</html>
"""


@dataclass(frozen=True)
class Series:
    """The times and values of one line, or of the bars of one colour."""

    name: str
    times: Sequence[datetime]
    values: Sequence[float | None]


@dataclass(frozen=True)
class Chart:
    """The content of a picture. `y_label`: the unit. `bar_s`: seconds per stacked bar; None draws lines."""

    title: str
    y_label: str
    series: Sequence[Series]
    bar_s: float | None = None


def check_path(path: str, storage: Mapping[str, str]) -> None:
    """Raise `ConfigError` if `write` cannot write this file. Call this function before a long job starts.

    Reasons: a suffix that is not in `SUFFIXES`, those of `check_file`, or matplotlib is not installed.
    """
    if not path.lower().endswith(SUFFIXES):
        raise ConfigError(f"a picture must end in {' or '.join(SUFFIXES)}, not {path!r}")
    check_file(path, storage)
    if find_spec("matplotlib") is None:
        raise ConfigError("pictures need matplotlib: pip install 'minikafka[spark]'")


def write(picture: Chart, path: str, storage: Mapping[str, str]) -> None:
    """Write the picture to a file at a path or a URI. The suffix of `path` selects PNG or HTML."""
    check_path(path, storage)
    drawn = _png(picture) if path.lower().endswith(".png") else _html(picture)
    write_file(path, drawn, storage)


def _png(picture: Chart) -> bytes:
    return _drawn(picture, format="png", dpi=110)


def _html(picture: Chart) -> bytes:
    svg = _drawn(picture, format="svg", metadata={"Date": None}).decode()
    return _page(picture, svg[svg.index("<svg") :]).encode()


def _drawn(picture: Chart, **options: Any) -> bytes:
    import matplotlib as mpl

    with mpl.rc_context(_SETTINGS):
        drawn = io.BytesIO()
        _figure(picture).savefig(drawn, **options)
    return drawn.getvalue()


def _figure(picture: Chart) -> Figure:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    (_draw_lines if picture.bar_s is None else _draw_bars)(axes, picture)
    axes.set_title(picture.title, loc="left")
    axes.set_ylabel(picture.y_label)
    axes.set_xlabel("time (UTC)")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    times = {time for series in picture.series for time in series.times}
    if times:
        axes.set_xlim(*_limits(times, picture.bar_s))  # type: ignore[arg-type]
        locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        formatter = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(formatter)
    else:
        axes.set_xticks([])
        axes.text(0.5, 0.5, "nothing to show", transform=axes.transAxes, ha="center")
    if len(picture.series) > 1:
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def _limits(times: set[datetime], bar_s: float | None) -> tuple[datetime, datetime]:
    """Return the first and last time of the axis: all points, or all bars in their whole width.

    matplotlib cannot place dates on an axis of length zero, so a single point gets a minute on each side.
    """
    first, last = min(times), max(times) + timedelta(seconds=bar_s or 0)
    margin = (last - first) * _MARGIN or timedelta(minutes=1)
    return first - min(margin, first - _FIRST), last + min(margin, _LAST - last)


def _draw_lines(axes: Axes, picture: Chart) -> None:
    styles = zip(cycle(_COLOURS), cycle(_MARKERS), cycle(_DASHES), strict=False)
    for series, (colour, marker, dash) in zip(picture.series, styles, strict=False):
        values = [float("nan") if value is None else value for value in series.values]
        axes.plot(
            series.times,  # type: ignore[arg-type]
            values,
            dash,
            color=colour,
            marker=marker if len(values) <= _POINTS_MARKED_MAX else None,
            markersize=4,
            linewidth=1.6,
            label=_short(series.name),
        )


def _draw_bars(axes: Axes, picture: Chart) -> None:
    assert picture.bar_s is not None
    width = picture.bar_s / 86_400
    starts = [time for series in picture.series for time in series.times]
    room = picture.bar_s + (max(starts) - min(starts)).total_seconds() if starts else picture.bar_s
    # A white edge would cover a thin bar: such a bar gets an edge of its own colour, so that it can be seen.
    is_thin = room > _WIDE_BARS_MAX * picture.bar_s
    bases: dict[datetime, float] = {}
    for series, colour in zip(picture.series, cycle(_COLOURS), strict=False):
        values = [value or 0.0 for value in series.values]
        axes.bar(
            series.times,  # type: ignore[arg-type]
            values,
            width,
            bottom=[bases.get(time, 0.0) for time in series.times],
            align="edge",
            color=colour,
            edgecolor=colour if is_thin else "white",
            linewidth=0.4,
            label=_short(series.name),
        )
        for time, value in zip(series.times, values, strict=True):
            bases[time] = bases.get(time, 0.0) + value


def _short(name: str) -> str:
    """Return the name, shortened to fit the legend.

    matplotlib omits names that begin with `_`, so these names get an invisible first character.
    """
    short = name if len(name) <= _NAME_MAX else name[: _NAME_MAX - 1] + "…"
    return "\u200b" + short if short.startswith("_") else short


def _page(picture: Chart, svg: str) -> str:
    names = "".join(f"<th>{html.escape(series.name)}</th>" for series in picture.series)
    known = [dict(zip(series.times, series.values, strict=True)) for series in picture.series]
    times = sorted({time for values in known for time in values})
    rows = (
        f"<tr><td>{time:%Y-%m-%d %H:%M:%S}</td>"
        + "".join(f"<td>{_number(values.get(time))}</td>" for values in known)
        + "</tr>"
        for time in times
    )
    title = html.escape(picture.title)
    head = f"<th>time (UTC)</th>{names}"
    return _PAGE.format(title=title, svg=svg, head=head, rows="\n".join(rows))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.10g}"
