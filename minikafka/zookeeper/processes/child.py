"""A ZooKeeper server as a child process: its start, its answers to four-letter commands, and its end.

`EmbeddedZooKeeper` is minikafka's own server, the command `minikafka zookeeper`; `apache.py` has Apache's.

Invariants: a restarted server has the same port and data directory, so clients see the same server. Signals are
sent only to the process that this object has started, identified by pid and start time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from minikafka.base.errors import MinikafkaError
from minikafka.base.ports import Clock
from minikafka.runtime.spawning import own_environment, start_child

logger = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
TICK_MS: Final = 500
"""Default tick time. The minimum session timeout is two ticks."""
SESSION_MAX_MS: Final = 60_000
"""Maximum session timeout that a server grants to brokers."""
START_TIMEOUT_MS: Final = 60_000
STOP_TIMEOUT_MS: Final = 10_000
"""Maximum time for the server to end after SIGTERM (it usually takes a third of a second)."""
POLL_MS: Final = 20
_ANSWER_MS: Final = 1_000
_STATE, _STARTED = 0, 19
"""Indexes of fields 3 and 22 of /proc/PID/stat (proc(5)) among the fields after the command name."""


class ServerFailed(MinikafkaError):
    """The server did not start, or ended unexpectedly. The message can contain the server's last output."""


class ServerProcess(ABC):
    """One ZooKeeper server on 127.0.0.1. Subclasses return the command that starts it.

    `data_dir`: the server's directory. Its subdirectory `data` has the data in Apache ZooKeeper's format, so servers of
    both kinds can serve the same data, one after the other. `attached`: if true, the kernel kills the server when this
    process ends; if false, the server runs on. `log`: the file for the server's output (default: `zookeeper.log` in
    `data_dir`).
    """

    expected_exits: ClassVar[frozenset[int]] = frozenset({0, -signal.SIGTERM, -signal.SIGKILL})
    """Exit codes of a server that was stopped or killed."""

    def __init__(
        self,
        data_dir: Path,
        port: int,
        *,
        clock: Clock,
        tick_time_ms: int = TICK_MS,
        attached: bool = True,
        log: Path | None = None,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.port = port
        self.pid = 0
        self._clock = clock
        self._tick_time_ms = tick_time_ms
        self._attached = attached
        self._log = log or self.data_dir / "zookeeper.log"
        self._started = 0

    @abstractmethod
    def command(self) -> list[str]:
        """Prepare the directory, and return the command that starts the server in it. Raises ConfigError, OSError."""

    def environment(self) -> Mapping[str, str]:
        """Return the environment of the server's process."""
        return os.environ

    @property
    def connect(self) -> str:
        """The server's address, host:port, for `zookeeper.connect`."""
        return f"{HOST}:{self.port}"

    async def start(self) -> int:
        """Start the server, wait until the server answers clients, and return the pid.

        Raises ConfigError, OSError, ServerFailed.
        """
        self.spawn()
        try:
            await self.wait_until_serving()
        except BaseException:
            self.signal(signal.SIGKILL)
            await self._wait_until_ended(STOP_TIMEOUT_MS)
            raise
        return self.pid

    def spawn(self) -> None:
        """Start the process of the server; do not wait until the server answers.

        Callers spawn all servers of an ensemble before they wait for one, because one server alone does not answer.
        Raises ConfigError, OSError, ServerFailed.
        """
        if not _is_free(self.port):
            raise ServerFailed(f"port {self.port} for ZooKeeper is in use by another process")
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = self.command()
        with self._log.open("ab") as output:
            child = start_child(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.data_dir,
                env=self.environment(),
                start_new_session=True,
            )
        # `is_running` reaps the process by pid. Without this line, Popen would warn about a running process.
        child.returncode = 0
        self.pid, self._started = child.pid, _start_time(child.pid)

    async def wait_until_serving(self, timeout_ms: int = START_TIMEOUT_MS) -> None:
        """Wait until the server answers clients. Raises ServerFailed.

        In an ensemble, a server answers clients only while there is a quorum.
        """
        deadline = self._clock.now() + timeout_ms
        while "mode" not in await self.status():
            if not self.is_running():
                raise ServerFailed(f"ZooKeeper ended during its start: {self._last_output()}")
            if self._clock.now() >= deadline:
                raise ServerFailed(
                    f"ZooKeeper does not serve clients after {timeout_ms} ms, see {self._log}"
                )
            await self._clock.sleep(POLL_MS)

    async def status(self) -> Mapping[str, str]:
        """Return the lines of the answer to `srvr` as a mapping; {} if the server serves no clients.

        A key is the text before the colon of a line, in lower case.
        """
        answer = await self.four_letter_word("srvr")
        if not answer.startswith("Zookeeper version"):
            return {}
        rows = (line.partition(":") for line in answer.splitlines())
        return {name.strip().lower(): value.strip() for name, _, value in rows}

    async def four_letter_word(self, word: str, timeout_ms: int = _ANSWER_MS) -> str:
        """Return the server's answer to a four-letter command such as `mntr`; "" if there is no answer."""
        try:
            return await four_letter_word(HOST, self.port, word, timeout_ms)
        except OSError:
            return ""

    def is_running(self) -> bool:
        """True if the server's process exists, running or paused. Reap the process if it has ended.

        A killed process counts as existing until it can be reaped. A zombie in /proc does not show that the process
        has ended, because its last threads, for example those of a JVM, may still hold the port.
        """
        try:
            reaped, status = os.waitpid(self.pid, os.WNOHANG) if self.pid else (0, 0)
        except ChildProcessError:  # another part of this process has reaped it
            return _start_time(self.pid) == self._started
        if reaped:
            self.pid = 0  # from now on, another process may get this pid
            if os.waitstatus_to_exitcode(status) not in self.expected_exits:
                logger.warning("ZooKeeper ended unexpectedly: %s", self._last_output())
        return self.pid != 0

    def signal(self, number: int) -> None:
        """Send a signal to the server; do nothing if the server has ended."""
        if self.is_running():
            os.kill(self.pid, number)

    async def stop(self) -> None:
        """Stop the server with SIGTERM, or with SIGKILL after STOP_TIMEOUT_MS; wait until the server has ended."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if not await self._wait_until_ended(STOP_TIMEOUT_MS):
            await self.kill()

    async def kill(self) -> None:
        """Kill the server with SIGKILL, and wait at most STOP_TIMEOUT_MS until it has ended. The data stays intact."""
        self.signal(signal.SIGKILL)
        await self._wait_until_ended(STOP_TIMEOUT_MS)

    async def _wait_until_ended(self, timeout_ms: int) -> bool:
        deadline = self._clock.now() + timeout_ms
        while self.is_running():
            if self._clock.now() >= deadline:
                return False
            await self._clock.sleep(POLL_MS)
        return True

    def _last_output(self) -> str:
        """Return the last line of the server's output, followed by the name of the log file."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return (
            f"{next((line for line in reversed(lines) if line.strip()), 'no output')} ({self._log})"
        )


