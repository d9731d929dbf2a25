"""Running a function in a forked child, which has a copy of all memory at that moment.

The parent continues while the child works on its copy. Fork from the thread of the event loop while no other thread
holds a lock: the child has only the thread that forked.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, NoReturn

from minikafka.base.errors import MinikafkaError
from minikafka.runtime.descriptors import close_all_but

_STDERR: Final = 2


def in_child(function: Callable[[], None]) -> Coroutine[Any, Any, bool]:
    """Fork now, and run the function in the child; the result waits for the child.

    The child gives way to all other processes: even at the lowest niceness it would delay the event loop of the parent
    by some ms. Next to two processes that never wait, 0.15 s of work take a minute.

    The result is True if the function returned, False if it raised or the child was killed. An error is printed to
    stderr. The child is killed if the result is cancelled. Raises OSError if no child could be started.
    """
    reading, writing = os.pipe()
    try:
        pid = _start(function, writing)
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return _result(pid, reading)


async def _result(pid: int, reading: int) -> bool:
    try:
        await _wait_for_end(reading)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(reading)
        # In a thread: a child that has closed its end may still wait for a processor, which it needs to end.
        code = await asyncio.to_thread(_exit_code, pid)
    return code == 0


def _start(function: Callable[[], None], writing: int) -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns if there are other threads; they are idle.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _run(function, writing)
    return pid


def _exit_code(pid: int) -> int:
    """Wait for a child that is about to end, and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def _wait_for_end(reading: int) -> None:
    """Wait until the child has closed its end of the pipe, which it does by its end."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(reading, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(reading)


def _run(function: Callable[[], None], writing: int) -> NoReturn:
    """Run the function as the child, and end the process without any of the parent's cleanup."""
    code = 1
    try:
        _let_go(writing)
        with suppress(OSError):  # a sandbox may lack this class
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        function()
        code = 0
    except MinikafkaError as error:
        os.write(_STDERR, f"{error}\n".encode())
    except BaseException:  # noqa: BLE001 - the parent must not run twice
        os.write(_STDERR, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _let_go(writing: int) -> None:
    """Reset the signal handlers, and close the sockets and files, that the child has inherited.

    With a copy of a socket, the child would keep connections open that the parent closes, and its port in use. A
    signal handler would write into the descriptor of the parent's event loop.
    """
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    close_all_but({0, 1, _STDERR, writing})
    gc.disable()  # a collection would copy every page of memory
