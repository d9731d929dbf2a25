"""Ctrl-C at any moment of a program's life ends it without a traceback and leaves no process.

`INTERRUPT_AT` names a module: the interpreter sends itself SIGINT when it imports that module.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands.script_project import make_project, processes_of, start

CODES = (130, -signal.SIGINT)
"""Exit code set by the program, and exit code after death by SIGINT. A shell shows 130 for both."""
NOT_STARTED = 1
"""Exit code of a Python interpreter that is interrupted while it starts."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def assert_ends_quietly(program: subprocess.Popen[bytes], directory: Path) -> None:
    output, _ = program.communicate(timeout=60)
    text = output.decode()
    assert program.returncode in (CODES if text else (*CODES, NOT_STARTED)), text
    assert "Traceback" not in text
    assert "Error" not in text
    assert "Exception ignored" not in text
    assert processes_of(directory) == []


def wait_for_line(program: subprocess.Popen[bytes], words: bytes) -> None:
    assert program.stdout is not None
    assert any(words in line for line in program.stdout), "the program ended early"


@pytest.mark.parametrize(
    ("program", "module"),
    [("quickstart", "hashlib"), ("chaos", "confluent_kafka")],
    ids=["while it checks its environment", "while it imports its clients"],
)
def test_script_ends_quietly_when_interrupted_during_an_import(
    project: Path, program: str, module: str
) -> None:
    command = [str(project / "scripts" / program)]
    assert_ends_quietly(start(command, project, INTERRUPT_AT=module), project)


def test_script_ends_quietly_when_interrupted_at_once(project: Path) -> None:
    running = start([str(project / "scripts" / "chaos")], project)
    os.killpg(running.pid, signal.SIGINT)
    assert_ends_quietly(running, project)


HANGING = """

def create_topic(*_):
    print("create_topic hangs", flush=True)
    threading.Event().wait()
"""


def test_interrupted_script_ends_although_a_call_of_its_client_hangs(project: Path) -> None:
    with (project / "scripts" / "load.py").open("a") as load:
        load.write(HANGING)
    # Another worker's test starts quickstart with the usual ports.
    (project / "cluster.toml").write_text("[cluster]\nport = 0\n")
    running = start([str(project / "scripts" / "quickstart")], project)
    wait_for_line(running, b"create_topic hangs")
    os.killpg(running.pid, signal.SIGINT)
    assert_ends_quietly(running, project)


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("click", ["-m", "minikafka"]),
        ("asyncio", ["-c", "import sys; from minikafka.__main__ import run; sys.exit(run())"]),
    ],
    ids=["module", "console script"],
)
def test_command_ends_quietly_when_interrupted_during_an_import(
    project: Path, module: str, code: list[str]
) -> None:
    command = [sys.executable, *code, "status", "--data", str(project / "data")]
    assert_ends_quietly(start(command, project, INTERRUPT_AT=module), project)


def in_background(*command: str) -> list[str]:
    """Wrap the command so that it runs with SIGINT ignored, as a background command (`&`) of a shell script does."""
    return ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command]


def test_script_in_the_background_ends_quietly_on_sigterm(project: Path) -> None:
    running = start(in_background(str(project / "scripts" / "chaos")), project)
    wait_for_line(running, b"broker")
    running.terminate()
    assert_ends_quietly(running, project)


def test_command_in_the_background_ends_quietly_on_sigterm(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        bootstrap = f"127.0.0.1:{server.getsockname()[1]}"
        arguments = ["-m", "minikafka", "consume", "events", "--bootstrap", bootstrap]
        running = start(in_background(sys.executable, *arguments), project)
        connection, _ = server.accept()
        with connection:
            running.terminate()
            assert_ends_quietly(running, project)
