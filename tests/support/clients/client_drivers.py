"""The clients of the matrix: each is a program in tests/clients/drivers that carries out one verb and prints JSON.

    produce BOOTSTRAP TOPIC CODEC FIRST COUNT    send records FIRST, FIRST + 1, … as key number % 7, value number
    stream BOOTSTRAP TOPIC                       send 0, 1, … until standard input ends: {"acked": 5} for each
    consume BOOTSTRAP TOPIC GROUP ASSIGNOR INSTANCE [ISOLATION]
                                                 {"assigned": [0, 1]}, {"revoked": [0]}, {"value": 5, "partition": 0,
                                                 "offset": 3}, commits each batch, closes when standard input ends
    transact BOOTSTRAP TOPIC ID FIRST COUNT ENDS for each of the ENDS, such as commit,abort,hold: send the next COUNT
                                                 records in a transaction, and end it: {"ended": "commit"}, or
                                                 {"fenced": "the error"}. hold: {"open": true}, and commit when
                                                 standard input ends
    copy BOOTSTRAP SOURCE TARGET GROUP ID        copy committed records, each batch in a transaction with its offsets:
                                                 {"copied": [5, 6]}, or {"refused": "the error"} after an abort
    attempt BOOTSTRAP TOPIC                      send one record: {"acked": 0}, or
                                                 {"error": "class", "code": 58, "text": "…"}
    rights BOOTSTRAP TOPIC                       administrate ACLs, and SCRAM credentials, quotas and authorized
                                                 operations if the library can: see java/Security.java
    token BOOTSTRAP                              (Java only) create a delegation token: {"id": "…", "hmac": "…"}
    time BOOTSTRAP TOPIC PARTITIONS TIMESTAMP    {"offsets": {"0": 12}}, -1 where no record is that late
    admin BOOTSTRAP TOPIC PARTITIONS             create, describe, delete: {"partitions": 4}

A program ends with an exit code other than 0 and its reason on standard error when something fails.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

DRIVERS: Final = Path(__file__).resolve().parents[2] / "clients" / "drivers"
NPM: Final = (
    "npm",
    "install",
    "--silent",
    "--no-audit",
    "--no-fund",
    "--prefer-offline",
    "--fetch-retries=1",
)
"""The command that installs the packages of a driver for Node.js, in a few seconds also without a network."""
SECONDS: Final = 60
ALL_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class MatrixClient(NamedTuple):
    """A client library of the matrix. `build(folder)` returns the command of its driver program, or skips the test."""

    name: str
    version: str
    build: Callable[[Path], list[str]]
    codecs: tuple[str, ...] = ALL_CODECS
    is_cooperative: bool = True
    """The library has a cooperative assignor."""
    is_static: bool = True
    """The library supports `group.instance.id`."""
    has_group_metadata: bool = True
    """The library sends the generation of its group with the offsets of a transaction (KIP-447)."""


class Running:
    """A running driver program. Its output lines are collected in `facts`; `until` waits for them."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.facts: list[dict[str, Any]] = []
        self._changed = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            async with self._changed:
                self.facts.append(json.loads(line))
                self._changed.notify_all()
        async with self._changed:
            self._changed.notify_all()

    @property
    def values(self) -> list[int]:
        """The values of the records read so far."""
        return [fact["value"] for fact in self.facts if "value" in fact]

    @property
    def copied(self) -> list[int]:
        """The values of the records copied so far."""
        return [value for fact in self.facts for value in fact.get("copied", ())]

    @property
    def acked(self) -> list[int]:
        """The values of the records acknowledged so far."""
        return [fact["acked"] for fact in self.facts if "acked" in fact]

    def changes(self) -> list[dict[str, Any]]:
        """Return the changes of the partition assignment so far, in order."""
        return [fact for fact in self.facts if "assigned" in fact or "revoked" in fact]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition is true. Raises AssertionError if the program ends first, or on timeout."""
        try:
            async with asyncio.timeout(SECONDS), self._changed:
                await self._changed.wait_for(lambda: condition() or self._reading.done())
        except TimeoutError:
            raise AssertionError(f"the last lines were {self.facts[-5:]}") from None
        assert condition(), await self._complaint()

    async def _complaint(self) -> str:
        assert self._process.stderr is not None
        return (await self._process.stderr.read()).decode()[-4000:]

    async def stop(self) -> None:
        """Close the program's standard input, and wait until the program has closed its client and ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            self._process.stdin.close()
        async with asyncio.timeout(SECONDS):
            code = await self._process.wait()
        await self._reading
        assert code == 0, await self._complaint()

    async def kill(self) -> None:
        """Kill the program."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading


class Driver:
    """The program of one client library. Each start runs the program with one verb, such as `produce`."""

    def __init__(self, command: list[str], bootstrap: str, login: Path | None = None) -> None:
        """`login`: the files of a login, as `Login.write` returns them; None for PLAINTEXT."""
        self._command = command
        self._bootstrap = bootstrap
        self._environment = {**os.environ, **({"MATRIX_LOGIN": str(login)} if login else {})}
        self._started: list[Running] = []

    async def start(self, verb: str, *arguments: object) -> Running:
        """Start the program with a verb that runs until `stop` or `kill`."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            verb,
            self._bootstrap,
            *map(str, arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=1 << 20,
            env=self._environment,
        )
        running = Running(process)
        self._started.append(running)
        return running

    async def run(self, verb: str, *arguments: object) -> list[dict[str, Any]]:
        """Run one verb (command) of the program to its end; return the output lines, decoded from JSON."""
        running = await self.start(verb, *arguments)
        await running.stop()
        return running.facts

    async def close(self) -> None:
        """Kill all programs of this driver that still run."""
        for running in self._started:
            await running.kill()


