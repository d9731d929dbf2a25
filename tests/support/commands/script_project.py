"""A copy of `scripts/` in a project with an existing environment, and functions that start its programs."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[3]
SITE = """
import os, sys, sysconfig
sysconfig.get_config_vars()["CONFIG_ARGS"] = "--enable-optimizations"  # chosen before others on PATH
def look(event, arguments, wanted=os.environ.get("INTERRUPT_AT")):
    if event == "import" and arguments[0] == wanted:
        os.kill(os.getpid(), 2)
sys.addaudithook(look)
"""


def make_project(tmp_path: Path, *, python: str = sys.executable, needs: str = "tests") -> Path:
    """Copy the scripts to the project `tmp_path`, and give the project a special interpreter; return `tmp_path`.

    The interpreter sends itself SIGINT when it imports the module that the environment variable INTERRUPT_AT names.
    The interpreter reports that it was built with optimizations. Otherwise the scripts could choose another
    interpreter on PATH. `python`, `needs`: the interpreter, and the parts of the environment that it has.
    """
    for name in ("pyproject.toml", "cluster.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("requirements", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name in ("python", "python3.11"):
        (binaries / name).write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        (binaries / name).chmod(0o755)
    mark_installed(tmp_path, needs)
    return tmp_path


def mark_installed(project: Path, needs: str) -> None:
    """Let the environment of the project have the parts that `--needs` stands for."""
    made = runpy.run_path(str(project / "scripts" / "environment.py"))
    stamp = made["stamp"](made["NEEDS"][needs])
    (project / ".venv" / "minikafka.stamp").write_text(stamp)


def start(
    command: list[str], directory: Path, *, terminal: int | None = None, **environment: str
) -> subprocess.Popen[bytes]:
    """Start a script in a new session. Output goes to a pipe; with `terminal`, input and output use the terminal."""
    path = f"{directory / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    python_path = os.pathsep.join(map(str, (directory / "site", ROOT)))
    return subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, "PATH": path, "PYTHONPATH": python_path, **environment},
        stdin=terminal,
        stdout=subprocess.PIPE if terminal is None else terminal,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def processes_of(directory: Path) -> list[str]:
    """Wait up to 10 s until no command line contains the directory; return the command lines that still do."""
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
