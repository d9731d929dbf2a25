"""Data directories of a ZooKeeper server in memory, written at random."""

from __future__ import annotations

from random import Random
from typing import Final

from support.zookeeper.server_states import RandomWrites, fingerprint, new_state

from minikafka.simulation.storage import MemoryStorage
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.store.store import Store

DIRECTORY: Final = "/data"
FOLDER: Final = "/data/version-2"


class Writer:
    """A state whose random writes go to a store. `after`: the fingerprint after each zxid."""

    def __init__(self, storage: MemoryStorage, seed: int) -> None:
        self.storage = storage
        self.state = new_state()
        self.store = Store(storage, DIRECTORY)
        self.after: dict[int, object] = {}
        self.durable = -1
        """The last zxid that has been acknowledged."""
        self.store.recover(self.state)
        self._acknowledge()
        self.writes = RandomWrites(self.state, Random(seed))
        self._note()

    def _note(self) -> None:
        self.after[self.state.zxid] = fingerprint(self.state)

    def _acknowledge(self) -> None:
        self._note()
        self.durable = self.state.zxid

    def batch(self, count: int) -> None:
        """Write a batch and make it durable."""
        self.append(count)
        self.store.sync()
        self._acknowledge()

    def append(self, count: int) -> None:
        """Write a batch, which is not durable yet."""
        for _ in range(count):
            self.writes.step()
            self._note()
        self.store.append(self.state.journal)
        self.state.journal.clear()

    def snapshot(self) -> None:
        """Start a new log file, write a snapshot, and delete old files."""
        self.store.roll()
        self.store.write_snapshot(self.state)
        self.store.purge()


def recovered(storage: MemoryStorage, directory: str = DIRECTORY) -> ServerState:
    """Return the state that a new server has."""
    state = new_state()
    store = Store(storage, directory)
    store.recover(state)
    store.close()
    return state


def logs(storage: MemoryStorage) -> list[str]:
    """Return the paths of the log files, oldest first."""
    found = [
        path for path in storage.files if path.startswith(f"{FOLDER}/log.") and ".cut." not in path
    ]
    return sorted(found, key=lambda path: int(path.rpartition(".")[2], 16))


def last_log(storage: MemoryStorage) -> str:
    """Return the path of the newest log file."""
    return logs(storage)[-1]
