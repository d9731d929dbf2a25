"""The log of a server process on standard output, as text and as JSON."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from minikafka.base.errors import ConfigError
from minikafka.tools.cli.foreground.server_log import JSON, TEXT, ServerLog


def start_log(log_format: str, monkeypatch: pytest.MonkeyPatch) -> ServerLog:
    """Return the log of broker 3, without the handlers of pytest."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    log = ServerLog(log_format)
    log.name_broker(3)
    return log


def fail(log: ServerLog) -> None:
    with pytest.raises(ConfigError), log.end_of_process():
        raise ConfigError("port: it is wrong")


def test_text_has_records_and_plain_announcements(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = start_log(TEXT, monkeypatch)
    logging.getLogger("minikafka.y").info("topic %s", "t\nforged")
    log.serves("broker 3 serves")
    fail(log)  # the command prints the error
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("INFO    minikafka.y: topic t\\nforged")
    assert second == "broker 3 serves"


def test_json_has_only_objects_also_for_announcements_and_the_error_of_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = start_log(JSON, monkeypatch)
    logging.getLogger("minikafka.y").info("topic %s", "t\nforged")
    log.serves("broker 3 serves")
    fail(log)
    sys.excepthook(ValueError, ValueError("bug"), None)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["message"] for one in found] == [
        "topic t\nforged",
        "broker 3 serves",
        "port: it is wrong",
        "the process has crashed",
    ]
    assert [one["level"] for one in found] == ["INFO", "INFO", "ERROR", "CRITICAL"]
    assert {one["broker"] for one in found} == {3}
    assert found[-1]["exception"] == "ValueError: bug"
