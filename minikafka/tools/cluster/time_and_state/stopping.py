"""One moment at which no process of a cluster runs.

A stopped process is to the others as a slow one: nothing that a process did after the stop of another can have reached
that one. So the files that are found once the last process stands are those that a crash of all processes at this
moment would leave, whatever the order in which they were stopped.

Invariant: every process that was stopped continues, also when the stopping process is killed meanwhile.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from minikafka.base.ports import Clock
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.processes import ProcessId, is_alive, is_paused, send_signal

STOP_TIMEOUT_MS: Final = 5_000
_POLL_MS: Final = 0.5
_PINGS_MS: Final = 20
"""Time for the brokers, which continue first, to send ZooKeeper a sign of life."""


@asynccontextmanager
async def all_stopped(
    brokers: Sequence[ProcessId], zookeeper: ProcessId | None, clock: Clock
) -> AsyncIterator[None]:
    """Stop these processes for the time of the `with` block. Those that are paused already stay so.

    Raises ClusterError if a process does not stop.
    """
    first = [process for process in brokers if not is_paused(process)]
    last = [zookeeper] if zookeeper is not None and not is_paused(zookeeper) else []
    guard = _continue_at_our_death([*first, *last])
    try:
        for process in [*first, *last]:
            send_signal(process, signal.SIGSTOP)
        for process in [*first, *last]:
            await _wait_until_stopped(process, clock)
        yield
    finally:
        try:
            for process in first:
                send_signal(process, signal.SIGCONT)
            await clock.sleep(_PINGS_MS if first else 0)
        finally:
            for process in last:
                send_signal(process, signal.SIGCONT)
            guard.kill()
            guard.communicate()


def _continue_at_our_death(processes: Sequence[ProcessId]) -> subprocess.Popen[bytes]:
    """Start a process that lets these processes continue when this one has died."""
    pids = " ".join(str(process.pid) for process in processes)
    script = f"read _; kill -CONT {pids}" if pids else "read _"
    return subprocess.Popen(
        ["/bin/sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


async def _wait_until_stopped(process: ProcessId, clock: Clock) -> None:
    """Wait until every thread of the process stands: a system call that has begun still goes to its end."""
    deadline = clock.now() + STOP_TIMEOUT_MS
    while is_alive(process) and not _stands(process):
        if clock.now() >= deadline:
            text = f"process {process.pid} did not stop within {STOP_TIMEOUT_MS / 1000:g} s"
            raise ClusterError(f"{text}: nothing was copied")
        await clock.sleep(_POLL_MS)


def _stands(process: ProcessId) -> bool:
    tasks = Path(f"/proc/{process.pid}/task")
    try:
        states = [(tasks / name / "stat").read_text(errors="replace") for name in os.listdir(tasks)]
    except OSError:  # a thread, or the process, has ended
        return False
    return all(text.rpartition(")")[2].split()[0] in "TtZX" for text in states)
