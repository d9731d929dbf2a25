"""Tables on standard output."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import pytest
from rich.text import Text

from minikafka.base.errors import ErrorCode
from minikafka.client import Node, Outcome
from minikafka.client.administration.results import LogDir
from minikafka.tools.cli.cluster import describe
from minikafka.tools.cli.diagnosis import status
from minikafka.tools.cli.diagnosis.status import combined
from minikafka.tools.cli.terminal.columns import Column, fold
from minikafka.tools.cli.terminal.console import escaped, plain_console
from minikafka.tools.cluster.observation.causes import Cause
from minikafka.tools.cluster.observation.state import combine

ODD = "/data[bold]/[red]x[/red]/:warning:/[/]"


def test_console_prints_text_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    plain_console().print(ODD)
    assert capsys.readouterr().out == f"{ODD}\n"


def test_status_prints_a_log_directory_name_that_contains_brackets_unchanged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker = {"id": 1, "host": "h", "port": 1, "pid": 1, "log_dir": ODD}
    processes = {
        "bootstrap": "b",
        "zookeeper": "z[x]",
        "zookeeper_pid": None,
        "zookeeper_kind": "external",
        "coordination": "controller",
        "brokers": [broker],
    }
    cause = Cause("broker-down", "[red]gone[/red]")
    status._print(combined(processes, combine({}), {1: "up"}, [cause]), ())
    out = capsys.readouterr().out
    assert ODD in out
    assert "z[x]" in out
    assert "[red]gone[/red]" in out


def test_cluster_describe_prints_rack_and_path_that_contain_brackets_unchanged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = LogDir(ODD, Outcome(ErrorCode.NONE), (), -1, -1)
    broker = describe.KnownBroker(1, Node(1, "h", 1, "[b]"), 1, True, 1, [directory])
    describe._print(describe.ClusterView("c", "controller", 1, 1, [broker]))
    out = capsys.readouterr().out
    assert ODD in out
    assert "[b]" in out


def test_console_raises_brokenpipeerror_when_the_read_end_of_stdout_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rich would end the command with exit code 1. The code must be 141, as for a command that prints plain text."""
    reader, writer = os.pipe()
    os.close(reader)
    # Closing the stream raises again, because its buffer cannot be written.
    with suppress(BrokenPipeError), open(writer, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        with pytest.raises(BrokenPipeError):
            plain_console().print("topic")


def test_cells_headers_and_lines_are_escaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil, safe = "g\n\x1b[2J\x9b\u2028[red]", r"g\n\u001b[2J\u009b\u2028[red]"
    columns = [Column(evil, "", str), Column(evil, "", str)]
    console = plain_console()
    console.print(fold(evil, columns, [evil]))
    console.print(evil)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [[safe], [safe, safe], [safe, safe], [safe]]


def test_styled_text_is_escaped_and_keeps_its_styles() -> None:
    text = escaped(Text.assemble("a\n", ("b\x1b", "red"), "c"))
    assert text.plain == "a\\nb\\u001bc"
    assert {text.plain[span.start : span.end] for span in text.spans} <= {"b", "\\u001b"}
    assert {str(span.style) for span in text.spans} == {"red"}
