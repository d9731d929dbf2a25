"""The history of a client: one JSON object per line and event (docs/isolation.md).

An operation has an event `invoked` before it, and an event with its outcome after it. Invariant: an operation without
an outcome is unknown, because its client may have been killed meanwhile. A `Recorder` writes each line at once, so
that the history survives the death of the client's process.

A plain line has no event: it is a write of a client without transactions, or a read (docs/pipelines.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
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
ASSIGNED: Final = "assigned"
CLOSED: Final = "closed"
INVOKED: Final = "invoked"
OK: Final = "ok"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
OUTCOMES: Final = (INVOKED, OK, FAILED, UNKNOWN)

ABORTED: Final = "aborted"
"""The outcome of a plain write whose transaction was aborted."""
PLAIN: Final = {"producer": ("sequence", WRITE), "consumer": ("position", READ)}
"""The fields of plain lines that hold the name of the client and the number, and the event that such a line means."""
EVENT_FIELDS: Final = ("client", "number", "event")
"""A line with all of these fields is no plain line."""
_PLACE: Final = ("topic", "partition", "offset")
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    BEGIN: ("transaction",),
    WRITE: ("topic",),
    OFFSETS: (*_PLACE, "group"),
    COMMIT: ("transaction",),
    ABORT: ("transaction",),
    READ: _PLACE,
    SEEK: _PLACE,
    REACHED: _PLACE,
    ASSIGNED: ("topic",),
    CLOSED: (),
}
"""The fields that each kind of event must have."""
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "client": (str,),
    "number": (int,),
    "returned": (int,),
    "event": (str,),
    "outcome": (str,),
    "transaction": (int,),
    "transactional_id": (str,),
    "topic": (str,),
    "partition": (int,),
    "offset": (int,),
    "value": (str,),
    "value_sha256": (str,),
    "is_opaque": (bool,),
    "key": (str,),
    "group": (str,),
    "time": (int, float),
}
_REQUIRED: Final = ("client", "number", "event", "outcome")
_SHOWN_MAX: Final = 120
_TEXT_BYTES_MAX: Final = 200
"""A longer value is written as its SHA-256."""

OPAQUE: Final = b"opaque"
"""The digest of a value that the client does not know as bytes, because its library had converted the value."""


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
    """The SHA-256 of the value, b"" for the value null, OPAQUE for a value that is not known."""
    group: str | None = None
    time: float | None = None
    """Seconds on a clock that all clients share; None if the history has no times."""
    value: str | None = None
    """The value as text, if the history has it."""
    key: str | None = None
    """The key as text (`shown_key`); None also if the history has no keys."""
    returned: int | None = None
    """The number of the client's next operation when the call of this write returned; None if no other began before."""


def digest_of(value: bytes | None) -> bytes:
    """Return the identity of a value in histories and logs."""
    return b"" if value is None else sha256(value).digest()


def text_of(value: bytes | None) -> str | None:
    """Return a short value as text; None for a value that is long, null or not UTF-8."""
    if value is None or len(value) > _TEXT_BYTES_MAX:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def shown_key(key: bytes | None) -> str | None:
    """Return a key as text, with escapes for bytes that are not UTF-8."""
    return None if key is None else key.decode(errors="backslashreplace")


def parse(lines: Iterable[str], name: str = "history") -> Iterator[Event]:
    """Yield the events of a history. Raises HistoryError with the line's number.

    A last line without a line break is ignored: its writer was killed, and the operation counts as unknown. After plain
    lines it is not ignored, because a plain write has no other line.
    """
    is_plain = False
    for number, line in enumerate(lines, 1):
        if not line.strip() or not (is_plain or line.endswith("\n")):
            continue
        try:
            row = parse_json(line)
            is_plain = _is_plain(row)
            yield event_of(_with_event(row) if is_plain else row)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            shown = line.strip()[:_SHOWN_MAX]
            raise HistoryError(f"{name}, line {number}: {shown}: {error}") from error


def _is_plain(row: Mapping[str, Any]) -> bool:
    is_event = all(name in row for name in EVENT_FIELDS)
    return not is_event and any(name in row for name in PLAIN)


