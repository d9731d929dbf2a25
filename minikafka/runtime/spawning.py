"""Starting child processes from one thread that lasts as long as this process.

Linux sends a parent-death signal (prctl(2), PR_SET_PDEATHSIG) when the *thread* that started the child ends. A
child that was started from a short-lived thread, such as one of `asyncio.to_thread`, would die with that thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

_Child = subprocess.Popen[bytes]
_Request = tuple[Callable[[], _Child], Future[_Child]]
_PR_SET_PDEATHSIG: Final = 1
"""The option of prctl(2) that sets which signal a process gets when its parent dies."""

_PROGRAM: Final = f"""
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""The program of `dying_with`. The setting of prctl(2) stays when the process executes another program."""


def start_child(command: Sequence[str], **options: Any) -> _Child:
    """Return `subprocess.Popen(command, **options)`, called in the lasting thread. Raises OSError."""
    started: Future[_Child] = Future()
    _starter.requests().put((lambda: subprocess.Popen(command, **options), started))
    return started.result()


def dying_with(parent: int, command: Sequence[str]) -> list[str]:
    """Return a command that becomes `command`, and that the kernel kills when `parent` ends (see `die_with`).

    An argument `preexec_fn` would run Python in the child before `command`. Python then frees what belongs to the
    parent's other threads. An object that shuts down its socket when it is freed, such as a connection of Py4J, does
    so for the parent too.
    """
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, str(parent), *command]


def own_environment() -> dict[str, str]:
    """Return this process's environment, with this copy of minikafka first on PYTHONPATH."""
    here = str(Path(__file__).resolve().parents[2])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{path}" if path else here}


class _Starter:
    """The lasting thread, which is created at the first request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: SimpleQueue[_Request] | None = None

    def requests(self) -> SimpleQueue[_Request]:
        """Return the queue that the thread serves."""
        with self._lock:
            if self._requests is None:
                self._requests = SimpleQueue()
                # A daemon thread ends with the process; the interpreter waits for any other thread before it exits.
                arguments = (self._requests,)
                threading.Thread(
                    target=_serve, args=arguments, name="minikafka-starter", daemon=True
                ).start()
            return self._requests


def _serve(requests: SimpleQueue[_Request]) -> None:
    while True:
        start, started = requests.get()
        try:
            started.set_result(start())
        except Exception as error:  # noqa: BLE001 - the caller gets every error
            started.set_exception(error)
        del start, started  # the next request may come much later


_starter: Final = _Starter()
# A forked child has no copy of the thread.
os.register_at_fork(after_in_child=_starter.__init__)  # type: ignore[misc]


def die_with(parent: int) -> None:
    """Make the kernel kill this process when `parent` ends, or at once if `parent` has already ended (Linux only).

    More exactly, the kernel kills this process when the thread of `parent` that started it ends (see `start_child`).
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
