"""Progress without a terminal."""

from __future__ import annotations

import pytest

from minikafka.simulation.clocks import ManualClock
from minikafka.tools.cli.terminal.progress import LINE_INTERVAL_MS, Amount, Progress, size


def test_progress_prints_a_line_per_interval_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = ManualClock()
    with Progress(clock, "partitions moved", shown=True) as progress:
        progress.update({"t-0": Amount(1, 4), "t-1": Amount(0, None)}, 0)
        progress.update({"t-0": Amount(2, 4)}, 1)
        clock.advance(LINE_INTERVAL_MS)
        progress.update({"t-0": Amount(3, 4)}, 1)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "0 of 2 partitions moved: t-0 25 %, t-1 ?\n1 of 2 partitions moved: t-0 75 %\n"
    )


def test_progress_names_a_limited_number_of_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(ManualClock(), "partitions moved", shown=True) as progress:
        progress.update({f"t-{i}": Amount(0, 1) for i in range(20)}, 0)
    assert capsys.readouterr().err.endswith("t-15 0 %, and 4 more\n")


def test_progress_line_names_the_counted_unit_and_is_printed_only_after_a_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = ManualClock()
    with Progress(clock, "", shown=True) as progress:
        for done in (1, 1, 2):
            progress.update({"read events": Amount(done, 4, f"{done} of 4 tasks")})
            clock.advance(LINE_INTERVAL_MS)
    assert capsys.readouterr().err == (
        "read events 25 % (1 of 4 tasks)\nread events 50 % (2 of 4 tasks)\n"
    )


def test_names_and_notes_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(ManualClock(), "", shown=True) as progress:
        progress.update({"t\n\x1b": Amount(1, 4, "n\r\x9b")})
    assert capsys.readouterr().err == "t\\n\\u001b 25 % (n\\r\\u009b)\n"


def test_names_and_notes_of_bars_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the output for a terminal
    with Progress(ManualClock(), "", shown=True) as progress:
        progress.update({"t\n\x1b": Amount(1, 4, "n\r\x9b")})
        [bar] = progress._bars.tasks
    assert (bar.description, bar.fields["note"]) == (r"t\n\u001b", r"n\r\u009b")


def test_hidden_progress_prints_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress(ManualClock(), "x", shown=False) as progress:
        progress.update({"t-0": Amount(1, 4)}, 0)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"), (10**13, "10.0 TB")],
)
def test_size_is_printed_in_decimal_units(count: int, text: str) -> None:
    assert size(count) == text
