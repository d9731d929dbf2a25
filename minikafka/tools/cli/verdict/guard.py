"""The parent of the command of `minikafka run`: it leaves no process behind, even if `minikafka run` is killed.

    guard.py PIPE DIRECTORY COMMAND…

Linux gives each orphan among the descendants of this process to it. When the command has ended, this process kills
them. It does so too when the other end of the pipe is closed, because then `minikafka run` has died: in this case it
also removes the temporary directory of the cluster. The file runs as a program of its own, without this package.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

SUBREAPER = 36
"""The option of prctl(2), PR_SET_CHILD_SUBREAPER."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""The exit codes of a shell for a command that does not exist, or cannot be executed."""
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main(pipe: int, directory: str, command: list[str]) -> int:
    """Run the command, kill what it leaves behind, and return its exit code."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1)
    for number in FORWARDED:  # the command gets them too; a handler, unlike SIG_IGN, ends with exec
        signal.signal(number, lambda *_: None)
    try:
        child = subprocess.Popen(command)
    except OSError as error:
        print(f"minikafka: {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    has_died = threading.Event()
    threading.Thread(target=watch, args=(pipe, directory, has_died), daemon=True).start()
    code = child.wait()
    while has_died.is_set():
        signal.pause()  # the other thread ends the process
    kill_descendants()
    return code if code >= 0 else 128 - code


def watch(pipe: int, directory: str, has_died: threading.Event) -> None:
    """Wait until `minikafka run` has died, then kill everything and remove the directory."""
    while os.read(pipe, 1):
        pass
    has_died.set()
    kill_descendants()
    for _ in range(20):  # the brokers die at the same time, and may still write
        shutil.rmtree(directory, ignore_errors=True)
        threading.Event().wait(0.05)
        if not Path(directory).exists():
            break
    os._exit(1)


def kill_descendants() -> None:
    """Kill all descendants, until none is left."""
    while found := descendants():
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        threading.Event().wait(0.005)


def descendants() -> list[int]:
    """Return the ids of all descendants that have not ended."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[0] != "Z":
                    children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    parents = [os.getpid()]
    while parents:
        below = children.get(parents.pop(), [])
        found += below
        parents += below
    return found


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
