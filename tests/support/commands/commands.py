"""Functions that run minikafka's commands as processes, which are forked (`fork_server.py`).

`NEW_INTERPRETER` is the command of a user instead, for tests that start a process themselves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from support.commands.forks import COMMANDS, ENVIRONMENT, fork, fork_server_of

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
    """A command that runs: the socket on which its exit code arrives, and the files with its output."""

    reply: socket.socket
    out: IO[bytes]
    err: IO[bytes]

    def ended(self, code: bytes) -> Ended:
        return Ended(int(code), *map(text_in, (self.out, self.err)))


def text_in(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@contextmanager
def _killed_at_the_end(pid: int) -> Iterator[None]:
    """Kill the process at the end of the block, if it has not ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:  # it has ended already
        yield
        return
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        os.close(process)


@contextmanager
def started(arguments: Sequence[str], directory: Path, stdin: str) -> Iterator[Command]:
    """Start a command, and kill it if it still runs at the end of the block."""
    environment = {**os.environ, "PYTHONPATH": ENVIRONMENT["PYTHONPATH"]}
    with ExitStack() as stack:
        read, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        read.write(stdin.encode())
        read.seek(0)
        forked = fork(
            fork_server_of(COMMANDS),
            arguments,
            [file.fileno() for file in (read, out, err)],
            directory=directory,
            environment=environment,
        )
        stack.enter_context(forked.reply)
        stack.enter_context(_killed_at_the_end(forked.pid))
        yield Command(forked.reply, out, err)
