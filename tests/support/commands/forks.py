"""The fork servers of this process (`fork_server.py`), and requests to them."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
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
