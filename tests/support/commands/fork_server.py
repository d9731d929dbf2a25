"""A process that has imported minikafka, and forks a child for each command or broker that a test starts.

A forked command is a process like any other: it has its own signals, standard streams, directory and exit code. Only
the start of the interpreter and the imports, which take 0.1 to 0.4 s of processor time, are those of the server.

A request is JSON (`Request`) with four descriptors: the standard streams, and a socket. On this socket the server
writes the pid of the child, and at the end of the child its exit code. A child on another machine
(`support/hosts/machines.py`) also writes its pid there, as `inside PID`.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import runpy
import selectors
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, TypedDict

from minikafka.runtime.descriptors import close_all_but
from minikafka.tools.cli.foreground.broker import no_certificates, no_client_of_aiokafka
from minikafka.tools.cli.main import _COMMANDS

BROKER: Final = "broker"
COLD: Final = (BROKER, "zookeeper", "pipeline")
"""Commands whose modules the server of commands imports only in a child: the servers, and what needs Spark."""
LATE: Final = ("minikafka.broker.rpc.client",)
"""Modules that a command imports in a function."""
STREAMS: Final = 3
LONGEST: Final = 1 << 16
"""Maximum number of bytes in a request."""


class Request(TypedDict):
    """What a child gets besides its streams. `session`: true for a child with a session of its own.

    `inside`: the first process of the machine on which the child runs, 0 for this machine.
    """

    arguments: list[str]
    directory: str
    environment: dict[str, str]
    session: bool
    inside: int


def main() -> None:
    """Import what the second argument names, and serve the socket that the first argument gives, until it is closed."""
    if sys.argv[2] == BROKER:
        import_broker()
    else:
        import_commands()
    requested = serve(socket.socket(fileno=int(sys.argv[1])))
    if requested is not None:
        run_command(*requested)


def import_broker() -> None:
    """Import what `minikafka broker` imports, in the same way, and `minikafka zookeeper`."""
    with no_certificates(), no_client_of_aiokafka():
        importlib.import_module("minikafka.tools.cli.foreground.broker_process")
    importlib.import_module("minikafka.tools.cli.foreground.zookeeper")


def import_commands() -> None:
    for name, entry in _COMMANDS.items():
        if name not in COLD:
            importlib.import_module(f"minikafka.tools.cli.{entry.module}")
    for name in LATE:
        importlib.import_module(name)


def serve(requests: socket.socket) -> tuple[Request, list[int]] | None:
    """Fork a child for each request. Return None in the server, at its end.

    Return its request and descriptors in the child.
    """
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
                    return json.loads(message), descriptors
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


def run_command(request: Request, descriptors: list[int]) -> None:
    """Run `minikafka` in this child, with what the request gives it."""
    *streams, reply = descriptors
    if request["inside"]:
        enter(request["inside"], reply)
    if request["session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    close_all_but(set(range(STREAMS)))
    if request["inside"]:
        open_streams()
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["minikafka", *request["arguments"]]
    runpy.run_module("minikafka", run_name="__main__", alter_sys=True)


def enter(first: int, reply: int) -> None:
    """Return in a new process that shares the namespaces of the process `first`. This process waits for its end."""
    names = ("pid", "net", "uts", "mnt")
    ids, *others = [os.open(f"/proc/{first}/ns/{name}", os.O_RDONLY) for name in names]
    join(ids)
    if child := os.fork():
        status = Path(f"/proc/{child}/status").read_text()
        [pids] = [line for line in status.splitlines() if line.startswith("NSpid:")]
        os.write(reply, b"inside %s" % pids.split()[-1].encode())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code < 0:
            os.kill(os.getpid(), -code)
        os._exit(code)
    for namespace in others:
        join(namespace)


def open_streams() -> None:
    """Open the standard streams again: those of the server are for a file, and these may be pipes."""
    modes = ("r", "w", "w")
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - they stay open
        for number, mode in enumerate(modes)
    )


def join(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, 0):
        raise OSError(ctypes.get_errno(), "setns")


if __name__ == "__main__":
    main()
