"""Functions that run minikafka's commands as processes.

The processes are forked from one that has imported the command line (`command_server.py`). `NEW_INTERPRETER` is what a
user starts instead, for tests that start a process themselves.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

import minikafka

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(minikafka.__file__).parents[1])}
NEW_INTERPRETER = (sys.executable, "-m", "minikafka")
TIMEOUT = 120


class Ended(NamedTuple):
    """Exit code and output of a command that has ended. The code of a signal is its negative number."""

    code: int | None
    out: str
    err: str


async def call(*arguments: str) -> Ended:
    """Run `minikafka ARGUMENTS` until it ends."""
    with started(arguments, Path.cwd(), "") as command:
        command.reply.setblocking(False)
        async with asyncio.timeout(TIMEOUT):
            code = await asyncio.get_running_loop().sock_recv(command.reply, 20)
        return command.ended(code)


def run(*arguments: str, cwd: Path, stdin: str = "") -> Ended:
    """Run `minikafka ARGUMENTS` in a directory until it ends. The event loop of the test does not run meanwhile."""
    with started(arguments, cwd, stdin) as command:
        command.reply.settimeout(TIMEOUT)
        return command.ended(command.reply.recv(20))


class Command(NamedTuple):
    """A command that runs: the socket on which its exit code will arrive, and the files with its output."""

    reply: socket.socket
    out: IO[bytes]
    err: IO[bytes]

    def ended(self, code: bytes) -> Ended:
        return Ended(int(code), *map(text_in, (self.out, self.err)))


@contextmanager
def started(arguments: tuple[str, ...], directory: Path, stdin: str) -> Iterator[Command]:
    """Start a command, and kill it if it still runs at the end of the block."""
    request = {
        "arguments": arguments,
        "directory": str(directory),
        "environment": {**os.environ, "PYTHONPATH": ENVIRONMENT["PYTHONPATH"]},
    }
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin.encode())
        files[0].seek(0)
        reply, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with reply:
            with end:
                descriptors = [file.fileno() for file in (*files, end)]
                socket.send_fds(server(), [json.dumps(request).encode()], descriptors)
            pid = int(reply.recv(20))
            child = os.pidfd_open(pid)
            stack.callback(os.close, child)
            try:
                yield Command(reply, files[1], files[2])
            finally:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(child, signal.SIGKILL)


def text_in(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@cache
def server() -> socket.socket:
    """Start the command server of this process; return the socket for requests."""
    requests, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with other:
        process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("command_server.py")),
                str(other.fileno()),
            ],
            pass_fds=[other.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=ENVIRONMENT,
            start_new_session=True,
        )
    atexit.register(stop, requests, process)
    return requests


def stop(requests: socket.socket, process: subprocess.Popen[bytes]) -> None:
    requests.close()
    process.wait()
