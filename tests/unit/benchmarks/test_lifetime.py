"""How a benchmark run ends: its directory goes, and the file system keeps its room."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import lifetime

GIB = 1 << 30


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def set_free(monkeypatch, *gib: float) -> None:
    """Let the file system have this much free room, the last one for ever."""
    left = list(gib)

    def usage(path: object) -> SimpleNamespace:
        return SimpleNamespace(free=int((left.pop(0) if len(left) > 1 else left[0]) * GIB))

    monkeypatch.setattr(shutil, "disk_usage", usage)


def test_temporary_files_of_a_run_are_in_one_directory_that_goes_with_it(directory, monkeypatch):
    set_free(monkeypatch, 100)
    seen = []

    async def run() -> None:
        (Path(tempfile.mkdtemp()) / "log").touch()
        seen.append(os.environ["TMPDIR"])

    lifetime.live(run(), asyncio.run)
    assert Path(seen[0]).parent == directory
    assert list(directory.iterdir()) == []
    assert os.environ["TMPDIR"] == tempfile.gettempdir() == str(directory)


def test_run_does_not_begin_without_room(directory, monkeypatch):
    set_free(monkeypatch, 3.5)

    async def run() -> None:
        raise AssertionError

    with pytest.raises(SystemExit, match=f"needs 4 GiB of free room, {directory} has 3.5 GiB"):
        lifetime.live(run(), asyncio.run)
    assert list(directory.iterdir()) == []


def test_run_ends_before_it_fills_the_file_system(directory, monkeypatch, capsys):
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
