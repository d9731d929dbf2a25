"""The life of one benchmark run: its directory, its end by a signal, and the room that it leaves on the disk.

Everything that a run stores lies in one temporary directory, which is removed however the run ends, except by
SIGKILL. SIGTERM and SIGHUP cancel the run, so that every `finally` ends its processes. Invariant: while a run has
begun, its file system keeps `ROOM_LEFT` free bytes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

ROOM_NEEDED: Final = 4 << 30
"""Free bytes without which a run does not begin."""
ROOM_LEFT: Final = 1 << 30
"""Free bytes at which a run ends early."""
LOOK_SECONDS: Final = 0.2
_ENDED: Final = 128
"""Exit code of a process that a signal ended, less the number of the signal."""

Runner = Callable[[Coroutine[Any, Any, None]], None]


def live(run: Coroutine[Any, Any, None], runner: Runner) -> None:
    """Run to the end or to a signal, then leave nothing behind; the exit code after a signal is the shell's."""
    with scratch_directory() as directory:
        ended = _Ended()
        try:
            runner(_until_ended(run, directory, ended))
        except asyncio.CancelledError:
            if ended.reason:
                print(ended.reason, file=sys.stderr)
            sys.exit(ended.exit_code)


class _Ended:
    """Why a run was cancelled."""

    def __init__(self) -> None:
        self.reason = ""
        self.exit_code = 1


@contextmanager
def scratch_directory() -> Iterator[str]:
    """Make a directory and let this process and its children put their temporary files there; remove it."""
    before, directory = os.environ.get("TMPDIR"), tempfile.mkdtemp(prefix="minikafka-bench-")
    tempfile.tempdir = os.environ["TMPDIR"] = directory
    try:
        yield directory
    finally:
        tempfile.tempdir = None
        del os.environ["TMPDIR"]
        if before is not None:
            os.environ["TMPDIR"] = before
        shutil.rmtree(directory, ignore_errors=True)


async def _until_ended(run: Coroutine[Any, Any, None], directory: str, ended: _Ended) -> None:
    task = asyncio.current_task()
    assert task is not None

    def end(reason: str, exit_code: int) -> None:
        if not ended.reason:
            ended.reason, ended.exit_code = reason, exit_code
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, f"ended by {number.name}", _ENDED + number)
    free = shutil.disk_usage(directory).free
    if free < ROOM_NEEDED:
        run.close()
        sys.exit(
            f"a run needs {ROOM_NEEDED >> 30} GiB of free room, {os.path.dirname(directory)} has "
            f"{free / (1 << 30):.1f} GiB: set TMPDIR to a directory with more"
        )
    watch = asyncio.create_task(_watch(directory, end))
    try:
        await run
    finally:
        watch.cancel()


async def _watch(directory: str, end: Callable[[str, int], None]) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if shutil.disk_usage(directory).free < ROOM_LEFT:
            end(f"ended early: less than {ROOM_LEFT >> 30} GiB are free in {directory}", 1)
