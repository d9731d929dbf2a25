"""The fixture that fails a test for an exception lost in its event loop or a task that outlives it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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


def test_lost_exceptions_and_leaked_tasks_fail_their_test(tmp_path):
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text(CONFIG)
    (tmp_path / "test_sample.py").write_text(SAMPLES)

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rE", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )

    failed = set(re.findall(r"^ERROR test_sample\.py::(\w+)", ran.stdout, re.MULTILINE))
    assert failed == set(re.findall(r"test_bad_\w+", SAMPLES)), ran.stdout
    assert re.search(r"^6 passed, 3 errors", ran.stdout, re.MULTILINE), ran.stdout
