"""The programs of `scripts/` on a terminal, where they show progress by rewriting lines."""

from __future__ import annotations

import asyncio
import importlib
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands.script_project import ROOT, make_project, processes_of, start
from support.rows.proof import MODES


class Terminal:
    """A terminal of 120 columns that records everything written to it."""

    def __init__(self) -> None:
        self._master, self.slave = pty.openpty()
        self._written = b""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # raised when no process has the terminal open
                return
            with self._changed:
                self._written += data
                self._changed.notify_all()

    @property
    def text(self) -> str:
        """Everything written so far, without control sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._written.decode(errors="replace"))

    def wait_for(self, text: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.text, timeout=60), self.text

    def close(self) -> None:
        os.close(self.slave)
        self._reader.join()
        os.close(self._master)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    made = Terminal()
    yield made
    made.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def run(program: str, project: Path, terminal: Terminal, *words: str) -> subprocess.Popen[bytes]:
    command = [str(project / "scripts" / program), *words]
    return start(command, project, terminal=terminal.slave)


@pytest.mark.row("N5")
@pytest.mark.parametrize("mode", MODES)
def test_chaos_script_reports_acknowledged_records_and_leaves_no_process(
    project: Path, terminal: Terminal, mode: str
) -> None:
    running = run(
        "chaos", project, terminal, "--seconds", "1.5", "--seed", "39303", "--coordination", mode
    )
    assert running.wait(180) == 0, terminal.text
    terminal.wait_for("acked")
    assert "1 × kill" in terminal.text
    assert "Traceback" not in terminal.text
    assert processes_of(project) == []


def test_chaos_script_changes_certificates_passwords_and_rights(
    project: Path, terminal: Terminal
) -> None:
    words = ["--secure", "--seconds", "1.5", "--seed", "39303", "--coordination", "leaders"]
    running = run("chaos", project, terminal, *words)
    assert running.wait(180) == 0, terminal.text
    terminal.wait_for("records of bob were refused")
    for change in ("certificate", "granted", "password", "removed"):
        assert re.search(f"[1-9] × {change}", terminal.text), terminal.text
    assert terminal.text.count("no acknowledged record was lost, the order was kept") == 2
    assert processes_of(project) == []


def test_quickstart_ends_quietly_when_it_is_interrupted(project: Path, terminal: Terminal) -> None:
    running = run("quickstart", project, terminal)
    terminal.wait_for("kill: SIGKILL to broker")
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(60) == 130, terminal.text
    assert "Traceback" not in terminal.text
    assert processes_of(project) == []


@pytest.mark.parametrize(
    ("program", "words", "code", "said"),
    [
        ("quickstart", ["--help"], 0, "usage: quickstart"),
        ("quickstart", ["--bogus"], 2, "unrecognized arguments: --bogus"),
        ("chaos", ["--seconds", "0"], 2, "must be more than 0 seconds"),
        ("chaos", ["--seconds", "nan"], 2, "must be more than 0 seconds"),
        ("chaos", ["--coordination", "nobody"], 2, "argument --coordination: invalid choice"),
        ("chaos", ["--secure", "--transactions"], 2, "not allowed with argument --secure"),
    ],
)
def test_script_refuses_invalid_arguments(
    project: Path, terminal: Terminal, program: str, words: list[str], code: int, said: str
) -> None:
    running = run(program, project, terminal, *words)
    assert running.wait(60) == code
    terminal.wait_for(said)


async def test_silent_spark_job_is_reported_with_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    job = importlib.import_module("quickstart_job")
    monkeypatch.setattr(job, "SPARK_SECONDS", 0.1)
    silent = await asyncio.create_subprocess_exec("sleep", "60", stdout=asyncio.subprocess.PIPE)
    try:
        with pytest.raises(
            RuntimeError, match=r"no output of the Spark job for 0\.1 s.*spark\.log"
        ):
            await job.spark_answer(silent)
    finally:
        silent.kill()
        await silent.wait()


class StalledStream:
    """A stream of records that still runs but receives no more acknowledgements."""

    acked = 17

    def is_alive(self) -> bool:
        return True


async def test_quickstart_fails_when_its_stream_stalls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    job = importlib.import_module("quickstart_job")
    monkeypatch.setattr(job, "STALLED_SECONDS", 0.1)
    said = pytest.raises(RuntimeError, match=r"no ack for 0\.1 s, after 17 of 100")
    with said, job.Display() as display, display.step("stream") as step:
        await job.show_progress(step, StalledStream(), 100, lambda: False)


JOB_THAT_FAILS = """
import endings
from confluent_kafka import KafkaError, KafkaException
def job():
    raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
endings.run("quickstart", job)
"""


def test_client_error_of_a_script_is_reported_in_one_line() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", JOB_THAT_FAILS],
        cwd=ROOT / "scripts",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("quickstart: ")
    assert ended.stderr.count("\n") == 1
