"""The Python interpreter that `scripts/environment` chooses on PATH, and its error when PATH has no suitable one.

Each candidate is the interpreter of this test run, with a `sitecustomize` that makes it pretend to be another build.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands.script_project import make_project

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
    (made / "scripts" / "show.py").write_text("import os; print(os.environ['CANDIDATE'])")
    return made


def run(
    project: Path, *candidates: tuple[str, str], start: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a script that prints the index of the interpreter that `scripts/environment` has chosen.

    `candidates`: (name, build) of each interpreter, in PATH order.
    """
    dirname = shutil.which("dirname")
    assert dirname is not None
    directories = [project / f"directory {number}" for number in range(len(candidates))]
    for number, (directory, (name, build)) in enumerate(zip(directories, candidates, strict=True)):
        directory.mkdir()
        variables = f"BUILD='{build}' CANDIDATE={number} PYTHONPATH='{project / 'site'}'"
        (directory / name).write_text(f'#!/bin/sh\n{variables} exec {sys.executable} "$@"\n')
        (directory / name).chmod(0o755)
    (project / "tools").mkdir()
    (project / "tools" / "dirname").symlink_to(dirname)
    path = os.pathsep.join(map(str, [*directories, project / "tools"]))
    command = [start or str(project / "scripts" / "environment"), "show.py"]
    environment["PATH"] = path
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def test_first_optimized_interpreter_of_a_supported_version_is_chosen(project: Path) -> None:
    ended = run(
        project,
        ("python3", "old"),
        ("python3.11", "without venv"),
        ("python3.11", "plain"),
        ("python3.11", "distribution"),
        ("python3.11", "optimized"),
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "")


def test_missing_interpreter_is_reported_with_the_required_version(project: Path) -> None:
    ended = run(project, ("python3", "old"), ("python", "without venv"))
    assert ended.returncode == 1
    assert ended.stderr.startswith("Python 3.11 or newer is needed, with its venv module")


def test_script_finds_its_project_when_cdpath_is_set(project: Path) -> None:
    (project / "elsewhere" / "scripts").mkdir(parents=True)
    ended = run(project, ("python3", "plain"), start="scripts/environment", CDPATH="elsewhere:.")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")


INTERRUPT_IN_CALLBACK = """
import weakref
def look(event, arguments):
    if event == "import" and arguments[0] == "hashlib":
        class Lock: pass
        lock = Lock()
        gone = weakref.ref(lock, lambda _: os.kill(os.getpid(), 2))
        del lock
sys.addaudithook(look)
"""


def test_interrupt_in_a_callback_of_an_import_ends_the_script(project: Path) -> None:
    """Python ignores KeyboardInterrupt in a weak reference's callback, for example the callback of an import lock."""
    (project / "site" / "sitecustomize.py").write_text(PRETEND + INTERRUPT_IN_CALLBACK)
    ended = run(project, ("python3.11", "optimized"))
    assert (ended.returncode, ended.stdout) == (-signal.SIGINT, "")
