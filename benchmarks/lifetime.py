"""The life of one benchmark run: its directory, its end by a signal, and the room that it leaves on the disk.

Everything that a run stores lies in one temporary directory, which is removed however the run ends, except by
SIGKILL. SIGTERM, SIGHUP and SIGINT cancel the run, so that every `finally` ends its processes; while the directory is
removed they do nothing. A run also ends when its file system has less than `ROOM_LEFT` free bytes.
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
"""Free bytes without which a run does not begin."""
ROOM_LEFT: Final = 1 << 30
"""Free bytes at which a run ends early."""
LOOK_SECONDS: Final = 0.2
_SIGNALLED: Final = 128
"""Exit code after a signal is this plus the number of the signal, as in a shell."""

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

Runner = Callable[[Coroutine[Any, Any, None]], None]


def live(run: Coroutine[Any, Any, None], runner: Runner) -> None:
    """Run to the end or to a signal, then remove the run's directory; exit with 128 + N after signal N."""
    ended = _Ended()
    with closing(run), _handled(ended.by_signal), scratch_directory() as directory:
        try:
            runner(_until_ended(run, directory, ended))
        except asyncio.CancelledError:
            ended.leave()


def live_blocking(work: Callable[[], None]) -> None:
    """Do blocking work; it ends like a run, but may begin with only `ROOM_LEFT` free bytes."""
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
    """Why a run ends early; `reason` is empty while it does not."""

    def __init__(self) -> None:
        self.reason = ""
        self.exit_code = 1

    def by_signal(self, number: int, _: object = None) -> bool:
        return self.note(f"ended by {signal.Signals(number).name}", _SIGNALLED + number)

    def note(self, reason: str, exit_code: int) -> bool:
        """Note the reason, unless there is one already; True if there was none."""
        if self.reason:
            return False
        self.reason, self.exit_code = reason, exit_code
        return True

    def leave(self) -> NoReturn:
        """Print the reason and exit."""
        if self.reason:
            print(self.reason, file=sys.stderr)
        sys.exit(self.exit_code)


@contextmanager
def _alarms(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` every `LOOK_SECONDS`, between two instructions of the work."""
    before = signal.signal(signal.SIGALRM, lambda *_: look())
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _handled(handler: Any) -> Iterator[None]:
    """Let `handler` handle the signals that end a run, while no event loop handles them."""
    before = {number: signal.signal(number, handler) for number in _ENDING}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


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
            end(_full(directory), 1)


def _full(directory: str) -> str:
    return f"ended early: less than {ROOM_LEFT >> 30} GiB are free in {directory}"
