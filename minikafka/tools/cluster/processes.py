"""Functions that start, find, signal and end processes, which are identified by pid and start time.

Invariant: a signal reaches only the recorded process. A pid alone does not identify a process, because
pids are reused; pid and start time together do. The check and the signal use one pidfd, so the pid cannot
be reused between them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, NamedTuple

from minikafka.base.ports import Clock
from minikafka.runtime.spawning import own_environment, start_child

END_GRACE_MS: Final = 10_000
"""Maximum time for a process to end after SIGTERM; then it is killed."""
POLL_MS: Final = 10
_STATE, _STARTED = 0, 19
"""Indexes of state and start time in the result of `_stat` (fields 3 and 22 of /proc/PID/stat, see proc(5))."""


class ProcessId(NamedTuple):
    """The identity of one process: its pid, and its start time in clock ticks since boot."""

    pid: int
    started: int


def identify(pid: int) -> ProcessId | None:
    """Return the process with this pid; None if it does not exist, or has ended but is not reaped yet."""
    fields = _stat(pid)
    if fields is None or fields[_STATE] in "ZX":
        return None
    return ProcessId(pid, int(fields[_STARTED]))


def is_alive(process: ProcessId | None) -> bool:
    """True if exactly this process still exists, running or paused."""
    return process is not None and identify(process.pid) == process


def is_paused(process: ProcessId) -> bool:
    """True if the process exists and was paused by a signal (SIGSTOP)."""
    fields = _stat(process.pid)
    return fields is not None and fields[_STATE] == "T" and int(fields[_STARTED]) == process.started


def started_at_ms(process: ProcessId) -> int:
    """Return when the process was started, in Unix ms; correct to a second."""
    text = Path("/proc/stat").read_text()
    booted = next(line for line in text.splitlines() if line.startswith("btime "))
    return (int(booted.split()[1]) + process.started // os.sysconf("SC_CLK_TCK")) * 1000


def send_signal(process: ProcessId, signal_number: int) -> bool:
    """Send a signal to a process; return False if the process is gone."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, signal_number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


async def wait_until_gone(process: ProcessId, clock: Clock, timeout_ms: int) -> bool:
    """Wait up to `timeout_ms` until a process ends; return True if it has ended. Reap a child process."""
    deadline = clock.now() + timeout_ms
    while True:
        reap(process)
        if not is_alive(process):
            return True
        if clock.now() >= deadline:
            return False
        await clock.sleep(POLL_MS)


async def kill(process: ProcessId, clock: Clock) -> None:
    """Send SIGKILL to a process and wait until it is gone."""
    send_signal(process, signal.SIGKILL)
    await wait_until_gone(process, clock, END_GRACE_MS)


async def end(process: ProcessId, clock: Clock, grace_ms: int = END_GRACE_MS) -> None:
    """Send SIGTERM (and SIGCONT, if the process is paused), then SIGKILL after `grace_ms`."""
    if send_signal(process, signal.SIGTERM):
        send_signal(process, signal.SIGCONT)
        if await wait_until_gone(process, clock, grace_ms):
            return
    await kill(process, clock)


def reap(process: ProcessId) -> None:
    """Reap a process that has ended; do nothing if it still runs or is not a child of this process."""
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def spawn(arguments: Sequence[str], log: Path) -> ProcessId:
    """Start `minikafka ARGUMENTS` with this interpreter in a new session; append its output to `log`.

    Raises OSError.
    """
    with log.open("ab") as output:
        return _spawn([sys.executable, "-m", "minikafka", *arguments], output, own_environment())


def _spawn(command: list[str], output: IO[bytes], environment: Mapping[str, str]) -> ProcessId:
    child = start_child(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment,
    )
    # `reap` reaps the process by pid. Without this line Popen warns that the process still runs.
    child.returncode = 0
    fields = _stat(child.pid)
    assert fields is not None, "a child stays visible until it is reaped"
    return ProcessId(child.pid, int(fields[_STARTED]))


def find_broker(config_file: Path) -> ProcessId | None:
    """Return this user's process of `minikafka broker --config FILE`; None if there is none.

    This also finds a process that the user started directly.
    """
    for pid, words in _command_lines():
        is_ours = "broker" in words and Path(words[0]).name.startswith(("python", "minikafka"))
        if is_ours and _config_of(pid, words) == config_file:
            return identify(pid)
    return None


def _command_lines() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            if entry.stat().st_uid == os.getuid():
                line = (entry / "cmdline").read_bytes()
                yield int(entry.name), line.decode(errors="surrogateescape").split("\0")[:-1]


def _config_of(pid: int, words: Sequence[str]) -> Path | None:
    """Return the file named by `--config`, resolved against the working directory of the process."""
    for index, word in enumerate(words):
        name, is_joined, value = word.partition("=")
        if name == "--config" and (is_joined or index + 1 < len(words)):
            with suppress(OSError):
                return (
                    Path(f"/proc/{pid}/cwd")
                    .readlink()
                    .joinpath(value or words[index + 1])
                    .resolve()
                )
    return None


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the command name; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
