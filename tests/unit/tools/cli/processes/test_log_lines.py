"""The lines of a broker's log, into which clients, files and ZooKeeper insert names."""

from __future__ import annotations

import json
import logging
import re
import sys

import pytest

from minikafka.tools.cli.processes import log_lines
from minikafka.tools.cli.processes.log_lines import JsonFormatter, LineFormatter, escape_warnings

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")
FORGED = "t\n2026-01-01 00:00:00,000 ERROR forged\x1b[2J\r\x9b\u2028\u202e"


def lines(record: logging.LogRecord) -> list[str]:
    return LineFormatter(log_lines.LINE).format(record).split("\n")


def record(*args: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("minikafka.x", logging.INFO, "x.py", 1, "topic %s", args, None)
    made.__dict__.update(fields)
    return made


def test_record_is_one_line_whatever_name_it_contains() -> None:
    [line] = lines(record(FORGED))
    assert TIME.match(line)
    assert line.isprintable()
    assert line.endswith(
        r"INFO    minikafka.x: topic t\n2026-01-01 00:00:00,000 ERROR forged\u001b[2J\r\u009b\u2028\u202e"
    )


def test_lines_of_a_traceback_cannot_be_taken_for_lines_of_the_log() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        found = lines(record("t", exc_info=sys.exc_info(), stack_info=f"Stack:\n{FORGED}"))
    assert found[0].endswith("topic t")
    assert "    Traceback (most recent call last):" in found
    assert all(line.startswith("    ") and line.isprintable() for line in found[1:])
    assert sum("ERROR forged" in line for line in found) == 2


def test_json_record_has_its_fields_and_is_one_line() -> None:
    formatter = JsonFormatter()
    made = record(FORGED)
    made.created = 1_767_225_600.5
    assert json.loads(formatter.format(made)) == {
        "time": "2026-01-01T00:00:00.500+00:00",
        "level": "INFO",
        "logger": "minikafka.x",
        "message": f"topic {FORGED}",
    }
    formatter.broker_id = 7
    line = formatter.format(made)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["broker"] == 7


def test_json_record_of_an_exception_has_its_traceback() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        line = JsonFormatter().format(record("t", exc_info=sys.exc_info()))
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith(f"ValueError: {FORGED}")


def test_warning_of_a_command_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "lastResort", logging._StderrHandler(logging.WARNING))  # type: ignore[attr-defined]
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    escape_warnings()
    logging.getLogger("minikafka.z").warning("topic %s", "t\n% forged\x1b")
    assert capsys.readouterr().err == "topic t\\n% forged\\u001b\n"
