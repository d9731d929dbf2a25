"""The temporary directory, the signals and the disk space limit of a benchmark run.

A run stores all its files in one temporary directory. The directory is removed when the run ends for any reason
other than SIGKILL. SIGTERM, SIGHUP and SIGINT cancel the run, so that `finally` blocks stop the processes. These
signals are ignored while the directory is removed. A run also ends when its file system has less than `ROOM_LEFT`
free bytes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final, NoReturn

ROOM_NEEDED: Final = 4 << 30
"""Minimum number of free bytes to start a run."""
ROOM_LEFT: Final = 1 << 30
"""A run ends early if fewer bytes are free."""
LOOK_SECONDS: Final = 0.2
_SIGNALLED: Final = 128
"""The exit code after a signal is this number plus the signal number, as in a shell."""

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

Runner = Callable[[Coroutine[Any, Any, None]], None]


def live(run: Coroutine[Any, Any, None], runner: Runner) -> None:
    """Execute the coroutine `run` in a temporary directory, then remove the directory.

    The run ends early on a signal or a lack of disk space. The exit code after signal N is 128 + N.
    """
    ended = _Ended()
    with closing(run), _handled(ended.by_signal), scratch_directory() as directory:
        try:
            runner(_until_ended(run, directory, ended))
        except asyncio.CancelledError:
            ended.leave()


def live_blocking(work: Callable[[], None]) -> None:
    """Run blocking work in a temporary directory. The work ends early on a signal or a lack of disk space.

    Unlike `live`, this function needs only `ROOM_LEFT` free bytes at the start.
    """
    ended = _Ended()
    with _handled(ended.by_signal), scratch_directory() as directory:

        def on_signal(number: int, _: object) -> None:
            if ended.by_signal(number):
                ended.leave()

        def look() -> None:
            if shutil.disk_usage(directory).free < ROOM_LEFT and ended.note(_full(directory), 1):
                ended.leave()

        with _handled(on_signal), _alarms(look):
            if ended.reason:
                ended.leave()
            look()
            work()


class _Ended:
    """The reason why a run ends early; "" if the run does not end early."""

    def __init__(self) -> None:
        self.reason = ""
        self.exit_code = 1

    def by_signal(self, number: int, _: object = None) -> bool:
        return self.note(f"ended by {signal.Signals(number).name}", _SIGNALLED + number)

    def note(self, reason: str, exit_code: int) -> bool:
        """Store the reason if no reason is stored yet. Return True if the reason was stored."""
        if self.reason:
            return False
        self.reason, self.exit_code = reason, exit_code
        return True

    def leave(self) -> NoReturn:
        """Print the reason, and exit with the exit code."""
        if self.reason:
            print(self.reason, file=sys.stderr)
        sys.exit(self.exit_code)


@contextmanager
def _alarms(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` every `LOOK_SECONDS` in the main thread, by a timer signal."""
    before = signal.signal(signal.SIGALRM, lambda *_: look())
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _handled(handler: Any) -> Iterator[None]:
    """Set `handler` for the signals that end a run, and restore the former handlers after the `with` body.

    An event loop can replace `handler` during the `with` body.
    """
    before = {number: signal.signal(number, handler) for number in _ENDING}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


@contextmanager
def scratch_directory() -> Iterator[str]:
    """Yield a new directory for the temporary files of this process and its children, then remove it."""
    before, directory = os.environ.get("TMPDIR"), tempfile.mkdtemp(prefix="minikafka-bench-")
    tempfile.tempdir = os.environ["TMPDIR"] = directory
    try:
        yield directory
    finally:
        tempfile.tempdir = None
        del os.environ["TMPDIR"]
        if before is not None:
            os.environ["TMPDIR"] = before
        with _handled(signal.SIG_IGN):
            shutil.rmtree(directory, ignore_errors=True)


async def _until_ended(run: Coroutine[Any, Any, None], directory: str, ended: _Ended) -> None:
    task = asyncio.current_task()
    assert task is not None

    def end(reason: str, exit_code: int) -> None:
        if ended.note(reason, exit_code):
            task.cancel()

    def on_signal(number: int) -> None:
        if ended.by_signal(number):
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.add_signal_handler(number, on_signal, number)
    if ended.reason:
        raise asyncio.CancelledError
    free = shutil.disk_usage(directory).free
    if free < ROOM_NEEDED:
        sys.exit(
            f"a run needs {ROOM_NEEDED >> 30} GiB of free disk space, {os.path.dirname(directory)} has "
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
            end(_full(directory), 1)


def _full(directory: str) -> str:
    return f"ended early: less than {ROOM_LEFT >> 30} GiB are free in {directory}"
