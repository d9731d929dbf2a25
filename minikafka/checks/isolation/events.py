"""The history of a transactional client: one JSON object per line and event (docs/isolation.md).

An operation has an event `invoked` before it, and an event with its outcome after it. Invariant: an operation without
an outcome is unknown, because its client may have been killed meanwhile. A `Recorder` writes each line at once, so
that the history survives the death of the client's process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
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


class Recorder:
    """The history of one instance of a client. A restarted client needs a new name.

    `write` gets each line, and must have passed it to the operating system when it returns. `now` returns seconds on
    a clock that all clients share. Each operation has a method that must be called before the operation. It
    returns the operation's number, the argument of `ended`. The methods must not be called concurrently.
    """

    def __init__(
        self,
        client: str,
        transactional_id: str | None,
        write: Callable[[str], object],
        now: Callable[[], float],
    ) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._write = write
        self._now = now
        self._number = -1
        self._invoked: dict[int, dict[str, Any]] = {}
        self._transactions = 0
        self._transaction: int | None = None

    def begin(self) -> int:
        """Record the begin of a transaction; later writes, offsets and reads belong to it until its end."""
        self._transactions += 1
        self._transaction = self._transactions
        return self._invoke(BEGIN, transactional_id=self._transactional_id)

    def write(self, topic: str, value: bytes | None, partition: int | None = None) -> int:
        """Record a write of a record with this value."""
        hashed = {} if value is None else {"value_sha256": digest_of(value).hex()}
        return self._invoke(WRITE, topic=topic, partition=partition, **hashed)

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> int:
        """Record the commit of a group's offset as part of the transaction."""
        facts = {"group": group, "topic": topic, "partition": partition, "offset": offset}
        return self._invoke(OFFSETS, **facts)

    def commit(self) -> int:
        """Record the commit of the transaction."""
        return self._invoke(COMMIT)

    def abort(self) -> int:
        """Record the abort of the transaction."""
        return self._invoke(ABORT)

    def ended(self, number: int, outcome: str = OK, **facts: Any) -> None:
        """Record the outcome of an operation. `facts`: the partition and offset of a write."""
        invoked = self._invoked.pop(number)
        self._line(number, outcome, invoked | facts)
        if outcome == OK and invoked["event"] in (COMMIT, ABORT):
            self._transaction = None

    def read(self, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        """Record that the client received a record."""
        hashed = {} if value is None else {"value_sha256": digest_of(value).hex()}
        self._event(READ, topic=topic, partition=partition, offset=offset, **hashed)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Record that the client begins to read a partition at this offset."""
        self._event(SEEK, topic=topic, partition=partition, offset=offset)

    def reached(self, topic: str, partition: int, offset: int) -> None:
        """Record that the client has received everything visible below this offset."""
        self._event(REACHED, topic=topic, partition=partition, offset=offset)

    def _invoke(self, kind: str, **facts: Any) -> int:
        self._number += 1
        row = {"event": kind, "transaction": self._transaction, **facts}
        self._invoked[self._number] = row
        self._line(self._number, INVOKED, row)
        return self._number

    def _event(self, kind: str, **facts: Any) -> None:
        self._number += 1
        self._line(self._number, OK, {"event": kind, "transaction": self._transaction} | facts)

    def _line(self, number: int, outcome: str, facts: dict[str, Any]) -> None:
        row = {"client": self._client, "number": number, **facts, "outcome": outcome}
        row["time"] = round(self._now(), 6)
        given = {name: value for name, value in row.items() if value is not None}
        self._write(json.dumps(given, separators=(",", ":")) + "\n")
