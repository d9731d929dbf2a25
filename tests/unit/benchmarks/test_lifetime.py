"""The end of a benchmark run: its directory is deleted, and a run stops before the file system is full."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import lifetime

GIB = 1 << 30
SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def set_free(monkeypatch, *gib: float) -> None:
    """Make successive checks find these amounts (GiB) of free disk space; the last amount stays."""
    left = list(gib)

    def usage(path: object) -> SimpleNamespace:
        return SimpleNamespace(free=int((left.pop(0) if len(left) > 1 else left[0]) * GIB))

    monkeypatch.setattr(shutil, "disk_usage", usage)


def test_temporary_files_of_a_run_are_in_one_directory_that_is_deleted_after_it(
    directory, monkeypatch
):
    set_free(monkeypatch, 100)
    seen = []

    async def run() -> None:
        (Path(tempfile.mkdtemp()) / "log").touch()
        seen.append(os.environ["TMPDIR"])

    lifetime.live(run(), asyncio.run)
    assert Path(seen[0]).parent == directory
    assert list(directory.iterdir()) == []
    assert os.environ["TMPDIR"] == tempfile.gettempdir() == str(directory)


def test_benchmark_run_does_not_begin_without_free_disk_space(directory, monkeypatch):
    set_free(monkeypatch, 3.5)

    async def run() -> None:
        raise AssertionError

    with pytest.raises(
        SystemExit, match=f"needs 4 GiB of free disk space, {directory} has 3.5 GiB"
    ):
        lifetime.live(run(), asyncio.run)
    assert list(directory.iterdir()) == []


def test_benchmark_run_ends_before_it_fills_the_file_system(directory, monkeypatch, capsys):
    set_free(monkeypatch, 4, 2, 0.9)
    monkeypatch.setattr(lifetime, "LOOK_SECONDS", 0)
    ended = []

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(SystemExit) as left:
        lifetime.live(run(), asyncio.run)
    assert (left.value.code, ended) == (1, [True])
    assert "less than 1 GiB are free" in capsys.readouterr().err
    assert list(directory.iterdir()) == []


def test_blocking_benchmark_run_ends_before_it_fills_the_file_system(
    directory, monkeypatch, capsys
):
    set_free(monkeypatch, 2, 2, 0.9)
    monkeypatch.setattr(lifetime, "LOOK_SECONDS", 0.001)

    def work() -> None:
        (Path(tempfile.mkdtemp()) / "log").touch()
        while True:
            pass

    with pytest.raises(SystemExit) as left:
        lifetime.live_blocking(work)
    assert left.value.code == 1
    assert "less than 1 GiB are free" in capsys.readouterr().err
    assert list(directory.iterdir()) == []


@pytest.fixture
def unhandled():
    """Install signal handlers that raise AssertionError.

    Without them, a signal that the benchmark run does not handle would end pytest.
    """

    def fail(number: int, _: object) -> None:
        raise AssertionError(f"signal {number} is not handled")

    before = {number: signal.signal(number, fail) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send_when_made(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a signal to this process when the benchmark has made its directory."""
    make = tempfile.mkdtemp

    def signalled(**options: str) -> str:
        made = make(**options)
        os.kill(os.getpid(), number)
        return made

    monkeypatch.setattr(tempfile, "mkdtemp", signalled)


@pytest.mark.usefixtures("unhandled")
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("moment", ["directory", "loop", "run"])
def test_benchmark_run_ended_by_a_signal_leaves_no_files(
    directory, monkeypatch, capsys, moment, number
):
    set_free(monkeypatch, 100)
    if moment == "directory":
        send_when_made(number, monkeypatch)

    async def run() -> None:
        assert moment == "run"
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()

    def runner(whole: Coroutine[Any, Any, None]) -> None:
        if moment == "loop":
            os.kill(os.getpid(), number)
        asyncio.run(whole)

    with pytest.raises(SystemExit) as left:
        lifetime.live(run(), runner)
    assert left.value.code == 128 + number
    assert capsys.readouterr().err == f"ended by {number.name}\n"
    assert list(directory.iterdir()) == []


@pytest.mark.usefixtures("unhandled")
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("moment", ["directory", "work"])
def test_blocking_run_ended_by_a_signal_leaves_no_files(
    directory, monkeypatch, capsys, moment, number
):
    set_free(monkeypatch, 100)
    if moment == "directory":
        send_when_made(number, monkeypatch)

    def work() -> None:
        assert moment == "work"
        os.kill(os.getpid(), number)
        while True:
            pass

    with pytest.raises(SystemExit) as left:
        lifetime.live_blocking(work)
    assert left.value.code == 128 + number
    assert capsys.readouterr().err == f"ended by {number.name}\n"
    assert list(directory.iterdir()) == []


@pytest.mark.usefixtures("unhandled")
@pytest.mark.parametrize("number", SIGNALS)
def test_signal_while_the_directory_is_removed_leaves_no_files(directory, monkeypatch, number):
    set_free(monkeypatch, 100)
    remove = shutil.rmtree

    def interrupted(path: str, *, ignore_errors: bool) -> None:
        os.kill(os.getpid(), number)
        remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", interrupted)

    async def run() -> None:
        pass

    lifetime.live(run(), asyncio.run)
    assert list(directory.iterdir()) == []