async def four_letter_word(host: str, port: int, word: str, timeout_ms: int) -> str:
    """Return the answer of a ZooKeeper server to a four-letter command. Raises OSError (TimeoutError included)."""
    async with asyncio.timeout(timeout_ms / 1000):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(word.encode())
            return (await reader.read()).decode(errors="replace")
        finally:
            writer.close()


def _start_time(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot; -1 if the process is not running."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return -1
    fields = text.rpartition(")")[2].split()
    return -1 if fields[_STATE] in "ZX" else int(fields[_STARTED])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


class EmbeddedZooKeeper(ServerProcess):
    """One server of `minikafka zookeeper`. It needs no Java, and it has no replicas.

    `config`: a file with keys of encryption and authentication.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int,
        *,
        clock: Clock,
        tick_time_ms: int = TICK_MS,
        attached: bool = True,
        log: Path | None = None,
        config: Path | None = None,
    ) -> None:
        super().__init__(
            data_dir, port, clock=clock, tick_time_ms=tick_time_ms, attached=attached, log=log
        )
        self._config = config

    def command(self) -> list[str]:
        """Return the command that starts the server with this interpreter."""
        arguments = {
            "--data": str(self.data_dir / "data"),
            "--host": HOST,
            "--port": str(self.port),
            "--tick-time": str(self._tick_time_ms),
            "--max-session-timeout": str(SESSION_MAX_MS),
        }
        if self._config is not None:
            arguments["--config"] = str(self._config)
        if self._attached:
            arguments["--parent"] = str(os.getpid())
        words = [word for option in arguments.items() for word in option]
        return [sys.executable, "-m", "minikafka", "zookeeper", *words]

    def environment(self) -> Mapping[str, str]:
        """Return the environment in which Python finds this copy of minikafka."""
        return own_environment()
