"""Copies of data directories: what they contain, what is checked, and what is refused."""

from __future__ import annotations

from typing import Final

import pytest
from support.zookeeper.data import Writer, last_log, recovered
from support.zookeeper.server_states import fingerprint, new_state

from minikafka.base.errors import DirectoryInUse, MinikafkaError, StorageFailed
from minikafka.simulation.storage import MemoryStorage
from minikafka.zookeeper.server.store import snapshots
from minikafka.zookeeper.server.store.files import CorruptData
from minikafka.zookeeper.server.store.moving import (
    CannotMove,
    Copied,
    CopiedDirectory,
    copy,
    first_difference,
)

TARGET: Final = "/target"


def written(seed: int = 1) -> tuple[MemoryStorage, Writer]:
    """Return a storage whose /data has four snapshots and a log with a tail, and its writer, which has ended."""
    storage = MemoryStorage()
    writer = Writer(storage, seed)
    for _ in range(4):
        writer.batch(20)
        writer.snapshot()
    writer.batch(20)
    writer.store.close()
    return storage, writer


def copied(storage: MemoryStorage, source: str = "/data", logs: str | None = None) -> Copied:
    return copy(storage, CopiedDirectory(source, logs), TARGET, lambda step, done, total: None)


def test_copy_has_the_same_state_as_its_source() -> None:
    storage, writer = written()
    before = dict(storage.files)
    result = copied(storage)
    assert fingerprint(recovered(storage, TARGET)) == fingerprint(writer.state)
    assert {path: storage.files[path] for path in before} == before
    assert result.zxid == writer.state.zxid
    assert result.nodes == len(writer.state.tree.nodes)
    assert result.sessions == len(writer.state.sessions.open)
    assert [name.partition(".")[0] for name in result.files] == ["snapshot", "log"]


def test_unfinished_write_at_the_end_is_not_copied() -> None:
    storage, writer = written()
    log = last_log(storage)
    whole = bytes(storage.files[log]).rstrip(b"\0")
    storage.files[log][:] = whole + b"torn"
    [note] = copied(storage).notes
    assert note == f"{log}: 4 bytes of an unfinished write at byte {len(whole)} were cut"
    assert storage.files[f"{TARGET}/version-2/{log.rpartition('/')[2]}"] == whole
    assert storage.files[log] == whole + b"torn"
    assert fingerprint(recovered(storage, TARGET)) == fingerprint(writer.state)


def test_logs_can_be_in_another_directory() -> None:
    storage, writer = written()
    storage.make_directories("/logs/version-2")
    for path in [path for path in storage.files if "/log." in path]:
        storage.rename(path, path.replace("/data/", "/logs/"))
    with pytest.raises(CannotMove, match=r"no files log\.\* in /data/version-2: .* --log-dir"):
        copied(storage)
    copied(storage, logs="/logs")
    assert fingerprint(recovered(storage, TARGET)) == fingerprint(writer.state)


def test_snapshot_alone_is_copied_when_its_directory_is_given_for_the_logs() -> None:
    storage, _ = written()
    for path in [path for path in storage.files if "/log." in path]:
        storage.remove(path)
    [snapshot] = copied(storage, logs="/data").files
    assert snapshot.startswith("snapshot.")


def test_existing_data_are_not_overwritten() -> None:
    storage, _ = written()
    storage.make_directories(f"{TARGET}/version-2")
    storage.write_atomically(f"{TARGET}/version-2/acceptedEpoch", b"1")
    with pytest.raises(CannotMove, match="/target/version-2 has files, which are not overwritten"):
        copied(storage)
    assert storage.names(f"{TARGET}/version-2") == ["acceptedEpoch"]


def test_other_files_of_the_target_stay() -> None:
    storage, _ = written()
    storage.make_directories(f"{TARGET}/version-2")
    storage.write_atomically(f"{TARGET}/myid", b"1")
    copied(storage)
    assert storage.names(TARGET) == ["durable-end", "myid", "version-2"]


def test_directory_of_a_running_server_is_refused() -> None:
    storage, _ = written()
    lock = storage.lock("/data/.lock")
    assert lock is not None
    with pytest.raises(
        DirectoryInUse, match=r"/data is in use: another process holds .*; stop it first"
    ):
        copied(storage)
    lock.close()
    copied(storage)
    assert storage.locks == {}


def test_directory_without_data_is_refused() -> None:
    with pytest.raises(CannotMove, match=r"/data/version-2 has no files snapshot\.\* and log\.\*"):
        copied(MemoryStorage())


def test_damaged_source_is_refused() -> None:
    storage, _ = written()
    log = last_log(storage)
    storage.files[log][100] ^= 1
    storage.files[log] += b"x" * (5 << 20)
    with pytest.raises(CorruptData, match=log):
        copied(storage)
    assert not storage.exists(f"{TARGET}/version-2")


def test_failure_at_any_change_leaves_no_copy_and_the_source_intact() -> None:
    storage, writer = written()
    changes = 0

    def count(path: str) -> None:
        nonlocal changes
        changes += path.startswith(TARGET)

    storage.before_change = count
    copied(storage)
    assert changes > 8
    for number in range(changes):
        check_failure(number, writer)


def check_failure(number: int, writer: Writer) -> None:
    """Let one change fail; then the copy is whole or not there, and a second attempt succeeds."""
    storage, _ = written()
    left = number

    def fail(path: str) -> None:
        nonlocal left
        if path.startswith(TARGET):
            left -= 1
            if left == -1:
                raise StorageFailed(path, OSError(28, "No space left on device"))

    storage.before_change = fail
    with pytest.raises(MinikafkaError, match="No space left on device"):
        copied(storage)
    storage.before_change = lambda path: None
    assert fingerprint(recovered(storage.clone())) == fingerprint(writer.state)
    assert not storage.exists(f"{TARGET}/version-2.unfinished")
    if not storage.is_directory(f"{TARGET}/version-2"):
        copied(storage)
    assert fingerprint(recovered(storage, TARGET)) == fingerprint(writer.state)


def test_copy_that_differs_from_its_source_is_refused() -> None:
    storage, _ = written()
    state = recovered(storage.clone())
    content = snapshots.encode(new_state().tree, [])

    def replace(path: str) -> None:
        if "unfinished/log." in path:  # the snapshot has been copied
            [copy_of_snapshot] = [path for path in storage.files if "unfinished/snapshot." in path]
            storage.files[copy_of_snapshot][:] = content

    storage.before_change = replace
    with pytest.raises(CannotMove, match="the copy differs from its source in "):
        copied(storage)
    assert not storage.exists(f"{TARGET}/version-2")
    assert fingerprint(recovered(storage)) == fingerprint(state)


@pytest.mark.parametrize("what", ["zxid", "session", "node", "data", "acl", "stat"])
def test_first_difference_names_what_differs(what: str) -> None:
    _, writer = written()
    _, twin = written()
    assert first_difference(writer.state, twin.state) == ""
    state = twin.state
    nodes = state.tree.nodes
    if what == "zxid":
        state.zxid += 1
    elif what == "session":
        state.open_session(9000, 0, 0)
        state.zxid -= 1
    elif what == "node":
        nodes["/new"] = nodes["/"]
    elif what == "data":
        nodes["/zookeeper"].data = b"other"
    elif what == "acl":
        nodes["/zookeeper"].acl = ((1, "world", "anyone"),)
    else:
        nodes["/zookeeper"].pzxid += 1
    assert first_difference(writer.state, state) != ""
