"""What a person reads is what is there."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

import pytest

from minikafka.cli import cluster, status
from minikafka.cli.console import plain_console

ODD = "/data[bold]/[red]x[/red]/:warning:/[/]"


def test_text_comes_out_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    plain_console().print(ODD)
    assert capsys.readouterr().out == f"{ODD}\n"


def test_status_shows_a_log_directory_with_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    broker: dict[str, Any] = {"id": 1, "host": "h", "port": 1, "state": "up", "log_dir": ODD}
    shown = {
        "bootstrap": "b",
        "zookeeper": "z[x]",
        "zookeeper_pid": None,
        "controller": 1,
        "controller_epoch": 1,
        "brokers": [broker | {"pid": 1, "broker_epoch": 1, "backlog": None}],
        "partitions": [],
    }
    status._print(shown)
    out = capsys.readouterr().out
    assert ODD in out
    assert "z[x]" in out


def test_cluster_describe_shows_a_rack_and_a_path_with_brackets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = {"path": ODD, "error": None, "partitions": 1, "size": 1}
    broker = {
        "id": 1,
        "host": "h",
        "port": 1,
        "rack": "[b]",
        "alive": True,
        "controller": True,
        "broker_epoch": 1,
        "log_dirs": [directory],
    }
    cluster._print({"cluster_id": "c", "controller": 1, "controller_epoch": 1, "brokers": [broker]})
    out = capsys.readouterr().out
    assert ODD in out
    assert "[b]" in out


def test_a_reader_that_has_gone_is_an_error_of_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ends by it with 141, as those that print no table do; rich ended it with 1."""
    reader, writer = os.pipe()
    os.close(reader)
    with (
        suppress(BrokenPipeError),
        open(writer, "w") as gone,
    ):  # what is left in it cannot be written
        monkeypatch.setattr(sys, "stdout", gone)
        with pytest.raises(BrokenPipeError):
            plain_console().print("topic")
