"""Directories of output files whose driver is killed at any step, on a file system and on a store."""

from __future__ import annotations

from minikafka.spark.storage.local import LocalFiles
from minikafka.spark.storage.object_store import ObjectStore


class Killed(BaseException):
    """Stands for a `kill -9` of the driver."""


class Life:
    """Counts the steps of a driver, and kills it at the step with the number `at`."""

    def __init__(self) -> None:
        self.at = 0
        self.steps = 0

    def end_at(self, step: int) -> None:
        """Count from zero again, and kill the driver at this step; with 0, never."""
        self.steps, self.at = 0, step

    def step(self) -> None:
        """Raise `Killed` if this is the last step; also for every later step."""
        self.steps += 1
        if self.at and self.steps >= self.at:
            raise Killed


class MortalLocalFiles(LocalFiles):
    """A directory of a file system. Steps are before and after each change."""

    def __init__(self, path: str, kind: str, life: Life) -> None:
        super().__init__(path, kind)
        self._life = life

    def write_facts(self, folder, name, facts):
        self._life.step()
        super().write_facts(folder, name, facts)
        self._life.step()

    def move(self, staged, final):
        self._life.step()
        super().move(staged, final)
        self._life.step()

    def remove(self, names):
        self._life.step()
        super().remove(names)
        self._life.step()

    def remove_folder(self, folder):
        self._life.step()
        super().remove_folder(folder)

    def forget(self, names):
        self._life.step()
        super().forget(names)


class MortalStore:
    """A store. Steps are before and after each request that changes something."""

    def __init__(self, store, life: Life) -> None:
        self.url = store.url
        self._store = store
        self._life = life

    def __getattr__(self, name: str):
        method = getattr(self._store, name)
        if name not in ("create", "write", "move", "delete"):
            return method

        def stepping(*given):
            self._life.step()
            found = method(*given)
            self._life.step()
            return found

        return stepping


def memory_store() -> ObjectStore:
    """Return an empty store in the memory of this process."""
    return ObjectStore("memory:///store", {})
