"""Processes by pid and start time: started, recognised in a later command, signalled, ended.

Invariant: no signal ever reaches a process other than the one that was recorded. A pid alone names
nothing (it is given out again); pid and start time together do, and the check and the signal go
through one pidfd, so that the pid cannot change hands between them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, NamedTuple

from minikafka.base.ports import Clock

END_GRACE_MS: Final = 10_000
"""How long a process may take to end on SIGTERM before it is killed."""
POLL_MS: Final = 10
_PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal that a process gets when its parent dies."""
_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat, counted after the command's closing bracket (proc(5): 3 and 22)."""


class ProcessId(NamedTuple):
    """One process for all time: its pid, and when it started (clock ticks since the machine's boot)."""

    pid: int
    started: int


def identify(pid: int) -> ProcessId | None:
    """The process that has this pid now; None when there is none, or only its unreaped remains."""
    fields = _stat(pid)
    if fields is None or fields[_STATE] in "ZX":
        return None
    return ProcessId(pid, int(fields[_STARTED]))


def is_alive(process: ProcessId | None) -> bool:
    """Whether that very process still runs (a stopped one does)."""
    return process is not None and identify(process.pid) == process


def is_paused(process: ProcessId) -> bool:
    """Whether it was stopped by a signal."""
    fields = _stat(process.pid)
    return fields is not None and fields[_STATE] == "T" and int(fields[_STARTED]) == process.started


def send_signal(process: ProcessId, signal_number: int) -> bool:
    """Send it; False when that process is gone."""
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
    """Whether it ended in that time; its remains are reaped when it was a child of ours."""
    deadline = clock.now() + timeout_ms
    while True:
        reap(process)
        if not is_alive(process):
            return True
        if clock.now() >= deadline:
            return False
        await clock.sleep(POLL_MS)


async def kill(process: ProcessId, clock: Clock) -> None:
    """SIGKILL, and wait until it is gone."""
    send_signal(process, signal.SIGKILL)
    await wait_until_gone(process, clock, END_GRACE_MS)


async def end(process: ProcessId, clock: Clock, grace_ms: int = END_GRACE_MS) -> None:
    """SIGTERM, then SIGKILL when that does not end it; a paused process is woken first."""
    if send_signal(process, signal.SIGTERM):
        send_signal(process, signal.SIGCONT)
        if await wait_until_gone(process, clock, grace_ms):
            return
    await kill(process, clock)


def reap(process: ProcessId) -> None:
    """Take away the remains of an ended child; nothing for a process that is not our child."""
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def spawn(arguments: Sequence[str], log: Path) -> ProcessId:
    """Start `minikafka ARGUMENTS` by this interpreter, in a session of its own, its output added to `log`.

    Raises OSError.
    """
    with log.open("ab") as output:
        return _spawn([sys.executable, "-m", "minikafka", *arguments], output, _environment())


def _spawn(command: list[str], output: IO[bytes], environment: Mapping[str, str]) -> ProcessId:
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment,
    )
    # Whoever waits for it goes by pid; without this the object warns that nobody waited.
    child.returncode = 0
    fields = _stat(child.pid)
    assert fields is not None, "a child stays visible until it is reaped"
    return ProcessId(child.pid, int(fields[_STARTED]))


def _environment() -> dict[str, str]:
    """This environment, with this very copy of minikafka first on the path."""
    here = str(Path(__file__).resolve().parents[2])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{path}" if path else here}


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends; at once when it already has."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def find_broker(config_file: Path) -> ProcessId | None:
    """A running `minikafka broker --config FILE` of this user, whoever started it (by hand, say)."""
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
    """The file after `--config` (or `--config=`), made absolute by the process's own directory."""
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
    """/proc/PID/stat after the command name, which may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
