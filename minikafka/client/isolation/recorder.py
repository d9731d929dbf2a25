"""Writes the history of one transactional client, line by line, so that it survives the death of the process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from minikafka.client.isolation import events
from minikafka.client.isolation.events import INVOKED, OK, digest_of


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
        return self._invoke(events.BEGIN, transactional_id=self._transactional_id)

    def write(self, topic: str, value: bytes | None, partition: int | None = None) -> int:
        """Record a write of a record with this value."""
        hashed = {} if value is None else {"value_sha256": digest_of(value).hex()}
        return self._invoke(events.WRITE, topic=topic, partition=partition, **hashed)

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> int:
        """Record the commit of a group's offset as part of the transaction."""
        facts = {"group": group, "topic": topic, "partition": partition, "offset": offset}
        return self._invoke(events.OFFSETS, **facts)

    def commit(self) -> int:
        """Record the commit of the transaction."""
        return self._invoke(events.COMMIT)

    def abort(self) -> int:
        """Record the abort of the transaction."""
        return self._invoke(events.ABORT)

    def ended(self, number: int, outcome: str = OK, **facts: Any) -> None:
        """Record the outcome of an operation. `facts`: the partition and offset of a write."""
        invoked = self._invoked.pop(number)
        self._line(number, outcome, invoked | facts)
        if outcome == OK and invoked["event"] in (events.COMMIT, events.ABORT):
            self._transaction = None

    def read(self, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        """Record that the client received a record."""
        hashed = {} if value is None else {"value_sha256": digest_of(value).hex()}
        self._event(events.READ, topic=topic, partition=partition, offset=offset, **hashed)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Record that the client begins to read a partition at this offset."""
        self._event(events.SEEK, topic=topic, partition=partition, offset=offset)

    def reached(self, topic: str, partition: int, offset: int) -> None:
        """Record that the client has received everything visible below this offset."""
        self._event(events.REACHED, topic=topic, partition=partition, offset=offset)

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