def _with_event(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of the event that a plain line means.

    A write of an aborted transaction becomes a transaction of its own, which never ends.
    """
    named = next(name for name in PLAIN if name in row)
    number, kind = PLAIN[named]
    made = {**row, "client": row[named], "number": row.get(number), "event": kind}
    made["transaction"] = None
    if kind == READ:
        made["outcome"] = OK
    elif row.get("outcome") == ABORTED:
        made |= {"outcome": UNKNOWN, "transaction": made["number"]}
    return made


def event_of(row: Mapping[str, Any]) -> Event:
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
        row.get("value"),
        row.get("key"),
        row.get("returned"),
    )
    _check(event)
    return event


def row_of(event: Event) -> dict[str, Any]:
    """Return the JSON object of an event. Fields without a value are left out."""
    row = event._asdict()
    row["event"] = row.pop("kind")
    digest = row.pop("digest")
    row["is_opaque"] = True if digest == OPAQUE else None
    is_hashed = event.value is None and digest != OPAQUE
    row["value_sha256"] = digest.hex() or None if is_hashed else None
    return {name: row[name] for name in _TYPES if row.get(name) is not None}


def line_of(event: Event) -> str:
    """Return the line of an event in a history."""
    return json.dumps(row_of(event), separators=(",", ":")) + "\n"


def _check_types(row: Mapping[str, Any]) -> None:
    for name in _REQUIRED:
        if row.get(name) is None:
            raise ValueError(f"it has no {name}")
    for name, types in _TYPES.items():
        value = row.get(name)
        is_wrong = not isinstance(value, types) or (isinstance(value, bool) and bool not in types)
        if value is not None and is_wrong:
            raise ValueError(f"{name} is {value!r}, it must be of type {types[0].__name__}")


def _digest(row: Mapping[str, Any]) -> bytes:
    if row.get("is_opaque"):
        return OPAQUE
    if (given := row.get("value_sha256")) is None:
        value = row.get("value")
        return digest_of(None if value is None else value.encode())
    digest = bytes.fromhex(given)
    if len(digest) != sha256().digest_size:
        raise ValueError(f"value_sha256 {given!r} is not 64 hexadecimal digits")
    return digest


def _check(event: Event) -> None:
    if event.kind not in NEEDS:
        raise ValueError(f"event {event.kind!r} must be one of {', '.join(NEEDS)}")
    if event.outcome not in OUTCOMES:
        raise ValueError(f"outcome {event.outcome!r} must be one of {', '.join(OUTCOMES)}")
    missing = [name for name in NEEDS[event.kind] if getattr(event, name) is None]
    if missing:
        needed = " and ".join(f"a{'n' * name.startswith('o')} {name}" for name in missing)
        raise ValueError(f"event {event.kind} needs {needed}")
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
        self._invoked: dict[int, Event] = {}
        self._transactions = 0
        self._transaction: int | None = None

    @property
    def pending(self) -> int:
        """The number of operations without an outcome."""
        return len(self._invoked)

    def begin(self) -> int:
        """Record the begin of a transaction; later writes, offsets and reads belong to it until its end."""
        self._transactions += 1
        self._transaction = self._transactions
        return self._invoke(BEGIN, transactional_id=self._transactional_id)

    def write(
        self,
        topic: str,
        value: bytes | None,
        partition: int | None = None,
        key: bytes | None = None,
        *,
        is_opaque: bool = False,
    ) -> int:
        """Record a write of a record with this value. `is_opaque`: its bytes are not known yet."""
        place = {"topic": topic, "partition": partition}
        return self._invoke(WRITE, **place, **_content(value, key, is_opaque=is_opaque))

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> int:
        """Record the commit of a group's offset, which is part of the transaction if one is open."""
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
        self._record(invoked._replace(outcome=outcome, **facts))
        if outcome == OK and invoked.kind in (COMMIT, ABORT):
            self._transaction = None

    def returned(self, number: int) -> None:
        """Note that the call of a write has returned: records sent from now on must lie behind it."""
        if self._number > number and number in self._invoked:
            invoked = self._invoked[number]
            self._invoked[number] = invoked._replace(returned=self._number + 1)

    def written(self, number: int, value: bytes | None, key: bytes | None) -> None:
        """Note the content of a write that was recorded as opaque; call `ended` after it."""
        self._invoked[number] = self._invoked[number]._replace(**_content(value, key))

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        value: bytes | None,
        key: bytes | None = None,
        group: str | None = None,
        *,
        is_opaque: bool = False,
    ) -> None:
        """Record that the client received a record. `is_opaque`: the bytes of its value are not known."""
        event = self._next(READ, OK, topic, partition, offset)
        self._record(event._replace(group=group, **_content(value, key, is_opaque=is_opaque)))

    def seek(self, topic: str, partition: int, offset: int, group: str | None = None) -> None:
        """Record that the client begins to read a partition at this offset."""
        self._record(self._next(SEEK, OK, topic, partition, offset)._replace(group=group))

    def reached(self, topic: str, partition: int, offset: int) -> None:
        """Record that the client has received everything visible below this offset."""
        self._record(self._next(REACHED, OK, topic, partition, offset))

    def assigned(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        group: str | None = None,
    ) -> None:
        """Record that the client wants the records of a topic, or of one of its partitions.

        `offset`: where it begins, unless its group has committed an offset; None: at the end.
        """
        event = self._next(ASSIGNED, OK, topic, partition, offset)
        self._record(event._replace(group=group))

    def closed(self, outcome: str = OK) -> None:
        """Record that the client has ended. `outcome`: UNKNOWN if it was killed."""
        self._record(self._next(CLOSED, outcome))

    def _invoke(self, kind: str, **facts: Any) -> int:
        event = self._next(kind, INVOKED)._replace(**facts)
        self._invoked[event.number] = event
        self._record(event)
        return event.number

    def _next(self, kind: str, outcome: str, *place: Any) -> Event:
        self._number += 1
        start = self._client, self._number, kind, outcome, self._transaction, None
        return Event(*start, *place)

    def _record(self, event: Event) -> None:
        self.emit(event._replace(time=round(self._now(), 6)))

    def emit(self, event: Event) -> None:
        """Pass an event on as a line."""
        self._write(line_of(event))


def _content(value: bytes | None, key: bytes | None, *, is_opaque: bool = False) -> dict[str, Any]:
    """Return the fields of an event that tell the key and the value of a record."""
    if is_opaque:
        return {"digest": OPAQUE}
    return {"digest": digest_of(value), "value": text_of(value), "key": shown_key(key)}
