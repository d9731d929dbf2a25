"""The console of a cluster that `minikafka up` has started: its address, its process, and its end.

`console.json` in the data directory (mode 0600) has the port and the token, which stay the same, and the process. The
process is the doorkeeper (`doorkeeper.py`), which becomes the console while somebody looks.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from minikafka.base.names import parse_json
from minikafka.base.ports import Clock, Rng
from minikafka.runtime.spawning import own_environment, start_child
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterError
from minikafka.tools.cluster.durable_files import write_private
from minikafka.tools.cluster.ports import free_ports
from minikafka.tools.cluster.processes import ProcessId, end, identify, is_alive
from minikafka.tools.console.access import TOKEN_BYTES, url_of
from minikafka.tools.console.errors import RequestRefused
from minikafka.tools.console.opening import listen

_DOORKEEPER: Final = str(Path(__file__).with_name("doorkeeper.py"))


class ConsoleRecord(NamedTuple):
    """The content of `console.json`. `process`: None after `minikafka down`."""

    port: int
    token: str
    process: ProcessId | None

    @property
    def url(self) -> str:
        """The address of the page, with the token."""
        return url_of(self.port, self.token)


def read(directory: ClusterDirectory) -> ConsoleRecord | None:
    """Return the record of the console; None if there is none, or if it is damaged."""
    try:
        value = parse_json(_file(directory).read_bytes())
        process = value["process"]
        known = None if process is None else ProcessId(process["pid"], process["started"])
        return ConsoleRecord(int(value["port"]), str(value["token"]), known)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(directory: ClusterDirectory, record: ConsoleRecord) -> None:
    process = None if record.process is None else record.process._asdict()
    value = {"port": record.port, "token": record.token, "process": process}
    write_private(_file(directory), json.dumps(value) + "\n")


def _file(directory: ClusterDirectory) -> Path:
    return directory.path / "console.json"


def ensure(directory: ClusterDirectory, rng: Rng) -> str:
    """Start the console of a cluster if it does not run; return its URL. Raises ClusterError and OSError."""
    known = read(directory)
    if known is not None and is_alive(known.process):
        return known.url
    token = known.token if known is not None else rng.bytes(TOKEN_BYTES).hex()
    with _listening(known, rng) as listening:
        port = listening.getsockname()[1]
        record = ConsoleRecord(port, token, _spawn(directory, listening))
    _write(directory, record)
    return record.url


def _listening(known: ConsoleRecord | None, rng: Rng) -> socket.socket:
    """Return a socket that listens on the former port if that is free, else on another one."""
    if known is not None:
        try:
            return listen(known.port)
        except RequestRefused:
            pass
    return listen(free_ports(1, rng)[0])


def _spawn(directory: ClusterDirectory, listening: socket.socket) -> ProcessId:
    descriptor = listening.fileno()
    words = ["-I", "-S", _DOORKEEPER, str(descriptor), str(directory.path.resolve())]
    with directory.output("console").open("ab") as output:
        child = start_child(
            [sys.executable, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(descriptor,),
            env=own_environment(),
        )
    child.returncode = 0  # it outlives this command, so nobody waits for its end
    process = identify(child.pid)
    if process is None:
        raise ClusterError(f"the console ended at once: see {directory.output('console')}")
    return process


async def stop(directory: ClusterDirectory, clock: Clock) -> None:
    """End the console of a cluster, if it runs."""
    known = read(directory)
    if known is not None and known.process is not None:
        if is_alive(known.process):
            await end(known.process, clock)
        _write(directory, known._replace(process=None))


def become_doorkeeper(descriptor: int, data: str) -> None:
    """Replace this process by the doorkeeper, which keeps the socket and the pid."""
    os.set_inheritable(descriptor, True)
    words = ["-I", "-S", _DOORKEEPER, str(descriptor), data]
    os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - no shell is needed