def _python(library: str) -> Callable[[Path], list[str]]:
    return lambda _: [sys.executable, str(DRIVERS / "python_clients.py"), library]


def _kafkajs(folder: Path) -> list[str]:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    shutil.copytree(DRIVERS / "kafkajs", folder, dirs_exist_ok=True)
    build(list(NPM), folder)
    return ["node", str(folder / "driver.js")]


def _franz_go(folder: Path) -> list[str]:
    return go_driver("franz_go", folder)


def go_driver(name: str, folder: Path) -> list[str]:
    """Build a driver in Go, without C code, whose compilation takes a tenth of the time; return its command."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    shutil.copytree(DRIVERS / name, folder, dirs_exist_ok=True)
    # One build at a time: the next one finds the compiled packages in Go's cache.
    with (DRIVERS / name / "go.mod").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build(
            ["env", "CGO_ENABLED=0", "go", "build", "-gcflags=all=-N -l", "-o", "driver", "."],
            folder,
        )
    return [str(folder / "driver")]


def _java(folder: Path) -> list[str]:
    jars = os.environ.get("MINIKAFKA_KAFKA_JARS")
    if not jars:
        pytest.skip("MINIKAFKA_KAFKA_JARS does not name a folder with Apache Kafka's jars")
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed")
    return java_driver(folder, jars)


def java_driver(folder: Path, jars: str) -> list[str]:
    """Compile the driver of Kafka's own client with the jars of a directory; return its command."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = [str(DRIVERS / "java" / name) for name in ("Driver.java", "Security.java")]
    build(["javac", "-cp", f"{jars}/*", "-d", str(folder), *sources], folder)
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    return ["java", *options, "-cp", f"{folder}:{jars}/*", "Driver"]


def build(command: list[str], folder: Path) -> None:
    """Run a command that builds a driver; skip the test if the command fails."""
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"{' '.join(command)} failed: {built.stderr.strip()[-300:]}")


CLIENTS: Final = (
    MatrixClient("confluent-kafka", "2.16.1", _python("confluent-kafka")),
    MatrixClient(
        "aiokafka",
        "0.14.0",
        _python("aiokafka"),
        is_cooperative=False,
        has_group_metadata=False,
    ),
    MatrixClient("kafka-python", "3.0.12", _python("kafka-python"), is_cooperative=False),
    MatrixClient(
        "kafkajs",
        "2.2.4",
        _kafkajs,
        codecs=("none", "gzip", "snappy"),
        is_cooperative=False,
        is_static=False,
        has_group_metadata=False,
    ),
    MatrixClient("franz-go", "1.18.1", _franz_go),
    MatrixClient("java", "3.9.1", _java),
)
"""All clients of the matrix. kafkajs 2.2 has no built-in lz4 or zstd, no static members, no cooperative assignor."""
