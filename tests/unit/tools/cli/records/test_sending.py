"""The progress bar and the summary of `produce`. `test_produce.py` tests the records."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.clients.stub_cluster import StubCluster

from minikafka.tools.cli.records import record_input
from minikafka.tools.cli.records.produce import ProduceSummary, input_size, produce
from minikafka.tools.cli.terminal import progress
from minikafka.tools.cli.terminal.progress import Amount


def send(*arguments: str) -> Result:
    return CliRunner().invoke(produce, ["t", "-b", "h:1", *arguments])


@pytest.fixture
def lines(stub: StubCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of four lines with 2,000,006 bytes, which takes several parts."""
    stub.create("t", [1, 2, 3])
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "lines"
    file.write_bytes(b"ab\n" + b"\n".join([b"x" * 1_000_000] * 2) + b"\n\n")
    return file


def test_summary_of_lines_and_files_is_one_line_on_standard_error(
    lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (["-l", str(lines)], ["-l"], [str(lines)], []):
        count = "1 record" if arguments == [str(lines)] else "4 records"
        with lines.open("rb") as standard_input:
            monkeypatch.setattr(record_input, "STDIN", standard_input.fileno())
            done = send(*arguments)
        if not arguments:
            assert done.output == ""
            break
        assert (done.exit_code, done.stdout) == (0, "")
        pattern = rf"sent {count} \(2\.0 MB\) to t in \d+\.\d s(, [\d,]+ per second)?\n"
        assert re.fullmatch(pattern, done.stderr), done.stderr


def test_json_summary_is_one_object_on_standard_output(lines: Path) -> None:
    done = send("-l", str(lines), "--summary", "json")
    found = json.loads(done.stdout)
    assert (found["topic"], found["records"], found["bytes"]) == ("t", 4, 2_000_002)
    assert found["seconds"] >= 0
    assert done.stderr == ""


def test_failure_is_reported_without_a_summary(lines: Path) -> None:
    lines.write_bytes(b'{"value": "a"}\nno JSON\n')
    done = send("--json", str(lines))
    assert "line 2" in str(done.exception)
    assert "1 record was stored" in str(done.exception)
    assert "sent" not in done.output


class Bar:
    """The amounts that the progress display got, and whether it was shown."""

    seen: tuple[bool, list[Amount]]

    def __init__(self, clock: object, what: str, *, shown: bool) -> None:
        self.amounts: list[Amount] = []
        Bar.seen = (shown, self.amounts)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, active: Mapping[str, Amount]) -> None:
        self.amounts.extend(active.values())


@pytest.mark.parametrize("is_terminal", [True, False])
def test_bar_on_a_terminal_ends_at_the_size_of_the_input(
    lines: Path, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "Progress", Bar)
    invoked = CliRunner()
    with invoked.isolation():
        monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: is_terminal)
    send("-l", str(lines), str(lines))
    shown, amounts = Bar.seen
    assert shown == is_terminal
    assert len(amounts) > 2
    assert [amount.done for amount in amounts] == sorted(amount.done for amount in amounts)
    assert amounts[-1][:2] == (4_000_012, 4_000_012)
    assert amounts[-1].note == "4.0 MB, 8 records"
    send()
    assert not Bar.seen[0]


def test_size_of_an_input_that_is_no_file_is_unknown(lines: Path, tmp_path: Path) -> None:
    assert input_size([str(lines), str(lines)]) == 4_000_012
    assert input_size(["/dev/null"]) is None


def test_summary_has_no_rate_before_any_time_has_passed() -> None:
    assert ProduceSummary("t", 1, 5).text() == "sent 1 record (5 B) to t in 0.0 s"
    assert ProduceSummary("t", 2_500, 5, 2).text().endswith(" in 2.0 s, 1,250 per second")
