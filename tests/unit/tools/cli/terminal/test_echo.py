"""Lines of commands, into which names and error texts from outside are inserted."""

from __future__ import annotations

import ast
import io
import sys
from pathlib import Path

import pytest

from minikafka.tools import cli
from minikafka.tools.cli.terminal.columns import Column, fold
from minikafka.tools.cli.terminal.console import plain_console
from minikafka.tools.cli.terminal.echo import echo, echo_data, escape_unencodable

EVIL = "g\x1b[2J\n% forged\r\x9b31m\u2028\u202e[red]"
SAFE = r"g\u001b[2J\n% forged\r\u009b31m\u2028\u202e[red]"


def test_each_argument_is_one_line_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    echo(f"group {EVIL}", f"b\t{EVIL}", "")
    echo(EVIL, err=True)
    echo()
    captured = capsys.readouterr()
    assert captured.out == f"group {SAFE}\nb\t{SAFE}\n\n\n"
    assert captured.err == f"{SAFE}\n"


def test_lines_that_a_command_reads_again_are_escaped_only_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    echo_data(EVIL)
    assert capsys.readouterr().out == f"{EVIL}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    echo_data(EVIL)
    assert capsys.readouterr().out == f"{SAFE}\n"


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", rb"caf\u00e9 \u2014 \ud83d\ude00"),
        ("latin-1", b"caf\xe9 \\u2014 \\ud83d\\ude00"),
        ("cp1252", b"caf\xe9 \x97 \\ud83d\\ude00"),
        ("utf-8", "café — 😀".encode()),
    ],
)
def test_characters_that_the_encoding_lacks_are_escaped_in_lines_tables_and_errors(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: bytes
) -> None:
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    escape_unencodable()
    echo("café — 😀")
    echo("café — 😀", err=True)
    table = fold("", [Column("café — 😀", "", str)], [])
    plain_console().print(table)
    for stream in streams:
        stream.flush()
    assert [line.strip() for line in streams[0].buffer.getvalue().splitlines()] == [shown, shown]  # type: ignore[attr-defined]
    assert streams[1].buffer.getvalue() == shown + b"\n"  # type: ignore[attr-defined]


def test_data_for_a_command_is_utf_8_in_every_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    echo("first")
    echo_data("ж,events,0,5")
    assert stream.buffer.getvalue() == "first\nж,events,0,5\n".encode()  # type: ignore[attr-defined]


def test_no_command_prints_without_escaping_its_text() -> None:
    """`print` remains for lines that contain no text from outside, of server processes and helpers, and in `main`."""
    found = {
        f"{path.name}: {ast.unparse(node.func)}"
        for path in Path(cli.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("click.echo", "click.secho", "print", "sys.stdout.write")
    }
    assert found == {
        "echo.py: print",
        "guard.py: print",
        "log4j.py: print",
        "server_log.py: print",
        "zookeeper_process.py: print",
        "main.py: print",
    }
