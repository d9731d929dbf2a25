"""Plots as PNG files and as HTML pages that need no network."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from minikafka.base.errors import ConfigError
from minikafka.spark.pipelines.plot import Chart, Series, check_path, write

START = datetime(2026, 3, 1, 10, tzinfo=UTC)
TIMES = [START + timedelta(minutes=number) for number in range(30)]
LINES = Chart(
    "lag of <group> & co",
    "lag (records)",
    [
        Series("orders-0", TIMES, [float(n * n) for n in range(30)]),
        Series("_internal-1", TIMES[:5], [1, 2, None, 4, 5]),
    ],
)


def test_png_plot_is_a_valid_picture(tmp_path):
    write(LINES, str(tmp_path / "lag.png"), {})
    assert (tmp_path / "lag.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_html_plot_has_a_table_of_its_values_and_refers_to_no_other_file(tmp_path):
    write(LINES, str(tmp_path / "lag.html"), {})
    page = (tmp_path / "lag.html").read_text()
    assert "lag of &lt;group&gt; &amp; co" in page
    for text in ("lag (records)", "time (UTC)", "orders-0", "_internal-1", "<td>841</td>"):
        assert text in page
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', page) == []


@pytest.mark.parametrize("series", [[], [Series("empty", [], [])], [Series("one", TIMES[:1], [3])]])
@pytest.mark.parametrize("bar_s", [None, 60.0])
def test_plot_without_values_or_with_one_value_is_drawn(tmp_path, series, bar_s):
    write(Chart("few", "records", series, bar_s), str(tmp_path / "few.html"), {})
    assert "<svg" in (tmp_path / "few.html").read_text()


def test_plot_from_the_first_to_the_last_year_is_drawn(tmp_path):
    times = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, 23, 59, tzinfo=UTC)]
    write(
        Chart("all", "records", [Series("a", times, [1, 2])], 60.0), str(tmp_path / "all.html"), {}
    )
    assert "<svg" in (tmp_path / "all.html").read_text()


def bars(page: str) -> list[tuple[float, float]]:
    """Return the left and right end of each blue bar of an SVG, in points. The picture is 648 points wide."""
    paths = re.findall(r'<path d="([^"]*)" clip-path[^>]*fill: #0072b2', page)
    ends = [[float(x) for x in re.findall(r"[ML] (\S+) ", path)] for path in paths]
    return [(min(xs), max(xs)) for xs in ends]


@pytest.mark.parametrize("bar_s", [1.0, 60.0, 1_800.0, 86_400.0])
@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0]])
def test_bar_of_a_window_is_as_wide_as_the_window(tmp_path, bar_s, values):
    times = [START + timedelta(seconds=2 * bar_s * number) for number in range(len(values))]
    picture = Chart("few", "records", [Series("count", times, values)], bar_s)
    write(picture, str(tmp_path / "bars.html"), {})
    found = bars((tmp_path / "bars.html").read_text())
    widths = [right - left for left, right in found]
    if len(values) == 1:
        assert 450 < widths[0] < 620
    else:
        assert widths[0] == pytest.approx(widths[1])
        assert found[1][0] - found[0][1] == pytest.approx(widths[0])


def test_bars_that_are_thinner_than_their_edges_are_visible(tmp_path):
    times = [START, START + timedelta(days=3)]
    picture = Chart("few", "records", [Series("count", times, [1.0, 1.0])], 60.0)
    write(picture, str(tmp_path / "bars.html"), {})
    page = (tmp_path / "bars.html").read_text()
    assert re.search(r"fill: #0072b2; stroke: #0072b2", page)
    assert "stroke: #ffffff" not in page


@pytest.mark.parametrize("minutes", [3, 4, 180, 240])
def test_plot_over_a_few_minutes_or_hours_is_drawn(tmp_path, minutes):
    times = [START, START + timedelta(minutes=minutes)]
    write(Chart("few", "records", [Series("a", times, [1, 2])]), str(tmp_path / "few.html"), {})
    assert "<svg" in (tmp_path / "few.html").read_text()


@pytest.mark.parametrize(
    ("name", "message"), [("a.pdf", r"\.png or \.html"), ("missing/a.png", "does not exist")]
)
def test_unusable_plot_path_is_refused_before_the_job_runs(tmp_path, name, message):
    with pytest.raises(ConfigError, match=message):
        check_path(str(tmp_path / name), {})
