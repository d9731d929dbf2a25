"""The fork server: the process from which a local session forks all Python processes of Spark.

Spark 4.3 starts a new Python for each of its programs: a daemon each for the search of data sources, for their
creation, for the plans of reads and writes, for commits and for tasks, and a process for each stream. Each would
import the same modules, which takes 0.5 to 1 s of processor time. The server has imported them, and forks.

A launcher (`launcher.py`) describes the process to start. The child gets the launcher's standard streams, environment
and working directory, and runs the module as `python -m` does. The server ends when the driver closes the server's
standard input, which also happens if the driver is killed. Its children go on until Spark ends them.
"""

from __future__ import annotations

import gc
import os
import runpy
import selectors
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from minikafka.spark.daemon import import_modules
from minikafka.spark.processes.launcher import NUMBER

_IMPORTED: Final = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
)
"""The modules of Spark's Python programs that `minikafka.spark.daemon` does not import.

A missing one is reported by the program that needs it.
"""
_DAEMONS: Final = {"pyspark.daemon": "minikafka.spark.daemon"}
"""The daemon to run for Spark's own one, which Spark starts for plans in spite of `spark.python.daemon.module`.

Spark closes a worker that has been idle for a minute, and Spark's own daemon prints a traceback about it.
"""
_RECEIVE_S: Final = 10.0
"""Maximum time for a request. A launcher sends its request at once."""


class Request(NamedTuple):
    """A process to start. `module`, `arguments`: as in `python -m`. `files`: its standard streams."""

    files: list[int]
    directory: bytes
    module: str
    arguments: list[str]
    variables: dict[bytes, bytes]


def parse(message: bytes, files: list[int]) -> Request:
    """Return the request in a launcher's message (`launcher.request`)."""
    directory, count, *fields = message.split(b"\0")
    module, *arguments = map(os.fsdecode, fields[: int(count)])
    pairs = (field.partition(b"=") for field in fields[int(count) :])
    return Request(files, directory, module, arguments, {name: text for name, _, text in pairs})


def receive(launcher: socket.socket) -> Request:
    """Receive a launcher's request. Raises OSError or ValueError if the launcher sends none."""
    launcher.settimeout(_RECEIVE_S)
    head, files, _, _ = socket.recv_fds(launcher, NUMBER, 3)
    try:
        size, message = int.from_bytes(head, "big"), bytearray()
        while len(message) < size:
            if not (found := launcher.recv(size - len(message))):
                raise ConnectionResetError("the launcher has ended")
            message += found
        return parse(bytes(message), files)
    except BaseException:
        for file in files:
            os.close(file)
        raise


class _Child(NamedTuple):
    """A forked process, with the connection of its launcher. `handle`: its pidfd."""

    launcher: socket.socket
    process: int
    handle: int


class ForkingServer:
    """Forks a process for each launcher that connects to `listener`, until `control` is at its end."""

    def __init__(self, listener: socket.socket, control: int) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, self._end)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._is_over = False
        self._child: Request | None = None

    def run(self) -> Request | None:
        """Serve launchers. Return None at the end, and in each forked process the request of the process."""
        while not self._is_over:
            for key, _ in self._selector.select():
                key.data()
                if self._child is not None:
                    self._close()
                    return self._child
        self._close()
        return None

    def _end(self) -> None:
        self._is_over = True

    def _accept(self) -> None:
        launcher, _ = self._listener.accept()
        try:
            request = receive(launcher)
        except (OSError, ValueError):
            launcher.close()
            return
        process = os.fork()
        if not process:
            launcher.close()
            self._child = request
            return
        for file in request.files:
            os.close(file)
        self._watch(launcher, process)

    def _watch(self, launcher: socket.socket, process: int) -> None:
        """Tell the launcher when the process ends, and end the process when the launcher ends."""
        with suppress(OSError):
            launcher.sendall(process.to_bytes(NUMBER, "big"))
        child = _Child(launcher, process, os.pidfd_open(process))
        self._selector.register(child.handle, selectors.EVENT_READ, partial(self._report, child))
        self._selector.register(launcher, selectors.EVENT_READ, partial(self._terminate, child))

    def _report(self, child: _Child) -> None:
        self._forget(child.handle)
        os.close(child.handle)
        code = os.waitstatus_to_exitcode(os.waitpid(child.process, 0)[1])
        status = code if code >= 0 else 128 - code  # as a shell reports the number of a signal
        with suppress(OSError):
            child.launcher.sendall(status.to_bytes(NUMBER, "big"))
        self._forget(child.launcher)
        child.launcher.close()

    def _terminate(self, child: _Child) -> None:
        if self._forget(child.launcher):
            signal.pidfd_send_signal(child.handle, signal.SIGTERM)

    def _forget(self, file: int | socket.socket) -> bool:
        """Watch `file` no longer. Return False if it was not watched: its event was among those just reported."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(file)
            return True
        return False

    def _close(self) -> None:
        """Close all files of the server."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
            else:
                key.fileobj.close()  # type: ignore[attr-defined]
        self._selector.close()


def run_module(request: Request, path: list[str]) -> None:
    """Run the module of a request, or its stand-in, as `python -m` does, in this process.

    `path`: `sys.path` without PYTHONPATH.
    """
    for target, file in enumerate(request.files):
        os.dup2(file, target)
        os.close(file)
    os.chdir(request.directory)
    os.environb.clear()
    os.environb.update(request.variables)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [os.getcwd(), *filter(None, given), *path]
    module = _DAEMONS.get(request.module, request.module)
    sys.argv = [module, *request.arguments]
    sys.modules.pop(module, None)  # runpy warns of an imported module
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    """Serve launchers at the socket in file descriptor `argv[1]`, until standard input ends."""
    import_modules(_IMPORTED)
    gc.collect()
    gc.freeze()  # the collector of a child would copy the pages of all objects
    listener = socket.socket(fileno=int(sys.argv[1]))
    place = Path(listener.getsockname())
    control = os.dup(0)
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [entry for entry in sys.path[1:] if entry not in own]
    request = ForkingServer(listener, control).run()
    if request is not None:
        run_module(request, path)
        return
    with suppress(OSError):
        place.unlink()
        place.parent.rmdir()


if __name__ == "__main__":
    main()
