"""How far something is, where no bars can be drawn."""

from __future__ import annotations

import pytest
from support.manual_clock import ManualClock

from minikafka.cli.progress import NEWS_MS, Amount, Progress, size


def test_without_a_terminal_a_line_is_written_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = ManualClock()
    with Progress(clock, "partitions moved", shown=True) as progress:
        progress.update({"t-0": Amount(1, 4), "t-1": Amount(0, None)}, 0)
        progress.update({"t-0": Amount(2, 4)}, 1)
        clock.advance(NEWS_MS)
        progress.update({"t-0": Amount(3, 4)}, 1)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "0 of 2 partitions moved: t-0 25 %, t-1 …\n1 of 2 partitions moved: t-0 75 %\n"
    )


def test_many_are_not_all_named(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(ManualClock(), "partitions moved", shown=True) as progress:
        progress.update({f"t-{i}": Amount(0, 1) for i in range(20)}, 0)
    assert capsys.readouterr().err.endswith("t-15 0 %, and 4 more\n")


def test_nothing_is_written_where_nothing_shall_be_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress(ManualClock(), "x", shown=False) as progress:
        progress.update({"t-0": Amount(1, 4)}, 0)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"), (10**13, "10.0 TB")],
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert size(count) == text
