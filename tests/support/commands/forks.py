"""The fork servers of this process (`fork_server.py`), and requests to them."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from support.commands import fork_server

import minikafka

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(minikafka.__file__).parents[1])}
COMMANDS, BROKER = "commands", fork_server.BROKER
"""The kinds of servers: one has imported the commands, the other the broker."""


class Server(NamedTuple):
    """A fork server: its pid, and the socket that takes requests."""

    pid: int
    requests: socket.socket


class Fork(NamedTuple):
    """A forked child: its pid, and the socket on which its exit code arrives."""

    pid: int
    reply: socket.socket


class ForkedProcess:
    """A forked child with the methods of `subprocess.Popen` that end it or wait for its end."""

    def __init__(self, forked: Fork) -> None:
        self._pid, self._reply = forked
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""
        return self._code_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises TimeoutError."""
        if (code := self._code_within(timeout)) is None:
            raise TimeoutError(f"process {self._pid} still runs after {timeout} s")
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _code_within(self, seconds: float | None) -> int | None:
        if self._code is None and select.select([self._reply], [], [], seconds)[0]:
            self._code = int(self._reply.recv(20))
            self._reply.close()
        return self._code


def fork(
    server: Server,
    arguments: Sequence[str],
    streams: Sequence[int],
    *,
    directory: Path,
    environment: Mapping[str, str],
    session: bool = False,
) -> Fork:
    """Run `minikafka ARGUMENTS` in a child of the server. `streams`: descriptors of input, output and errors."""
    request = fork_server.Request(
        arguments=list(arguments),
        directory=str(directory),
        environment=dict(environment),
        session=session,
        inside=0,
    )
    reply, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with end:
        message = json.dumps(request).encode()
        socket.send_fds(server.requests, [message], [*streams, end.fileno()])
    return Fork(int(reply.recv(20)), reply)


@cache
def fork_server_of(kind: str) -> Server:
    """Start the server of this kind at the first call. It ends with this process."""
    requests, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with other:
        process = subprocess.Popen(
            [sys.executable, "-m", fork_server.__name__, str(other.fileno()), kind],
            pass_fds=[other.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
    atexit.register(stop, requests, process)
    return Server(process.pid, requests)


def stop(requests: socket.socket, process: subprocess.Popen[bytes]) -> None:
    requests.close()
    process.wait()
