"""The process that cleans logs for a broker. It reads tasks from stdin and writes results to stdout, as JSON lines.

The process exits when stdin ends, even during a cleaning: the broker has exited, or has aborted the cleaning.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from struct import Struct
from typing import Any, BinaryIO, Final

from minikafka.base.errors import CorruptBatch, StorageFailed
from minikafka.runtime.storage import DiskStorage
from minikafka.storage.log.cleaner.cleaning import clean
from minikafka.storage.log.cleaner.task import CleanedGroup, CleaningTask

_NICE: Final = 5
"""Niceness of the cleaner process, so that the broker has priority when the processors are busy."""
_GC_THRESHOLD: Final = 100_000


_TIME: Final = Struct("d")


class CleanerThrottle:
    """A limit on the total bytes per second of all cleaner processes of a broker.

    `shared`: descriptor of a file that all cleaner processes share. The file contains the monotonic time, in
    seconds, at which the processes may continue. A new file is empty.
    """

    def __init__(self, shared: int) -> None:
        self._shared = shared

    def pause_after(self, count: int, bytes_per_second: float, now: float) -> float:
        """Return the seconds to pause at the time `now`, after processing `count` bytes."""
        fcntl.lockf(self._shared, fcntl.LOCK_EX)
        try:
            (due,) = _TIME.unpack(os.pread(self._shared, _TIME.size, 0) or bytes(_TIME.size))
            due = max(due, now) + count / bytes_per_second
            os.pwrite(self._shared, _TIME.pack(due), 0)
        finally:
            fcntl.lockf(self._shared, fcntl.LOCK_UN)
        return float(due - now)


def serve(
    tasks: BinaryIO, results: BinaryIO, throttle: CleanerThrottle, has_ended: Callable[[], bool]
) -> None:
    """Run one cleaning task after the other until the input ends.

    `has_ended`: returns True if the input has ended; called repeatedly during a task.
    """

    def send(kind: str, content: Mapping[str, Any]) -> None:
        results.write(json.dumps([kind, content]).encode() + b"\n")
        results.flush()

    for line in iter(tasks.readline, b""):
        try:
            outcome = carry_out(CleaningTask.decode(json.loads(line)), send, throttle, has_ended)
        except StorageFailed as failure:
            cause = failure.cause
            fields = {"path": failure.path, "errno": cause.errno, "text": cause.strerror}
            send("storage", fields)
        except (CorruptBatch, MemoryError) as failure:
            send("failed", {"text": str(failure) or type(failure).__name__})
        else:
            if outcome is None:
                return
            send("outcome", outcome)


def carry_out(
    task: CleaningTask,
    send: Callable[[str, Mapping[str, Any]], None],
    throttle: CleanerThrottle,
    has_ended: Callable[[], bool],
) -> dict[str, Any] | None:
    """Run a cleaning task. Return its outcome, or None if the broker closed the input during the task.

    Raises CorruptBatch, StorageFailed.
    """
    steps = clean(DiskStorage(), task)
    while not has_ended():
        try:
            step = next(steps)
        except StopIteration as end:
            return asdict(end.value)
        if isinstance(step, CleanedGroup):
            send("group", asdict(step))
        else:
            pause = throttle.pause_after(step, task.bytes_per_second, time.monotonic())
            if pause > 0:
                time.sleep(pause)
    return None


def _input_has_ended() -> bool:
    """Return True if the broker has closed the input. A broker sends nothing during a task."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main() -> None:
    """Run the cleaning tasks of the broker that started this process.

    The command-line argument is the descriptor of the file that `CleanerThrottle` shares with other cleaner processes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the broker, which ends this process
    os.nice(_NICE)
    gc.set_threshold(_GC_THRESHOLD)
    try:
        serve(
            sys.stdin.buffer, sys.stdout.buffer, CleanerThrottle(int(sys.argv[1])), _input_has_ended
        )
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
