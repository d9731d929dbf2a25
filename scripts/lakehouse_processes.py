"""The processes that lakehouse-deaths kills and restarts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Any

import store_processes
from spark_deaths_job import PROGRESS_SECONDS, SHORT_LIVED

CATALOG_SERVER = "org.apache.iceberg.rest.RESTCatalogServer"


class Program:
    """A program of this folder. `facts`: the JSON objects that it has printed since its first start, one per line."""

    def __init__(self, name: str, log: Path, *arguments: str) -> None:
        self._name = name
        self._command = [sys.executable, str(Path(__file__).with_name(name)), *arguments]
        self._log = log
        self._process: Process | None = None
        self._following: asyncio.Task[None] | None = None
        self._printed = asyncio.Condition()
        self.facts: list[dict[str, Any]] = []

    async def start(self) -> None:
        """Start the process."""
        path = (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))
        more = {"JAVA_TOOL_OPTIONS": SHORT_LIVED, "PYTHONPATH": os.pathsep.join(filter(None, path))}
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                env=os.environ | more,
                start_new_session=True,
            )
        self._following = asyncio.create_task(self._follow(self._process))

    async def _follow(self, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            async with self._printed:
                self.facts.append(json.loads(line))
                self._printed.notify_all()
        async with self._printed:
            self._printed.notify_all()

    async def wait_for(self, **wanted: object) -> None:
        """Wait for a new line that has these facts.

        Raises RuntimeError if the program ends, or prints no such line within PROGRESS_SECONDS.
        """
        assert self._following is not None
        start = len(self.facts)

        def is_printed() -> bool:
            return any(wanted.items() <= facts.items() for facts in self.facts[start:])

        try:
            async with asyncio.timeout(PROGRESS_SECONDS), self._printed:
                while not is_printed():
                    if self._following.done():
                        raise RuntimeError(f"{self._name} failed, see {self._log}")
                    await self._printed.wait()
        except TimeoutError:
            raise RuntimeError(f"{self._name} printed no {wanted}, see {self._log}") from None

    async def kill(self) -> None:
        """Kill the process and its Java process with SIGKILL."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def finish(self) -> None:
        """Tell the program to finish its work, and wait until the process ends."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        await self.wait_for(finished=True)
        await self._process.wait()


class RestCatalog:
    """The REST catalog of Iceberg's own tests. It keeps its state in a SQLite file, which survives a SIGKILL."""

    def __init__(self, jars: str, directory: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{port}"
        self._command = ["java", "-Xmx256m", "-cp", f"{jars}/*", CATALOG_SERVER]
        self._environment = {
            "CATALOG_URI": f"jdbc:sqlite:{directory}/rest.db",
            "CATALOG_WAREHOUSE": f"file://{directory}/warehouse",
            "CATALOG_REST_PORT": str(port),
        }
        self._log = directory / "catalog.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=os.environ | self._environment, stdout=log, stderr=log
            )
        store_processes.wait_for(f"{self.uri}/v1/config", self._process)

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
