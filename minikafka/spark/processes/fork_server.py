"""Starts the fork server of this process, and names the program that Spark must start as its Python."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ADDRESS: Final = "MINIKAFKA_FORK_SERVER"
"""Name of the environment variable with the path of the server's socket."""
_MODULE: Final = "minikafka.spark.processes.server"
_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_WAITING_MAX: Final = 128
"""Maximum number of launchers that wait for the server to import its modules."""
_SCRIPT: Final = """#!/bin/sh
# Starts a Python process of Spark as a fork of the session's fork server, if the server runs.
if [ "${address}" ]; then exec {python} -I -S {launcher} "${address}" {python} "$@"; fi
exec {python} "$@"
"""


class ForkServer:
    """The fork server of this process. `address`: the path of its socket."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self, variables: Mapping[str, str]) -> None:
        """Start the server, unless it runs. `variables`: additions to its environment. Raises OSError."""
        if self.process is not None and self.process.poll() is None:
            return
        self.end()
        place = Path(tempfile.mkdtemp(prefix="minikafka-"))
        try:
            self.process = _start(place / "socket", variables)
        except OSError:
            shutil.rmtree(place)
            raise
        self.address = str(place / "socket")

    def end(self) -> None:
        """End the server. The processes that it has forked go on until Spark ends them."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()


_server: Final = ForkServer()
atexit.register(_server.end)


def _start(place: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(_WAITING_MAX)
        return subprocess.Popen(
            [sys.executable, "-u", "-m", _MODULE, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=os.environ | variables,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # Ctrl-C ends the driver, and Spark then ends these processes
        )


def script() -> str | None:
    """Return the text of the shell script that stands for this Python in Spark; None if this system has no pidfd."""
    try:
        os.close(os.pidfd_open(os.getpid()))  # Linux 5.3 and later
    except (AttributeError, OSError):
        return None
    if not _LAUNCHER.is_file():  # this code is in an archive
        return None
    python, launcher = shlex.quote(sys.executable), shlex.quote(str(_LAUNCHER))
    return _SCRIPT.format(address=ADDRESS, python=python, launcher=launcher)


def started(variables: Mapping[str, str]) -> dict[str, str]:
    """Start the fork server, if none runs. Return the environment variable by which launchers find it.

    `variables`: additions to the environment of the server. Without a server, the launchers start new processes.
    """
    try:
        _server.start(variables)
    except OSError:
        return {}
    return {ADDRESS: _server.address}
