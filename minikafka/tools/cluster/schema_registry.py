"""The Schema Registry of a cluster: one that runs elsewhere, or Karapace as a process of the cluster.

minikafka has no registry of its own, and does not install one. Karapace is started by its command `karapace`. It gets
its settings in a file, as its releases up to 5 read them, and in the environment, as later ones do.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.ports import Clock, Rng
from minikafka.runtime.spawning import dying_with, start_child
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.ports import free_ports
from minikafka.tools.cluster.processes import ProcessId, end, identify, is_alive

KARAPACE: Final = "karapace"
"""The value that stands for Karapace, and the name of its command."""
HOST: Final = "127.0.0.1"
START_MS: Final = 60_000
POLL_MS: Final = 20
_ANSWER_SECONDS: Final = 5
_LOG: Final = "schema-registry.log"
_TOPIC: Final = "_schemas"
"""The topic in which Karapace keeps all schemas."""
_REPLICAS_MAX: Final = 3
_LAST_LINES: Final = 3


class SchemaRegistry(ABC):
    """A registry that a cluster uses. `url`: its address, "" while it has none."""

    url: str = ""

    @abstractmethod
    async def prepare(self, bootstrap: str, brokers: int) -> None:
        """Create in the cluster what the registry needs before it starts. Raises ClusterError."""

    @abstractmethod
    async def start(self, bootstrap: str, brokers: int, directory: Path) -> None:
        """Return when the registry answers, and can store schemas. `directory`: for its files. Raises ClusterError."""

    @abstractmethod
    async def stop(self) -> None:
        """End the registry, if it is a process of this cluster."""


def registry_of(value: str | None, clock: Clock, rng: Rng) -> SchemaRegistry | None:
    """Return the registry that the argument `schema_registry` names. Raises ValueError."""
    if value is None:
        return None
    if value == KARAPACE:
        return _Karapace(clock, rng)
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        text = (
            f"schema_registry must be {KARAPACE!r}, or an address such as 'http://127.0.0.1:8081'"
        )
        raise ValueError(f"{text}, got {value!r}")
    return _Elsewhere(value, parts)


class _Elsewhere(SchemaRegistry):
    """A registry that others start and stop."""

    def __init__(self, url: str, parts: SplitResult) -> None:
        self.url = url.rstrip("/")
        self._parts = parts

    async def prepare(self, bootstrap: str, brokers: int) -> None:
        """Do nothing: the registry may belong to another cluster."""

    async def start(self, bootstrap: str, brokers: int, directory: Path) -> None:
        status, _ = await asyncio.to_thread(_get, self._parts, "/subjects")
        if status in (None, 404) or status >= 500:
            answer = "nothing" if status is None else f"HTTP {status}"
            raise ClusterError(f"no Schema Registry at {self.url}: it answers {answer}")

    async def stop(self) -> None:
        """Leave it running."""


class _Karapace(SchemaRegistry):
    """Karapace as a process, which ends with this one."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock = clock
        self._rng = rng
        self._process: ProcessId | None = None

    async def prepare(self, bootstrap: str, brokers: int) -> None:
        """Create the topic of the schemas, unless it exists.

        Karapace subscribes to the topic before it creates it, and its consumer then often never sees the topic.
        """
        # This import would delay every start of a command.
        from minikafka.client import Client, NewTopic

        config = {"cleanup.policy": "compact"}
        topic = NewTopic(_TOPIC, 1, min(brokers, _REPLICAS_MAX), config)
        try:
            async with Client(bootstrap) as client:
                outcomes = await client.admin.create_topics([topic])
        except KafkaError as error:
            raise ClusterError(f"the topic {_TOPIC} of Karapace: {error}") from error
        if outcomes[_TOPIC].code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ClusterError(f"the topic {_TOPIC} of Karapace: {outcomes[_TOPIC]}")

    async def start(self, bootstrap: str, brokers: int, directory: Path) -> None:
        """Start the process, unless it runs. Without a temporary directory, it keeps its port."""
        if is_alive(self._process):
            return
        command = shutil.which(KARAPACE)
        if command is None:
            hint = "install Karapace, or name the address of a registry"
            raise ClusterError(
                f"schema_registry={KARAPACE!r}: there is no command {KARAPACE}", hint
            )
        port = urlsplit(self.url).port or free_ports(1, self._rng)[0]
        self.url = f"http://{HOST}:{port}"
        settings = _settings(bootstrap, port, min(brokers, _REPLICAS_MAX))
        file = directory / "schema-registry.json"
        file.write_text(json.dumps(settings))
        log = directory / _LOG
        with log.open("ab") as output:
            child = start_child(
                dying_with(os.getpid(), [command, str(file)]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(settings),
                start_new_session=True,
            )
        child.returncode = 0  # the process is reaped by its pid
        self._process = identify(child.pid)
        try:
            await self._wait_until_ready(log)
        except BaseException:
            await self.stop()
            raise

    async def _wait_until_ready(self, log: Path) -> None:
        deadline = self._clock.now() + START_MS
        while not _is_ready(*await asyncio.to_thread(_get, urlsplit(self.url), "/_health")):
            if not is_alive(self._process):
                raise ClusterError(f"Karapace has ended: {_last_lines(log)}")
            if self._clock.now() >= deadline:
                text = f"Karapace is not ready after {START_MS / 1000:g} s"
                raise ClusterError(f"{text}: {_last_lines(log)}")
            await self._clock.sleep(POLL_MS)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await end(process, self._clock)


def _settings(bootstrap: str, port: int, replicas: int) -> dict[str, Any]:
    return {
        "bootstrap_uri": bootstrap,
        "host": HOST,
        "port": port,
        "advertised_hostname": HOST,
        "advertised_port": port,
        "replication_factor": replicas,
        "karapace_registry": True,
        "karapace_rest": False,
        "log_level": "WARNING",
    }


def _environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of the process, without PYTHONPATH: Karapace has packages of its own."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    texts = {name: json.dumps(value).strip('"') for name, value in settings.items()}
    return inherited | {
        f"KARAPACE_{name.removeprefix('karapace_').upper()}": text for name, text in texts.items()
    }


def _get(address: SplitResult, path: str) -> tuple[int | None, bytes]:
    """Return the status and the body of a response; None for the status without a response."""
    # This import would delay every start of a command.
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
    connection = kind(address.hostname or "", address.port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", address.path.rstrip("/") + path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, HTTPException):
        return None, b""
    finally:
        connection.close()


def _is_ready(status: int | None, body: bytes) -> bool:
    """True if Karapace has read its schemas and may write: releases from 5 on tell it in the object `status`."""
    if status != 200:
        return False
    try:
        found = json.loads(body)
    except ValueError:
        return False
    health = found.get("status") if isinstance(found.get("status"), dict) else found
    return bool(health.get("schema_registry_ready") and health.get("schema_registry_is_primary"))


def _last_lines(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").splitlines()
    return " | ".join(lines[-_LAST_LINES:]) or "no output"
