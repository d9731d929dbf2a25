"""The effects of `conftest.py`.

A test fails if it leaks a task or if the exception of a background task is lost. Tests and their processes write
compiled modules, whatever PYTHONDONTWRITEBYTECODE is. Test files that start Spark run first, and one worker begins at
the other end. Processes of a killed test do not go on.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

TESTS = Path(__file__).parent
CONFIG = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
SAMPLES = """
import asyncio
import pytest

async def fail():
    raise RuntimeError("lost")

@pytest.fixture
async def started():
    tasks = []
    yield tasks
    for task in tasks:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

async def test_good_nothing():
    await asyncio.sleep(0)

async def test_good_awaited_task():
    await asyncio.create_task(asyncio.sleep(0))

async def test_good_task_that_a_fixture_ends(started):
    started.append(asyncio.create_task(asyncio.sleep(60)))

async def test_bad_lost_exception():
    asyncio.create_task(fail())
    await asyncio.sleep(0.01)

async def test_bad_lost_callback():
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0)

async def test_bad_leaked_task():
    asyncio.create_task(asyncio.sleep(60), name="forgotten")
"""


COMPILED = """
import subprocess
import sys

def test_good_processes_write_compiled_modules():
    code = "import sys; print(sys.dont_write_bytecode)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\\n"
"""


def test_lost_exceptions_and_leaked_tasks_fail_their_test(tmp_path):
    (tmp_path / "test_sample.py").write_text(SAMPLES)
    shown = run_suite(tmp_path, "-rE")

    failed = set(re.findall(r"^ERROR test_sample\.py::(\w+)", shown, re.MULTILINE))
    assert failed == set(re.findall(r"test_bad_\w+", SAMPLES)), shown
    assert re.search(r"^6 passed, 3 errors", shown, re.MULTILINE), shown


def test_tests_and_subprocesses_write_bytecode_despite_pythondontwritebytecode(tmp_path):
    (tmp_path / "test_sample.py").write_text(COMPILED)
    shown = run_suite(tmp_path, PYTHONDONTWRITEBYTECODE="1")

    assert re.search(r"^1 passed", shown, re.MULTILINE), shown
    assert list((tmp_path / "__pycache__").glob("test_sample*.pyc"))


KILLED = """
import os, signal, subprocess

def test_that_is_killed():
    child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, start_new_session=True)
    print(child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_that_a_killed_test_has_started_are_killed(tmp_path):
    (tmp_path / "test_sample.py").write_text(KILLED)
    pid = int(run_suite(tmp_path, "-s"))

    with suppress(ProcessLookupError):
        left = os.pidfd_open(pid)
        assert select.select([left], [], [], 30)[0], "the process still runs"


def test_pytest_runs_the_files_that_start_spark_first(tmp_path):
    tests = write_tests(
        tmp_path,
        "clients/test_a",
        "spark/test_connect",
        "spark/test_write",
        "test_tidy",
        "unit/test_b",
    )
    shown = run_suite(tests, "--collect-only", f"--rootdir={tmp_path}")

    assert re.findall(r"^tests/(.+)\.py::", shown, re.MULTILINE) == [
        "spark/test_write",
        "spark/test_connect",
        "clients/test_a",
        "unit/test_b",
        "test_tidy",
    ]


class Worker:
    """Stands in for a worker of pytest-xdist. `files`: the letters of the test files that it was given."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.files: list[str] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.files += ["abcd"[index] for index in indices]

    def shutdown(self) -> None:
        pass


def test_first_worker_begins_with_the_last_files(request):
    config = SimpleNamespace(
        getvalue=lambda _: ["2*popen"], option=SimpleNamespace(loadscopereorder=False)
    )
    scheduler = request.config.hook.pytest_xdist_make_scheduler(config=config, log=None)
    workers = [Worker("gw1"), Worker("gw0")]
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, [f"test_{letter}.py::test_it" for letter in "abcd"])
    scheduler.schedule()

    assert [worker.files for worker in workers] == [["a", "b"], ["d", "c"]]


def test_two_workers_share_the_tests_of_spark(request):
    config = SimpleNamespace(
        getvalue=lambda _: ["2*popen"], option=SimpleNamespace(loadscopereorder=False)
    )
    scheduler = request.config.hook.pytest_xdist_make_scheduler(config=config, log=None)
    files = ("test_write", "pipeline/test_check", "pipeline/test_run", "pipeline/test_copy")
    units = [scheduler._split_scope(f"tests/spark/{file}.py::test_it") for file in files]

    assert units[0] == units[1] != units[2] == units[3]


def write_tests(directory: Path, *files: str) -> Path:
    """Write a suite with one test in each file; return its folder."""
    tests = directory / "tests"
    for file in files:
        path = tests / f"{file}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def test_nothing(): pass\n")
    return tests


def run_suite(tests: Path, *arguments: str, **environment: str) -> str:
    """Run the tests of a folder with a copy of this suite's `conftest.py`; return pytest's output."""
    (tests / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tests / "pytest.ini").write_text(CONFIG)
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", *arguments]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tests)],
        cwd=tests,
        env=os.environ | {"PYTHONPATH": str(TESTS)} | environment,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
