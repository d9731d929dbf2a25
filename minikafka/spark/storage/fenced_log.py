"""The decisions of a directory on a store, as a log in which only the newest writer can append.

    _commits/00000000000000000042.json    {"run": …, "entry": …, "decisions": {name: facts}}

An entry is the complete state. Its name is the number after the newest one, and is created only if it is absent. So of
two writers that know the same state one appends, and the other has lost the directory. A new writer begins with an
entry that changes nothing: from then on, every earlier writer fails at its next entry.

Old entries are removed. A writer that was asleep for so long that the number after its last one is free again notices
newer entries after it has created its own, which has no effect, because only the newest entry is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from minikafka.spark.storage.files import COMMITS, DirectoryBusy, parsed
from minikafka.spark.storage.store import FileStore

_KEPT: Final = 100
"""The number of old entries that are kept; they are removed when there are twice as many."""


class FencedLog:
    """The decisions in a store. `kind`: what the directory holds, for messages."""

    def __init__(self, store: FileStore, kind: str) -> None:
        self._store = store
        self._kind = kind
        self._run = os.urandom(6).hex()
        self._last = 0
        self._decisions: dict[str, dict[str, Any]] = {}

    def begin(self) -> None:
        """Read the current decisions, and become the writer."""
        self._decisions = self.read()
        self._append(self._decisions)

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the current decisions by name, sorted by name."""
        numbers = self._numbers()
        self._last = max(numbers, default=0)
        if not numbers:
            return {}
        name = _name(self._last)
        data = self._store.read(name)
        if data is None:
            raise self._lost()
        return dict(sorted(parsed(f"{self._store.url}/{name}", data)["decisions"].items()))

    @property
    def decisions(self) -> dict[str, dict[str, Any]]:
        """The decisions by name that this writer has read at its begin, and made since, sorted by name."""
        return dict(sorted(self._decisions.items()))

    def decide(self, name: str, facts: Mapping[str, Any]) -> None:
        """Append an entry with another decision. Raises `DirectoryBusy` if there is a newer writer."""
        self._append({**self._decisions, name: dict(facts)})

    def forget(self, names: Iterable[str]) -> None:
        """Append an entry without some decisions. Raises `DirectoryBusy` if there is a newer writer."""
        gone = set(names)
        if gone & self._decisions.keys():
            self._append({name: one for name, one in self._decisions.items() if name not in gone})

    def _append(self, decisions: dict[str, dict[str, Any]]) -> None:
        number = self._last + 1
        entry = {"run": self._run, "entry": os.urandom(6).hex(), "decisions": decisions}
        if not self._store.create(_name(number), json.dumps(entry, indent=1).encode()):
            raise self._lost()
        numbers = self._numbers()
        if max(numbers) > number:
            raise self._lost()
        if len(numbers) > 2 * _KEPT:
            self._store.delete(_name(one) for one in numbers if one <= number - _KEPT)
        self._last, self._decisions = number, decisions

    def _numbers(self) -> list[int]:
        names = (name.removeprefix(f"{COMMITS}/") for name in self._store.files(COMMITS))
        return [int(name.removesuffix(".json")) for name in names if name[:20].isdecimal()]

    def _lost(self) -> DirectoryBusy:
        return DirectoryBusy(
            f"another process has begun to write the {self._kind} {self._store.url}: let only one write it,"
            " and start this command again when the other has ended"
        )


def _name(number: int) -> str:
    return f"{COMMITS}/{number:020d}.json"
