"""A directory of output files on a store that has neither locks nor renames.

_staging/     files that tasks have written; their names do not end in `.parquet`
_commits/     the decisions: see `fenced_log`
_lock         see `lease`
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, Final

import pyarrow as pa

from minikafka.spark.storage.fenced_log import FencedLog
from minikafka.spark.storage.files import STAGING, DirectoryBusy, StagedOutput, new_name, parsed
from minikafka.spark.storage.lease import held
from minikafka.spark.storage.store import FileStore

_AT_ONCE: Final = 16
"""Number of files that are moved at the same time. Each takes the store a copy and a removal."""


class StoredFiles:
    """A directory on a store. `kind`: what it holds, for messages."""

    def __init__(self, store: FileStore, kind: str) -> None:
        self.url = store.url
        self._store = store
        self._kind = kind
        self._log: FencedLog | None = None

    @contextmanager
    def locked(self, recover: Callable[[], None]) -> Iterator[None]:
        """Be the only writer during the `with` body, after `recover` and the removal of staged files.

        A second process that does not see the lock, because it has expired, takes the directory over: then the next
        decision of the first one raises `DirectoryBusy`.
        """
        with held(self._store, self._kind):
            self._log = FencedLog(self._store, self._kind)
            self._log.begin()
            recover()
            self.remove_folder(STAGING)
            yield
            self.remove_folder(STAGING)

    def has(self, folder: str) -> bool:
        return bool(self._store.files(folder))

    def names(self, folder: str = "") -> list[str]:
        return [name for name in self._store.files(folder) if name[0] not in "_."]

    def folders(self, folder: str = "") -> list[str]:
        return self._store.folders(folder)

    def open(self, name: str) -> pa.NativeFile:
        return self._store.open_input(name)

    @contextmanager
    def stage(self, name: str) -> Iterator[StagedOutput]:
        staged = new_name(name)
        with self._store.open_output(f"{STAGING}/{staged}") as file:
            yield StagedOutput(staged, file)

    def check_staged(self, names: Iterable[str]) -> None:
        if missing := set(names) - self._staged():
            raise DirectoryBusy(
                f"{self.url}/{STAGING}/{min(missing)} was removed: another process writes the {self._kind}, or"
                " a rule of the store removes its files; let only one process write it"
            )

    def publish(self, moves: Mapping[str, str]) -> None:
        staged = self._staged() if moves else set()
        pairs = [(f"{STAGING}/{name}", moves[name]) for name in moves if name in staged]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for done in [pool.submit(self._store.move, *pair) for pair in pairs]:
                done.result()

    def add(self, name: str, moves: Mapping[str, str]) -> None:
        self.decide(name, {"files": moves})
        self.publish(moves)

    def _staged(self) -> set[str]:
        return {name.removeprefix(f"{STAGING}/") for name in self._store.files(STAGING)}

    def remove(self, names: Iterable[str]) -> None:
        self._store.delete(names)

    def remove_folder(self, folder: str) -> None:
        self._store.delete(self._store.files(folder))

    def facts(self, folder: str) -> dict[str, dict[str, Any]]:
        found = {}
        for name in self._store.files(folder):
            if name.endswith(".json") and (data := self._store.read(name)) is not None:
                found[PurePosixPath(name).stem] = parsed(f"{self.url}/{name}", data)
        return found

    def write_facts(self, folder: str, name: str, facts: Mapping[str, Any]) -> None:
        self._store.write(f"{folder}/{name}.json", json.dumps(facts, indent=1).encode())

    def decisions(self) -> dict[str, dict[str, Any]]:
        return (
            FencedLog(self._store, self._kind).read() if self._log is None else self._log.decisions
        )

    def decide(self, name: str, facts: Mapping[str, Any]) -> None:
        self._writer().decide(name, facts)

    def forget(self, names: Iterable[str]) -> None:
        self._writer().forget(names)

    def _writer(self) -> FencedLog:
        assert self._log is not None, "only the writer of a directory decides"
        return self._log
