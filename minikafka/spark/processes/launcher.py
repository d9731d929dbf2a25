"""The program that Spark starts as its Python: it lets the session's fork server run the module.

    python -I -S launcher.py SOCKET PYTHON -m MODULE ARGUMENT…

The fork server (`server.py`) gets the arguments, the environment, the working directory and the standard streams.
The program ends with the exit status of the forked process, and the forked process ends when this program is killed.
Without a server that answers, this program becomes PYTHON with the same arguments.

This file runs without site-packages, so that it starts in 0.01 s. It may only import the standard library.
"""

from __future__ import annotations

import os
import socket
import sys

NUMBER = 4
"""Bytes of a number of the protocol: the length of a request, a process id, an exit status."""


def request(arguments: list[str]) -> bytes:
    """Return the message that describes the process to start. Zero bytes separate its fields."""
    variables = [name + b"=" + value for name, value in os.environb.items()]
    words = [os.fsencode(word) for word in arguments]
    return b"\0".join([os.fsencode(os.getcwd()), b"%d" % len(words), *words, *variables])


def run_forked(address: str, arguments: list[str]) -> int | None:
    """Let the server at `address` run a process. Return its exit status; None if the server did not start it."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            message = request(arguments)
            server.connect(address)
            head = len(message).to_bytes(NUMBER, "big")
            socket.send_fds(server, [head], [0, 1, 2])
            server.sendall(message)
            started = server.recv(NUMBER)
        except OSError:
            return None
        if not started:
            return None
        try:
            ended = server.recv(NUMBER)
        except OSError:
            ended = b""
        return int.from_bytes(ended, "big") if ended else 1


def main(address: str, python: str, arguments: list[str]) -> None:
    """Run the process, and end with its exit status."""
    is_module = arguments[:1] == ["-m"] and len(arguments) > 1
    status = run_forked(address, arguments[1:]) if is_module else None
    if status is None:
        os.execv(python, [python, *arguments])  # noqa: S606
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
