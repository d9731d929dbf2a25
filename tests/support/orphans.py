"""A program that kills the processes that a killed process of pytest leaves: `orphans.py PID MARK`.

A cluster of `minikafka up` outlives the command, and so do the servers that the command starts. A test ends them, but
not if its process is killed. All processes of a test inherit the variable MARK from the process PID, which starts this
program. When that process ends, the program kills all processes with this value of the variable.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

VARIABLE = "MINIKAFKA_TESTS"
QUIET_SCANS = 3
"""Number of scans in a row without a process, after which none can appear: a start in progress takes shorter."""
SCAN_S = 0.1


def watch() -> None:
    """Start the program for this process, and mark the processes that this process starts later."""
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    os.environ[VARIABLE] = mark
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), mark],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        start_new_session=True,
    )
    watcher.returncode = 0  # it outlives this process, so nobody waits for its end


def marked(mark: str) -> Iterator[int]:
    """Yield the pids of the processes whose environment has the mark."""
    entry = f"{VARIABLE}={mark}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if entry in file.read().split(b"\0"):
                    yield int(name)


def kill_all(mark: str) -> None:
    """Kill the processes with the mark, until none has appeared for a while."""
    quiet = 0
    while quiet < QUIET_SCANS:
        quiet += 1
        for pid in marked(mark):
            quiet = 0
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(SCAN_S)


def main() -> None:
    """Wait for the end of the process, and kill what is left."""
    pid, mark = int(sys.argv[1]), sys.argv[2]
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        if os.getppid() == pid:
            select.select([process], [], [])
    kill_all(mark)


if __name__ == "__main__":
    main()
