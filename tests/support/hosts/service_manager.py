"""A stand-in for `systemctl`, with what services of one program need: it starts and stops them by their unit files.

    service_manager.py start|stop|restart|enable|disable|daemon-reload [--now] [UNIT]

`start` returns when the process has said that it is ready (`Type=notify`), or at once. `stop` sends SIGTERM and waits.
A service that ends by itself is not started again. Each service writes to /run/NAME.log. A unit's `minikafka` is the
one in the PATH, and its `User` has no effect.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

UNITS = Path("/etc/systemd/system")
STATE = Path("/run")
SECONDS = 90.0


def main() -> None:
    """Do what the command line says."""
    action, *words = sys.argv[1:]
    names = [word.removesuffix(".service") for word in words if not word.startswith("-")]
    is_now = action in ("start", "stop", "restart") or "--now" in words
    for name in names if is_now else ():
        if action in ("stop", "restart", "disable"):
            stop(name)
        if action in ("start", "restart", "enable"):
            start(name)


def settings(name: str) -> dict[str, str]:
    """Return the settings of a unit file. The sections do not matter."""
    rows = (line.partition("=") for line in (UNITS / f"{name}.service").read_text().splitlines())
    return {key.strip(): value.strip() for key, sign, value in rows if sign and key[:1].isupper()}


def start(name: str) -> None:
    """Start a service, and wait until it is ready."""
    unit = settings(name)
    address = STATE / f"{name}.notify"
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(str(address))
        address.chmod(0o666)
        with (STATE / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command_of(unit["ExecStart"]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "NOTIFY_SOCKET": str(address)},
            )
        (STATE / f"{name}.pid").write_text(str(process.pid))
        if unit.get("Type") == "notify":
            wait_until_ready(name, process, ready)


def command_of(line: str) -> list[str]:
    program, *arguments = shlex.split(line)
    return [program if Path(program).name != "minikafka" else "minikafka", *arguments]


def wait_until_ready(name: str, process: subprocess.Popen[bytes], ready: socket.socket) -> None:
    """Wait for the message READY=1. Exit with the log if the process ends before."""
    ready.settimeout(0.1)
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if b"READY=1" in ready.recv(4096).split(b"\n"):
                return
        except TimeoutError:
            continue
    sys.exit(f"{name} has not started:\n{(STATE / f'{name}.log').read_text()}")


def stop(name: str) -> None:
    """Send SIGTERM to a service, and wait for its end."""
    file = STATE / f"{name}.pid"
    if not file.exists():
        return
    pid = int(file.read_text())
    try:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + SECONDS
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
    except ProcessLookupError:
        pass
    file.unlink()


if __name__ == "__main__":
    main()
