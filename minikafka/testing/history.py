"""What users' clients do, recorded in their process, and the verdict on it (docs/verdict.md)."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from minikafka.base.errors import MinikafkaError
from minikafka.checks.histories import Event, line_of
from minikafka.runtime.clock import SystemClock
from minikafka.testing import wrap_classes, wrap_confluent
from minikafka.testing.history_tape import Tape
from minikafka.tools.cluster.lifecycle import started_clusters
from minikafka.tools.verdict.cluster import Place, cluster_in, verdict_on
from minikafka.tools.verdict.judge import STUCK_SECONDS
from minikafka.tools.verdict.report import ClientVerdict, VerdictError

DIRECTORY: Final = "MINIKAFKA_HISTORY"
"""The environment variable that names the directory for files of histories."""
_POLL_SECONDS: Final = 0.02
_files: Final = itertools.count(1)

T = TypeVar("T")


def history(cluster: Any = None, *, file: str | Path | None = None) -> ClientHistory:
    """Return a history: `with minikafka.history() as h` records clients, `h.verdict()` judges what happened to them.

    `cluster`: a LocalCluster, the cluster of a `with` block, or host:port,… of brokers. Without it, the verdict asks
    the brokers to which the clients connect. `file`: where the history is written, too; the default is a new file in
    the directory that MINIKAFKA_HISTORY names, if it names one.
    """
    return ClientHistory(cluster, file)


class ClientHistory:
    """The recorded clients, and what they did. A history is entered once. Any thread may call the methods."""

    def __init__(self, cluster: Any, file: str | Path | None) -> None:
        self.events: list[Event] = []
        """The events so far, in the format of docs/isolation.md."""
        self._cluster = cluster
        self._file = _path_of(file)
        self._lock = threading.Lock()
        self._tapes: list[tuple[Tape, weakref.ref[Any]]] = []
        self._counts: dict[str, int] = {}
        self._output: Any = None
        self._is_open = False
        self._clock = SystemClock()
        self._wall_ms = self._clock.wall_ms() - self._clock.now()
        self._ended: float | None = None

    def __enter__(self) -> Self:
        if self._is_open or self._ended is not None:
            raise RuntimeError("a history is entered once: make a new one with minikafka.history()")
        if self._file is not None:
            self._output = self._file.open("a", encoding="utf-8", buffering=1)
        self._is_open = True
        _open(self)
        return self

    def __exit__(self, *error: object) -> None:
        _close(self)
        self._is_open = False
        self._note_gone()
        self._ended = self._now()
        for tape, _ in self._tapes:
            tape.stop()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self.__exit__(*error)

    @property
    def clients(self) -> list[str]:
        """The names of the recorded clients, in the order of their creation."""
        return [tape.name for tape, _ in self._tapes]

    def wrap(self, client: T) -> T:
        """Return the client, which is recorded from now on.

        A Producer or Consumer of confluent-kafka itself, which is a type in C, cannot be changed: use the returned
        object in its place. Raises TypeError for other objects than clients.
        """
        if not self._is_open:
            raise RuntimeError("the history is not open: call wrap() in its with block")
        kind = wrap_classes.kind_of(client)
        if kind is None:
            known = "confluent-kafka, aiokafka and kafka-python"
            text = f"{type(client).__name__} is no producer or consumer of {known}"
            raise TypeError(text)
        if self._tape_of(client) is not None:
            return client
        if not wrap_classes.is_recording(client):
            client = _recordable(client, kind)
        self.attach(client, {}, kind)
        return client

    def _tape_of(self, client: object) -> Tape | None:
        with self._lock:
            return next((tape for tape, ref in self._tapes if ref() is client), None)

    def attach(
        self, client: Any, conf: Mapping[str, Any], kind: wrap_classes.Kind | None = None
    ) -> None:
        """Record a client whose class can record."""
        kind = kind or wrap_classes.kind_of(client)
        assert kind is not None
        with self._lock:
            number = self._counts[kind.role] = self._counts.get(kind.role, 0) + 1
            prefix = "" if self._file is None else f"{self._file.stem}/"
            tape = Tape(f"{prefix}{kind.role}-{number}", self._emit, self._now)
            self._tapes.append((tape, weakref.ref(client)))
        kind.set_up(client, tape, conf)

    def _emit(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)
            if self._output is not None:
                self._output.write(line_of(event))

    def _now(self) -> float:
        """Return the Unix time. It never goes back, even if the clock of the machine is set."""
        return (self._wall_ms + self._clock.now()) / 1000

    def verdict(self, stuck_after: float = STUCK_SECONDS) -> ClientVerdict:
        """Compare what the clients did with the logs of the cluster, and return what they suffered.

        `stuck_after`: seconds without progress after which something counts as stuck. Sends without an outcome are
        waited for until then, unless an event loop runs in this thread. Raises VerdictError if the verdict cannot be
        made.
        """
        self._note_gone()
        if not self._tapes:
            raise VerdictError(
                "the history has recorded no client: create clients in its with block, or pass them to wrap()"
            )
        if asyncio._get_running_loop() is None:
            self._wait_for_sends(stuck_after)
        place = self._place()
        with self._lock:
            events = list(self.events)
        return verdict_on(events, place, stuck_after, self._ended or self._now())

    def assert_ok(self, stuck_after: float = STUCK_SECONDS) -> None:
        """Raise AssertionError with the verdict as text if it is bad, or cannot be made."""
        try:
            found = self.verdict(stuck_after)
        except MinikafkaError as error:
            raise AssertionError(f"there is no verdict on the clients: {error}") from error
        if not found.ok:
            lines = "\n  ".join(found.lines())
            raise AssertionError(f"the verdict on {len(self._tapes)} clients is bad:\n  {lines}")

    def _note_gone(self) -> None:
        """Record the end of the clients that do not exist any more."""
        for tape, ref in list(self._tapes):
            if ref() is None:
                tape.gone()

    def _wait_for_sends(self, seconds: float) -> None:
        deadline = self._now() + seconds
        while self._now() < deadline:
            if not any(tape.pending for tape, ref in list(self._tapes) if ref() is not None):
                return
            threading.Event().wait(_POLL_SECONDS)

    def _place(self) -> Place:
        """Return where the logs are. Raises VerdictError."""
        directory = getattr(self._cluster, "directory", None)
        if directory is not None:
            return cluster_in(directory.path)
        servers = getattr(self._cluster, "bootstrap", self._cluster)
        if servers:
            return _started(servers) or Place(servers)
        servers = self._servers()
        if (place := _started(servers)) is not None:
            return place
        if any(tape.is_secure for tape, _ in self._tapes):
            raise VerdictError(
                "the clients log in or encrypt: name the cluster, minikafka.history(cluster)"
            )
        return Place(servers)

    def _servers(self) -> str:
        for tape, ref in self._tapes:
            if tape.servers:
                return tape.servers
            client = ref()
            if client is not None and hasattr(client, "list_topics"):
                return wrap_confluent.servers_of(client)
        raise VerdictError("no client knows its brokers: name them, minikafka.history(cluster)")


def _path_of(file: str | Path | None) -> Path | None:
    if file is not None:
        return Path(file)
    directory = os.environ.get(DIRECTORY)
    return Path(directory) / f"python-{os.getpid()}-{next(_files)}.jsonl" if directory else None


def _recordable(client: Any, kind: wrap_classes.Kind) -> Any:
    """Return a client whose class can record: the same one, or a stand-in for a client in C."""
    base = kind.base
    assert base is not None
    if hasattr(client, "__dict__"):
        client.__class__ = wrap_classes.recording(type(client), kind)
        return client
    return wrap_confluent.stand_in(client, base, kind.recorded)


def _started(servers: str) -> Place | None:
    """Return the cluster of this process to which the servers belong, which has ledgers; None if there is none."""
    wanted = set(servers.split(","))
    for cluster in started_clusters():
        record = cluster.directory.read()
        if record is not None:
            own = {
                f"{item.host}:{item.port}" for broker in record.brokers for item in broker.clients
            }
            if wanted & own:
                return cluster_in(cluster.directory.path)
    return None


_opened: list[ClientHistory] = []
_opening: Final = threading.Lock()


def _attach(client: Any, conf: Mapping[str, Any]) -> None:
    """Record a new client in the history that was opened last."""
    if _opened:
        _opened[-1].attach(client, conf)


_changes: Final = wrap_classes.ClassChanges(_attach)


def _open(opened: ClientHistory) -> None:
    with _opening:
        if not _opened:
            _changes.install()
        _opened.append(opened)


def _close(closed: ClientHistory) -> None:
    with _opening:
        _opened.remove(closed)
        if not _opened:
            _changes.undo()
