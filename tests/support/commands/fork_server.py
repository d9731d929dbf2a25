"""A process that has imported the command line, and forks a child for each command that a test runs.

A forked command is a process like any other: it has its own signals, standard streams, directory and exit code. Only
the start of the interpreter and the imports, which take 0.3 s of processor time, are those of the server.

A request is JSON (`Request`) with four descriptors: the standard streams, and a socket. On this socket the server
writes the pid of the command, and then its exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import selectors
import socket
import sys
from contextlib import suppress
from typing import Final, TypedDict

from minikafka.runtime.descriptors import close_all_but
from minikafka.tools.cli.main import _COMMANDS

COLD: Final = ("broker", "zookeeper", "pipeline")
"""Commands whose modules are imported only when they run: the servers, and what needs Spark."""
LATE: Final = ("minikafka.broker.rpc.client",)
"""Modules that a command imports in a function."""
STREAMS: Final = 3
LONGEST: Final = 1 << 16
"""Maximum number of bytes in a request."""


class Request(TypedDict):
    """What a command gets besides its streams."""

    arguments: list[str]
    directory: str
    environment: dict[str, str]


def main() -> None:
    """Serve the socket whose descriptor is the first argument, until its other end is closed."""
    import_commands()
    requested = serve(socket.socket(fileno=int(sys.argv[1])))
    if requested is not None:
        run_command(*requested)


def import_commands() -> None:
    for name, entry in _COMMANDS.items():
        if name not in COLD:
            importlib.import_module(f"minikafka.tools.cli.{entry.module}")
    for name in LATE:
        importlib.import_module(name)


def serve(requests: socket.socket) -> tuple[Request, list[int]] | None:
    """Fork a child for each request. Return its request in the child; return None in the server, at its end."""
    running: dict[int, tuple[int, int]] = {}
    """Descriptor of a child -> its pid, and the descriptor that takes its exit code."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fd in running:
                    waiting.unregister(key.fd)
                    os.close(key.fd)
                    report_end(*running.pop(key.fd))
                    continue
                message, descriptors, *_ = socket.recv_fds(requests, LONGEST, STREAMS + 1)
                if not message:
                    return None
                *streams, reply = descriptors
                if not (pid := os.fork()):
                    requests.detach()
                    return json.loads(message), streams
                for stream in streams:
                    os.close(stream)
                child = os.pidfd_open(pid)
                waiting.register(child, selectors.EVENT_READ)
                running[child] = pid, reply
                report(reply, pid)


def report_end(pid: int, reply: int) -> None:
    """Report the exit code of a child that has ended: for a signal, its negative number."""
    report(reply, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os.close(reply)


def report(reply: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the test waits no longer
        os.write(reply, b"%d" % number)


def run_command(request: Request, streams: list[int]) -> None:
    """Run `minikafka` in this child, with what the request gives it."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    close_all_but(set(range(STREAMS)))
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["minikafka", *request["arguments"]]
    runpy.run_module("minikafka", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
