"""A standalone Spark cluster of the installed pyspark, on free ports: of 127.0.0.1, or with a host for each worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import NamedTuple

import pyspark

from minikafka.spark.session import java_home

SPARK_HOME = Path(pyspark.__file__).parent
CLASSES = "org.apache.spark.deploy"
TIED = """
import os, sys
from minikafka.runtime.spawning import die_with
die_with(os.getppid())
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""A Python program that executes another program, which the kernel kills when the parent process ends."""
START_SECONDS = 180
END_SECONDS = 10


class Host(NamedTuple):
    """Where a process of the cluster runs. `enter`: the command that runs another command there."""

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


HERE = Host()


class Daemon:
    """One process of the Spark cluster. `memory`: its memory limit. Its output is written to a log file."""

    def __init__(
        self,
        directory: Path,
        name: str,
        arguments: list[str],
        memory: str = "256m",
        host: Host = HERE,
    ) -> None:
        self.lines: Queue[str] = Queue()
        self._log = directory / f"{name}.log"
        tied = [sys.executable, "-c", TIED]
        self.process = subprocess.Popen(
            [*tied, *host.enter, str(SPARK_HOME / "bin" / "spark-class"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | environment(host.address) | {"SPARK_DAEMON_MEMORY": memory},
            cwd=directory,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self._log.open("w") as log, self.process.stdout as output:
            for line in output:
                log.write(line)
                log.flush()
                self.lines.put(line)
        self.lines.put("")

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until a line of the process's output matches `pattern`, and return the match.

        Raises RuntimeError if the process ends first, or prints nothing for `START_SECONDS`.
        """
        with suppress(Empty):
            while line := self.lines.get(timeout=START_SECONDS):
                if found := re.search(pattern, line):
                    return found
        raise RuntimeError(f"no {pattern!r} in {self._log}: {self._log.read_text()[-2000:]}")

    def end(self) -> None:
        """Terminate the process. Kill the process if it does not end in time."""
        self.process.terminate()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()


class StandaloneSpark:
    """A context manager for a master and workers. `master`: the master's URL. `cores`: those of a worker.

    `at`: the host of the master. `hosts`: those of the workers; None for `workers` workers on the master's host.
    """

    def __init__(
        self,
        directory: Path,
        workers: int = 2,
        cores: int = 1,
        at: Host = HERE,
        hosts: Sequence[Host] | None = None,
    ) -> None:
        self.directory = directory
        self.master = ""
        self._at = at
        self._hosts = [at] * workers if hosts is None else hosts
        self._cores = cores
        self._daemons: list[Daemon] = []

    def __enter__(self) -> StandaloneSpark:
        size = ["--cores", str(self._cores), "--memory", "1g"]
        try:
            master = self._start("master", self._at, "master.Master")
            self.master = master.wait_for(r"Starting Spark master at (\S+)")[1]
            started = [
                self._start(f"worker-{number}", host, "worker.Worker", *size, self.master)
                for number, host in enumerate(self._hosts)
            ]
            for worker in started:
                worker.wait_for("Successfully registered with master")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        while self._daemons:
            self._daemons.pop().end()

    def _start(self, name: str, host: Host, program: str, *arguments: str) -> Daemon:
        directory = self.directory / name
        directory.mkdir(parents=True)
        ports = ["--host", host.address, "--port", "0", "--webui-port", "0"]
        if name != "master":
            ports += ["--work-dir", str(directory / "work")]
        command = [f"{CLASSES}.{program}", *ports, *arguments]
        self._daemons.append(Daemon(directory, name, command, host=host))
        return self._daemons[-1]

    def executors(self) -> list[int]:
        """Return the process ids of the running executors."""
        files = Path("/proc").glob("[0-9]*/cmdline")
        return [int(file.parent.name) for file in files if self._is_executor(file)]

    def _is_executor(self, cmdline: Path) -> bool:
        with suppress(OSError):
            directory = (cmdline.parent / "cwd").readlink()
            if directory.is_relative_to(self.directory):
                return "CoarseGrainedExecutorBackend" in cmdline.read_text()
        return False


def environment(address: str = HERE.address) -> dict[str, str]:
    """Return environment variables that select Java, this Python, its pyspark and an address for Spark."""
    small = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return {
        "JAVA_HOME": str(java_home()),
        "MINIKAFKA_INSTALLED_PYSPARK": "1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": address,
        "SPARK_LAUNCHER_OPTS": small,
        "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_DAEMON_JAVA_OPTS", small),
    }
