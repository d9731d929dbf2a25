"""A program that waits for the first visitor of a console, and then becomes the console: `doorkeeper.py FD DIR`.

`minikafka up` starts it, so that the console costs a process of 8 MB while nobody looks. FD is the socket of the
console, which listens already. Therefore this program imports nothing but small modules of the standard library, and
runs without site-packages (`python -I -S`). When nobody has looked for a while, the console becomes this program again.

It ends when DIR/console.json no longer names it, and when the cluster has had no process for GRACE_S.
"""

from __future__ import annotations

import os
import select
import sys

POLL_S = 5
GRACE_S = 60


def wait(descriptor: int, data: str) -> bool:
    """Return True when a visitor waits, False when the console is needed no longer."""
    visitors = select.poll()
    visitors.register(descriptor, select.POLLIN)
    quiet_s = 0
    while quiet_s < GRACE_S:
        if visitors.poll(POLL_S * 1000):
            return True
        if os.getpid() not in processes_in(f"{data}/console.json"):
            return False
        known = processes_in(f"{data}/cluster.json")
        quiet_s = 0 if any(map(is_alive, known.items())) else quiet_s + POLL_S
    return False


def processes_in(path: str) -> dict[int, int]:
    """Return the start times of the processes in a JSON file by pid; {} if there is no such file."""
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        return {}
    found = {}
    for part in text.split(b'"pid":')[1:]:
        pid, _, rest = part.partition(b",")
        started = rest.partition(b'"started":')[2].strip()
        digits = started[: len(started) - len(started.lstrip(b"0123456789"))]
        if pid.strip().isdigit() and digits:
            found[int(pid)] = int(digits)
    return found


def is_alive(process: tuple[int, int]) -> bool:
    """True if a process with this pid and start time exists."""
    pid, started = process
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    return int(fields[19]) == started and fields[0] not in (b"Z", b"X")


def main() -> None:
    """Wait for a visitor, and become the console."""
    descriptor, data = int(sys.argv[1]), sys.argv[2]
    if wait(descriptor, data):
        os.set_inheritable(descriptor, True)
        words = ["-m", "minikafka", "console", "--data", data, "--listening", str(descriptor)]
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - no shell is needed


if __name__ == "__main__":
    main()
