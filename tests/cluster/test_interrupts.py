"""Ctrl-C at any moment of a program's life ends it without a traceback and leaves no process.

The moment is the import of a module: an interpreter that is told `INTERRUPT_AT` sends itself SIGINT then.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.script_project import make_project, processes_of, start

CODES = (130, -signal.SIGINT)
"""By itself, or by the signal, which a shell shows as the same number."""
UNBORN = 1
"""An interpreter that was interrupted before it could run anything."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def assert_quiet(program: subprocess.Popen[bytes], directory: Path) -> None:
    output, _ = program.communicate(timeout=60)
    text = output.decode()
    assert program.returncode in (CODES if text else (*CODES, UNBORN)), text
    assert "Traceback" not in text
    assert "Error" not in text
    assert "Exception ignored" not in text
    assert processes_of(directory) == []


PROGRAMS = ("quickstart", "chaos")
MOMENTS = (
    "ctypes",
    "hashlib",
    "asyncio",
    "rich",
    "confluent_kafka",
    "minikafka",
    "load",
    "uuid",
)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_script_that_is_still_importing_ends_quietly(
    project: Path, program: str, moment: str
) -> None:
    command = [str(project / "scripts" / program)]
    assert_quiet(start(command, project, INTERRUPT_AT=moment), project)


@pytest.mark.parametrize("seconds", [0, 0.01, 0.03, 0.06, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 5])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_script_ends_quietly_at_whatever_time(
    project: Path, program: str, seconds: float
) -> None:
    running = start([str(project / "scripts" / program)], project)
    time.sleep(seconds)
    os.killpg(running.pid, signal.SIGINT)
    assert_quiet(running, project)


@pytest.mark.parametrize("way", ["module", "console script"])
@pytest.mark.parametrize("moment", ["click", "json", "asyncio", "aiohttp", "msgpack"])
def test_a_command_that_is_still_importing_ends_quietly(
    project: Path, moment: str, way: str
) -> None:
    script = "import sys; from minikafka.__main__ import run; sys.exit(run())"
    begin = ["-m", "minikafka"] if way == "module" else ["-c", script]
    command = [sys.executable, *begin, "status", "--data", str(project / "data")]
    assert_quiet(start(command, project, INTERRUPT_AT=moment), project)


def in_the_background(*command: str) -> list[str]:
    """As a shell that runs a script starts `command &`: deaf to Ctrl-C."""
    return ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command]


@pytest.mark.parametrize("program", PROGRAMS)
def test_sigterm_ends_a_script_in_the_background_of_another(project: Path, program: str) -> None:
    running = start(in_the_background(str(project / "scripts" / program)), project)
    assert running.stdout is not None
    assert any(b"broker" in line for line in running.stdout)
    running.terminate()
    assert_quiet(running, project)


def test_sigterm_ends_a_command_in_the_background_of_a_script(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        bootstrap = f"127.0.0.1:{server.getsockname()[1]}"
        arguments = ["-m", "minikafka", "consume", "events", "--bootstrap", bootstrap]
        running = start(in_the_background(sys.executable, *arguments), project)
        connection, _ = server.accept()
        with connection:
            running.terminate()
            assert_quiet(running, project)
