"""`minikafka` on a machine of the tests (`machines.py`): the command is forked (`fork_server.py`) into the machine.

The environment has the socket of `Forks` in FORKS, and the pid of the machine's first process in MACHINE. This process
passes signals on, except SIGKILL, and ends as the command does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Let the command run with the streams, directory and environment of this process, until it ends."""
    environment = dict(os.environ)
    request = {
        "arguments": sys.argv[1:],
        "directory": os.getcwd(),
        "environment": environment,
        "session": False,
        "inside": int(environment["MACHINE"]),
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as forks:
        forks.connect(environment["FORKS"])
        socket.send_fds(forks, [json.dumps(request).encode()], [0, 1, 2])
        first = [
            forks.recv(20),
            forks.recv(20),
        ]  # the pids here and in the fork server's namespace, in any order
        [pid] = [int(message.split()[1]) for message in first if message.startswith(b"inside ")]
        for number in SIGNALS:
            signal.signal(number, lambda number, _: os.kill(pid, number))
        code = int(forks.recv(20))
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
