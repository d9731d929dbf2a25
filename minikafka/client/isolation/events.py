"""The history of a transactional client: one JSON object per line and event (docs/isolation.md).

An operation has an event `invoked` before it, and an event with its outcome after it. Invariant: an operation without
an outcome is unknown, because its client may have been killed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

from minikafka.base.errors import MinikafkaError
from minikafka.base.names import parse_json

BEGIN: Final = "begin"
WRITE: Final = "write"
OFFSETS: Final = "offsets"
COMMIT: Final = "commit"
ABORT: Final = "abort"
READ: Final = "read"
SEEK: Final = "seek"
REACHED: Final = "reached"
KINDS: Final = (BEGIN, WRITE, OFFSETS, COMMIT, ABORT, READ, SEEK, REACHED)
INVOKED: Final = "invoked"
OK: Final = "ok"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
OUTCOMES: Final = (INVOKED, OK, FAILED, UNKNOWN)

_IN_TRANSACTION: Final = (BEGIN, OFFSETS, COMMIT, ABORT)
_IN_PARTITION: Final = (OFFSETS, READ, SEEK, REACHED)
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "client": (str,),
    "number": (int,),
    "event": (str,),
    "outcome": (str,),
    "transaction": (int,),
    "transactional_id": (str,),
    "topic": (str,),
    "partition": (int,),
    "offset": (int,),
    "value": (str,),
    "value_sha256": (str,),
    "group": (str,),
    "time": (int, float),
}
_REQUIRED: Final = ("client", "number", "event", "outcome")
_SHOWN_MAX: Final = 120


class HistoryError(MinikafkaError):
    """A line of a history is invalid."""


class Event(NamedTuple):
    """One line of a history. `number`: the number of the operation within its client."""

    client: str
    number: int
    kind: str
    outcome: str
    transaction: int | None = None
    transactional_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    digest: bytes = b""
    """The SHA-256 of the value, b"" for the value null."""
    group: str | None = None
    time: float | None = None
    """Seconds on a clock that all clients share; None if the history has no times."""


def digest_of(value: bytes | None) -> bytes:
    """Return the identity of a value in histories and logs."""
    return b"" if value is None else sha256(value).digest()


def parse(lines: Iterable[str], name: str = "history") -> Iterator[Event]:
    """Yield the events of a history. Raises HistoryError with the line's number.

    A last line without a line break is ignored: its writer was killed, and the operation counts as unknown.
    """
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            return
        try:
            yield event_of(parse_json(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            shown = line.strip()[:_SHOWN_MAX]
            raise HistoryError(f"{name}, line {number}: {shown}: {error}") from error


def event_of(row: dict[str, Any]) -> Event:
    """Return the event of a JSON object. Raises ValueError or KeyError if it is invalid."""
    _check_types(row)
    event = Event(
        row["client"],
        row["number"],
        row["event"],
        row["outcome"],
        row.get("transaction"),
        row.get("transactional_id"),
        row.get("topic"),
        row.get("partition"),
        row.get("offset"),
        _digest(row),
        row.get("group"),
        row.get("time"),
    )
    _check(event)
    return event


def _check_types(row: dict[str, Any]) -> None:
    for name in _REQUIRED:
        if row.get(name) is None:
            raise ValueError(f"it has no {name}")
    for name, types in _TYPES.items():
        value = row.get(name)
        if value is not None and (not isinstance(value, types) or isinstance(value, bool)):
            raise ValueError(f"{name} is {value!r}, it must be of type {types[0].__name__}")


def _digest(row: dict[str, Any]) -> bytes:
    if (given := row.get("value_sha256")) is None:
        value = row.get("value")
        return digest_of(None if value is None else value.encode())
    digest = bytes.fromhex(given)
    if len(digest) != sha256().digest_size:
        raise ValueError(f"value_sha256 {given!r} is not 64 hexadecimal digits")
    return digest


def _check(event: Event) -> None:
    if event.kind not in KINDS:
        raise ValueError(f"event {event.kind!r} must be one of {', '.join(KINDS)}")
    if event.outcome not in OUTCOMES:
        raise ValueError(f"outcome {event.outcome!r} must be one of {', '.join(OUTCOMES)}")
    if event.kind in _IN_TRANSACTION and event.transaction is None:
        raise ValueError(f"event {event.kind} needs a transaction")
    if event.kind in (WRITE, *_IN_PARTITION) and event.topic is None:
        raise ValueError(f"event {event.kind} needs a topic")
    if event.kind in _IN_PARTITION and (event.partition is None or event.offset is None):
        raise ValueError(f"event {event.kind} needs a partition and an offset")
    if event.kind == OFFSETS and event.group is None:
        raise ValueError("event offsets needs a group")
    if event.kind == WRITE and event.partition is None and (event.offset or 0) > 0:
        raise ValueError("a write with an offset needs a partition")
