"""Which of the interpreters on PATH the programs of `scripts/` take.

Each is this very interpreter, which tells another build of itself: `sitecustomize` of the project does it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.script_project import make_project

PRETEND = """
import os, sys, sysconfig
build = os.environ["BUILD"]
options = "--enable-optimizations" if build == "optimized" else "--enable-shared"
sysconfig.get_config_vars()["CONFIG_ARGS"] = options
sys.base_prefix = "/usr" if build == "distribution" else "/opt/python"
if build == "old":
    sys.version_info = (3, 10, 13)
if build == "without venv":
    sys.modules["ensurepip"] = None
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = make_project(tmp_path)
    (made / "site" / "sitecustomize.py").write_text(PRETEND)
    (made / "scripts" / "show.py").write_text("import os; print(os.environ['TAKEN'])")
    return made


def run(
    project: Path, *found: tuple[str, str], start: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """A program that prints which it got of the interpreters on PATH: (name, build), each in a directory."""
    dirname = shutil.which("dirname")
    assert dirname is not None
    directories = [project / f"directory {number}" for number in range(len(found))]
    for number, (directory, (name, build)) in enumerate(zip(directories, found, strict=True)):
        directory.mkdir()
        told = f"BUILD='{build}' TAKEN={number} PYTHONPATH='{project / 'site'}'"
        (directory / name).write_text(f'#!/bin/sh\n{told} exec {sys.executable} "$@"\n')
        (directory / name).chmod(0o755)
    (project / "tools").mkdir()
    (project / "tools" / "dirname").symlink_to(dirname)
    path = os.pathsep.join(map(str, [*directories, project / "tools"]))
    command = [start or str(project / "scripts" / "environment"), "show.py"]
    environment["PATH"] = path
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("found", "taken"),
    [
        ([("python3.11", "plain"), ("python3.11", "optimized")], 1),
        ([("python3.11", "plain"), ("python3", "distribution")], 1),
        ([("python3.11", "optimized"), ("python3.11", "distribution")], 0),
        ([("python3", "optimized"), ("python3.11", "distribution")], 1),
        ([("python3.11", "plain"), ("python3.11", "plain")], 0),
        ([("python3", "old"), ("python", "plain")], 1),
        ([("python3.11", "without venv"), ("python3", "plain")], 1),
        ([("python3.11", "plain"), ("python3.11", "without venv")], 0),
    ],
)
def test_the_first_interpreter_that_was_optimized_is_taken_else_the_first_that_will_do(
    project: Path, found: list[tuple[str, str]], taken: int
) -> None:
    ended = run(project, *found)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{taken}\n", "")


@pytest.mark.parametrize("found", [[], [("python3", "old"), ("python", "without venv")]])
def test_without_an_interpreter_that_will_do_the_programs_say_what_is_needed(
    project: Path, found: list[tuple[str, str]]
) -> None:
    ended = run(project, *found)
    assert ended.returncode == 1
    assert ended.stderr.startswith("Python 3.11 or newer is needed, with its venv module")


@pytest.mark.parametrize("other", [".", "elsewhere", "elsewhere:."])
def test_where_a_shell_looks_for_other_directories_changes_nothing(
    project: Path, other: str
) -> None:
    (project / "elsewhere" / "scripts").mkdir(parents=True)
    ended = run(project, ("python3", "plain"), start="scripts/environment", CDPATH=other)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")


LOST = """
import weakref
def look(event, arguments):
    if event == "import" and arguments[0] == "hashlib":
        class Lock: pass
        lock = Lock()
        gone = weakref.ref(lock, lambda _: os.kill(os.getpid(), 2))
        del lock
sys.addaudithook(look)
"""


def test_an_interrupt_that_falls_into_an_import_is_not_lost(project: Path) -> None:
    """A lock that an import is done with has such a callback: what is raised in it, Python ignores."""
    (project / "site" / "sitecustomize.py").write_text(PRETEND + LOST)
    ended = run(project, ("python3.11", "optimized"))
    assert (ended.returncode, ended.stdout) == (-signal.SIGINT, "")
