"""Ctrl-C at any moment of a program's life ends it without a traceback and leaves no process.

The moment is the import of a module: an interpreter that is told `INTERRUPT_AT` sends itself SIGINT then.
"""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = """
import os, sys
def look(event, arguments, wanted=os.environ.get("INTERRUPT_AT")):
    if event == "import" and arguments[0] == wanted:
        os.kill(os.getpid(), 2)
sys.addaudithook(look)
"""
CODES = (130, -signal.SIGINT)
"""By itself, or by the signal, which a shell shows as the same number."""
UNBORN = 1
"""An interpreter that was interrupted before it could run anything."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The programs of `scripts/` in a project whose environment is made already."""
    for name in ("requirements.lock", "pyproject.toml", "cluster.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name in ("python", "python3.11"):
        (binaries / name).write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (binaries / name).chmod(0o755)
    made = runpy.run_path(str(tmp_path / "scripts" / "environment.py"))
    (tmp_path / ".venv" / "minikafka.stamp").write_text(made["_stamp"]())
    return tmp_path


def start(command: list[str], directory: Path, **environment: str) -> subprocess.Popen[bytes]:
    path = f"{directory / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    python_path = os.pathsep.join(map(str, (directory / "site", ROOT)))
    return subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, "PATH": path, "PYTHONPATH": python_path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def assert_quiet(program: subprocess.Popen[bytes], directory: Path) -> None:
    output, _ = program.communicate(timeout=60)
    text = output.decode()
    assert program.returncode in (CODES if text else (*CODES, UNBORN)), text
    assert "Traceback" not in text
    assert "Error" not in text
    assert "Exception ignored" not in text
    assert processes_of(directory) == []


def processes_of(directory: Path) -> list[str]:
    """Command lines of what runs and names the directory, once what was killed has gone."""
    found = [""]
    deadline = time.monotonic() + 10
    while found and time.monotonic() < deadline:
        files = Path("/proc").glob("[0-9]*/cmdline")
        found = [text for text in map(command_line, files) if str(directory) in text]
    return found


def command_line(file: Path) -> str:
    try:
        return file.read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


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
