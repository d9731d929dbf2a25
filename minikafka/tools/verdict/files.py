"""The files of histories, and the verdict on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from minikafka.base.errors import MinikafkaError
from minikafka.checks.histories import CLOSED, OK, UNKNOWN, Event, parse
from minikafka.tools.verdict.directories import read_logs
from minikafka.tools.verdict.judge import judge, topics_of
from minikafka.tools.verdict.logs import ReadLogs
from minikafka.tools.verdict.report import ClientVerdict, VerdictError

_SUFFIX: Final = ".jsonl"


def files_in(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files, and those in directories whose name ends in .jsonl."""
    found: list[Path] = []
    for path in map(Path, paths):
        found += sorted(path.glob(f"*{_SUFFIX}")) if path.is_dir() else [path]
    return found


def events_of(paths: Iterable[str | Path]) -> Iterator[Event]:
    """Yield the events of all histories. Raises HistoryError, OSError."""
    for path in paths:
        with Path(path).open(encoding="utf-8", errors="surrogateescape") as file:
            yield from parse(file, str(path))


def read_events(paths: Iterable[str | Path]) -> list[Event]:
    """Return the events of all histories. Raises VerdictError if there are none, or if one is invalid."""
    given = list(paths)
    try:
        events = list(events_of(files_in(given)))
    except MinikafkaError as error:
        raise VerdictError(str(error)) from error
    except OSError as error:
        raise VerdictError(f"{error.filename}: {error.strerror}") from error
    if not events:
        names = ", ".join(map(str, given))
        raise VerdictError(f"there is no event of a client in {names}")
    return events


def ended(events: Iterable[Event], *, was_killed: bool) -> list[Event]:
    """Return the events, and an end for each client without one, because its program has ended or was killed."""
    outcome = UNKNOWN if was_killed else OK
    made = list(events)
    open_clients = {event.client: event for event in made}
    for event in made:
        if event.kind == CLOSED:
            open_clients.pop(event.client, None)
    last = max((event.time for event in made if event.time is not None), default=None)
    numbers: dict[str, int] = {}
    for event in made:
        numbers[event.client] = max(event.number, numbers.get(event.client, 0))
    ends = (
        Event(client, numbers[client] + 1, CLOSED, outcome, time=last) for client in open_clients
    )
    return [*made, *ends]


def verdict_on_files(events: list[Event], directory: Path, seconds: float) -> ClientVerdict:
    """Return the verdict on histories with the logs in the directories of brokers that are down.

    Raises VerdictError if the logs cannot be read.
    """
    topics = topics_of(events)
    try:
        replicas = read_logs([str(directory)], sorted(topics))
    except (MinikafkaError, OSError) as error:
        raise VerdictError(str(error)) from error
    missing = topics - {tp.topic for tp in replicas}
    return judge(events, ReadLogs(replicas, missing=missing), seconds)
