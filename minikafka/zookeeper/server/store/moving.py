"""Copying a data directory to or from Apache ZooKeeper, with a check of the copy.

The copy has the newest whole snapshot and the logs after it. It becomes visible as a whole: a copy that was killed
leaves only a folder that the next one replaces. The source is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.errors import DirectoryInUse, MinikafkaError, StorageFailed
from minikafka.base.ports import File, Storage
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.store import durable_end
from minikafka.zookeeper.server.store.durable_end import DurableEnd
from minikafka.zookeeper.server.store.files import (
    LOCK,
    VERSION,
    CorruptData,
    StoreFile,
)
from minikafka.zookeeper.server.store.recovery import Recovery

_UNFINISHED: Final = f"{VERSION}.unfinished"
_TICK_MS: Final = 2000

OnProgress: TypeAlias = Callable[[str, int, int], None]
"""Called with a step, the amount done, and the total amount."""


class CannotMove(MinikafkaError):
    """The directory cannot be copied; the text says why, and what to do."""


class CopiedDirectory(NamedTuple):
    """The directory to copy. `logs`: the directory of the logs (Apache's dataLogDir), if not next to the snapshots."""

    directory: str
    logs: str | None = None


class Copied(NamedTuple):
    """The result of a copy that was checked. `notes`: damage of the source, which the copy does not have."""

    files: tuple[str, ...]
    bytes: int
    zxid: int
    nodes: int
    ephemeral_nodes: int
    containers: int
    sessions: int
    notes: tuple[str, ...]


def copy(
    storage: Storage, source: CopiedDirectory, destination: str, on_progress: OnProgress
) -> Copied:
    """Copy a data directory, and check that the copy has the same state. Raises MinikafkaError."""
    _refuse_existing(storage, destination)
    lock = _lock(storage, source.directory)
    try:
        return _copy(storage, source, destination, on_progress)
    finally:
        if lock is not None:
            lock.close()


def _refuse_existing(storage: Storage, destination: str) -> None:
    folder = f"{destination}/{VERSION}"
    if storage.is_directory(folder) and storage.names(folder):
        raise CannotMove(
            f"{folder} has files, which are not overwritten; choose another directory, or move the folder away"
        )


def _lock(storage: Storage, directory: str) -> File | None:
    """Lock the directory during the copy, so that no minikafka server starts in it."""
    path = f"{directory}/{LOCK}"
    if not storage.exists(path):
        return None
    lock = storage.lock(path)
    if lock is None:
        raise DirectoryInUse(
            f"{directory} is in use: {storage.lock_holder(path)} holds {path}; "
            "stop it first (a cluster: minikafka down)"
        )
    return lock


def _copy(
    storage: Storage, source: CopiedDirectory, destination: str, on_progress: OnProgress
) -> Copied:
    recovery = _open(storage, source)
    on_progress("reading", 0, 1)
    state = _load(recovery)
    recovery.notes += _losses(storage, source.directory, state)
    unfinished = f"{destination}/{_UNFINISHED}"
    try:
        total = _copy_files(storage, recovery.used, unfinished, on_progress)
        on_progress("checking", 0, 1)
        end = _check(storage, unfinished, state)
        _publish(storage, unfinished, destination, end)
    except BaseException:
        with suppress(StorageFailed):
            storage.remove_tree(unfinished)
        raise
    return _summary(recovery, total, state)


def _losses(storage: Storage, directory: str, state: ServerState) -> list[str]:
    """Describe the acknowledged transactions that the files lack. They are no reason to refuse the copy."""
    try:
        durable = durable_end.read(storage, directory)
    except CorruptData:
        return [f"{directory}/{durable_end.NAME} is damaged: later transactions may be missing"]
    if durable is None or durable.zxid is None or durable.zxid <= state.zxid:
        return []
    return [
        f"transactions {state.zxid + 1:#x} to {durable.zxid:#x} are missing, which were acknowledged"
    ]


def _copy_files(
    storage: Storage, files: Sequence[StoreFile], unfinished: str, on_progress: OnProgress
) -> int:
    """Copy files into a new folder; return the number of bytes."""
    storage.remove_tree(unfinished)
    storage.make_directories(unfinished)
    total = 0
    for number, entry in enumerate(files):
        on_progress("copying", number, len(files))
        content = storage.read(entry.path)
        total += len(content)
        storage.write_atomically(f"{unfinished}/{entry.name}", content)
    return total


def _open(storage: Storage, source: CopiedDirectory) -> Recovery:
    """Return the recovery of the source. Raises CannotMove if the source is empty or its logs are elsewhere."""
    folder = f"{source.directory}/{VERSION}"
    recovery = Recovery(storage, folder, source.logs and f"{source.logs}/{VERSION}")
    if recovery.is_empty():
        raise CannotMove(
            f"{folder} has no files snapshot.* and log.*, so there is no data of ZooKeeper"
        )
    if recovery.lacks_logs() and source.logs is None:
        raise CannotMove(
            f"there are no files log.* in {folder}: if dataLogDir in zoo.cfg is"
            f" another directory, give it with --log-dir; if there are none, give --log-dir {source.directory}"
        )
    return recovery


def _load(recovery: Recovery) -> ServerState:
    state = ServerState(tick_ms=_TICK_MS)
    recovery.load(state)
    return state


def _check(storage: Storage, folder: str, expected: ServerState) -> DurableEnd:
    """Read the copy as a server does, cut an unfinished write off its end, and compare the states."""
    recovery = Recovery(storage, folder)
    found = _load(recovery)
    end = recovery.repair()
    if difference := first_difference(expected, found):
        raise CannotMove(
            f"the copy differs from its source in {difference}: a server may be writing to the source; stop it, and"
            " try again"
        )
    return end


def first_difference(one: ServerState, other: ServerState) -> str:
    """Describe the first difference between two states; "" if they are equal."""
    if one.zxid != other.zxid:
        return f"the last zxid ({one.zxid:#x} and {other.zxid:#x})"
    if _sessions(one) != _sessions(other):
        return "the open sessions"
    ours, theirs = one.tree.nodes, other.tree.nodes
    if ours.keys() != theirs.keys():
        return f"the node {min(ours.keys() ^ theirs.keys())}"
    for path, node in ours.items():
        twin = theirs[path]
        values = node.stat(), node.created, node.owner, node.data, node.acl
        if values != (twin.stat(), twin.created, twin.owner, twin.data, twin.acl):
            return f"the node {path}"
    return ""


def _sessions(state: ServerState) -> dict[int, int]:
    return {session.id: session.timeout_ms for session in state.sessions.open.values()}


def _publish(storage: Storage, unfinished: str, destination: str, end: DurableEnd) -> None:
    """Rename the checked copy to its final name. Refuse if a server has put files there in the meantime."""
    folder = f"{destination}/{VERSION}"
    _refuse_existing(storage, destination)
    storage.remove_tree(folder)
    durable_end.write(storage, destination, end)
    storage.rename(unfinished, folder)
    storage.sync_directory(destination.rpartition("/")[0] or "/")


def _summary(recovery: Recovery, total: int, state: ServerState) -> Copied:
    tree = state.tree
    return Copied(
        tuple(entry.name for entry in recovery.used),
        total,
        state.zxid,
        len(tree.nodes),
        sum(map(len, tree.ephemerals.values())),
        len(tree.containers),
        len(state.sessions.open),
        tuple(recovery.notes),
    )
