"""A data directory after a crash at any byte of the last records, and at any write and fsync."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from random import Random

import pytest
from support.forms import seeds
from support.zookeeper.data import DIRECTORY, FOLDER, Writer, last_log, logs, recovered
from support.zookeeper.server_states import fingerprint, new_state

from minikafka.simulation.files import (
    BytesLeft,
    all_names,
    former_bytes,
    names_of_last_fsync,
    some_names,
)
from minikafka.simulation.storage import MemoryStorage
from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.jute import ANYONE
from minikafka.zookeeper.server.core.changes import (
    Change,
    Created,
    Deleted,
    Failed,
    LoggedTransaction,
    Multi,
    SessionOpened,
)
from minikafka.zookeeper.server.core.tree import DataNode
from minikafka.zookeeper.server.store import durable_end
from minikafka.zookeeper.server.store.files import (
    BATCH_BYTES_MAX,
    LOG_HEADER,
    CorruptData,
    UnsupportedData,
)
from minikafka.zookeeper.server.store.store import Store
from minikafka.zookeeper.server.store.transaction_log import encode


def check_recovery(image: MemoryStorage, expected: Callable[[int], object]) -> int:
    """Recover twice, write on, and recover again; return the zxid of the first recovery."""
    first = recovered(image)
    assert fingerprint(first) == expected(first.zxid)
    assert fingerprint(recovered(image)) == fingerprint(first), "recovery is not idempotent"
    writer = Writer(image.clone(), seed=first.zxid)
    writer.batch(3)
    assert fingerprint(recovered(writer.storage.clone())) == fingerprint(writer.state)
    return first.zxid


def records_of(storage: MemoryStorage, log: str) -> bytes:
    """Return the log without the zeros behind its last record."""
    return bytes(storage.files[log]).rstrip(b"\0")


def damages(content: bytes, at: int, random: Random) -> list[bytes]:
    """Return the file cut at a byte, with zeros or garbage from there on, and with one bit flipped."""
    rest = len(content) - at
    flipped = bytearray(content)
    flipped[at] ^= 1 << random.randrange(8)
    return [
        content[:at],
        content[:at] + bytes(rest),
        content[:at] + random.randbytes(rest),
        bytes(flipped),
        bytes(flipped) + bytes(1_000),
    ]


def test_damage_at_any_byte_of_the_last_records_ends_the_log_there() -> None:
    storage = MemoryStorage()
    writer = Writer(storage, seed=1)
    log, ends = "", {}
    for number in range(30):
        (writer.batch if number < 22 else writer.append)(1)
        log = last_log(storage)
        ends[len(records_of(storage, log))] = writer.state.zxid
    content, random = records_of(storage, log), Random(1)
    for at in range(sorted(ends)[-8], len(content)):
        kept = max(end for end in ends if end <= at)
        for damaged in damages(content, at, random):
            image = storage.clone()
            image.files[log][:] = damaged
            assert check_recovery(image, writer.after.__getitem__) == ends[kept]


def remains(random: Random) -> list[BytesLeft]:
    """Return what a power loss may leave of bytes that were not fsynced."""
    cut = random.random()
    return [
        former_bytes,
        lambda path, data, former: data,
        lambda path, data, former: b"",
        lambda path, data, former: data[: int(len(data) * cut)],
        lambda path, data, former: bytes(len(data)),
        lambda path, data, former: random.randbytes(len(data)),
        lambda path, data, former: bytes(len(data) // 2) + data[len(data) // 2 :],
    ]


@pytest.mark.parametrize("seed", seeds(2, 10))
def test_crash_at_any_write_or_fsync_loses_nothing_acknowledged(seed: int) -> None:
    storage, random = MemoryStorage(), Random(seed)
    images: list[tuple[MemoryStorage, int]] = []
    writers: list[Writer] = []

    def take_images(path: str) -> None:
        durable = writers[0].durable if writers else -1
        for left in remains(random):
            names = random.choice([names_of_last_fsync, all_names, some_names(random.random())])
            images.append((storage.power_cut(left, names), durable))

    storage.before_change = take_images
    writers.append(Writer(storage, seed))
    for _ in range(6):
        for _ in range(3):
            writers[0].batch(random.randrange(1, 4))
        writers[0].snapshot()
    take_images("")
    assert len(images) > 300
    for image, durable in images:
        image.before_change = lambda path: None
        assert (
            check_recovery(image, lambda zxid: writers[0].after.get(zxid, fingerprint(new_state())))
            >= durable
        )


# ---- what no crash leaves is refused; what Apache ZooKeeper's data may have is read


def written() -> tuple[MemoryStorage, Writer]:
    """Return a storage with three snapshots, and a log after each of them."""
    storage = MemoryStorage()
    writer = Writer(storage, seed=1)
    for _ in range(3):
        writer.batch(10)
        writer.snapshot()
    writer.batch(10)
    return storage.clone(), writer


def snapshots_of(storage: MemoryStorage) -> list[str]:
    found = [path for path in storage.files if "/snapshot." in path]
    return sorted(found, key=lambda path: int(path.rpartition(".")[2], 16))


def refusal(storage: MemoryStorage) -> str:
    """Return the text of the refusal; the files must stay as they are."""
    storage.files[f"{DIRECTORY}/.lock"] = bytearray()
    before = {path: bytes(content) for path, content in storage.files.items()}
    with pytest.raises((CorruptData, UnsupportedData)) as refused:
        recovered(storage)
    assert storage.files == before
    return str(refused.value)


def test_first_start_writes_an_empty_snapshot() -> None:
    storage = MemoryStorage()
    assert fingerprint(recovered(storage)) == fingerprint(new_state())
    assert storage.names(FOLDER) == ["snapshot.0"]


def test_logs_without_a_snapshot_are_refused() -> None:
    storage, _ = written()
    for path in snapshots_of(storage):
        storage.remove(path)
    text = refusal(storage)
    assert "but no snapshot to start from, so that transactions 0x1 to 0x28 cannot be read" in text
    assert "restore the file snapshot.*" in text


@pytest.mark.parametrize("at", [3, 200, -9, -1])
def test_older_snapshot_is_used_when_the_newest_is_damaged(at: int) -> None:
    storage, writer = written()
    newest = snapshots_of(storage)[-1]
    storage.files[newest][at] ^= 4
    store, state = Store(storage, DIRECTORY), new_state()
    store.recover(state)
    assert fingerprint(state) == fingerprint(writer.state)
    [note] = store.notes
    assert note.startswith(f"{newest} is damaged (")
    assert note.endswith("; an older snapshot is used")


def test_cut_snapshot_is_not_used() -> None:
    storage, writer = written()
    newest = snapshots_of(storage)[-1]
    for size in range(len(storage.files[newest])):
        image = storage.clone()
        del image.files[newest][size:]
        assert fingerprint(recovered(image)) == fingerprint(writer.state)


def test_directory_without_a_whole_snapshot_is_refused() -> None:
    storage, _ = written()
    for path in snapshots_of(storage):
        storage.files[path][-1] ^= 1
    assert f"no snapshot in {FOLDER} is whole, so that transactions 0x1 to 0x28" in refusal(storage)


def test_damage_in_an_older_log_is_refused() -> None:
    storage, _ = written()
    storage.remove(snapshots_of(storage)[-1])
    older = logs(storage)[-2]
    storage.files[older][-3] ^= 1
    text = refusal(storage)
    assert text.startswith(f"{older} is damaged at byte ")
    assert f"restore {older} from a copy of the directory" in text
    assert f"move {older.rpartition('/')[2]} and all later logs out of {FOLDER}" in text


def test_damage_far_from_the_end_of_the_last_log_is_refused() -> None:
    storage, _ = written()
    log = last_log(storage)
    durable_end.write(storage, DIRECTORY, durable_end.without_log(0))  # the log was only begun
    storage.files[log][40] ^= 1
    storage.files[log] += b"x" * BATCH_BYTES_MAX
    assert refusal(storage).startswith(f"{log} is damaged at byte 16, where no crash")


@pytest.mark.parametrize("stops", [True, False], ids=["stopped", "started again"])
def test_damage_in_what_was_durable_at_a_start_or_stop_is_refused(stops: bool) -> None:
    storage = MemoryStorage()
    writer = Writer(storage, seed=1)
    writer.batch(5)
    if stops:
        writer.store.close()
    else:
        storage = storage.clone()
        recovered(storage)
    log = storage.files[last_log(storage)]
    flipped, cut = bytearray(log), log.rstrip(b"\0")[:-1]
    flipped[len(LOG_HEADER) + 20] ^= 1
    for damaged, at in ((flipped, "16"), (cut, r"\d+")):
        log[:] = damaged
        with pytest.raises(CorruptData, match=f"is damaged at byte {at}, where no crash"):
            recovered(storage.clone())


def test_cut_end_of_a_log_is_kept_in_a_file_beside_it() -> None:
    writer = Writer(MemoryStorage(), seed=1)
    writer.batch(5)
    storage = writer.storage.clone()
    log = last_log(storage)
    whole = len(records_of(storage, log))
    storage.files[log][whole : whole + 10] = b"unfinished"
    recovered(storage)
    assert storage.files[f"{log}.cut.{whole}"] == b"unfinished"
    assert logs(storage) == [log]


def test_missing_log_is_refused() -> None:
    storage, _ = written()
    storage.remove(snapshots_of(storage)[-1])
    [gone, _] = logs(storage)[-2:]
    storage.remove(gone)
    assert "a log file is missing or was cut" in refusal(storage)


def apache_log(*zxids: int) -> bytearray:
    """Return a log of Apache ZooKeeper that creates a node with each of these zxids."""
    records = (encode(LoggedTransaction(7, 0, zxid, 1, created(f"/n{zxid}"))) for zxid in zxids)
    return bytearray(LOG_HEADER[:8] + bytes(8) + b"".join(records))


def test_zxid_that_apache_did_not_log_is_skipped() -> None:
    storage = MemoryStorage()
    Store(storage, DIRECTORY).recover(new_state())
    storage.files[f"{FOLDER}/log.1"] = apache_log(1, 3)
    storage = storage.clone()
    assert recovered(storage).tree.nodes.keys() >= {"/n1", "/n3"}


def test_zxid_that_is_missing_in_an_own_log_is_refused() -> None:
    storage = MemoryStorage()
    Store(storage, DIRECTORY).recover(new_state())
    storage.files[f"{FOLDER}/log.1"] = bytearray(LOG_HEADER) + apache_log(1, 3)[16:]
    assert "has transaction 0x3 behind 0x1 at byte " in refusal(storage.clone())


def test_first_transaction_of_a_new_leader_follows_the_last_one_of_the_old_leader() -> None:
    storage = MemoryStorage()
    store = Store(storage, DIRECTORY)
    store.recover(new_state())
    for zxid in (1, 3 << 32 | 1):
        store.append([LoggedTransaction(7, 0, zxid, 1, created(f"/n{zxid}"))])
        store.roll()
    store.close()
    assert recovered(storage).zxid == 3 << 32 | 1
    storage.rename(f"{FOLDER}/log.300000001", f"{FOLDER}/log.300000002")
    content = storage.files[f"{FOLDER}/log.300000002"]
    content[:] = LOG_HEADER + encode(LoggedTransaction(7, 0, 3 << 32 | 2, 1, created("/late")))
    assert "a log file is missing" in refusal(storage)


def test_zeros_that_apache_writes_in_advance_end_a_log() -> None:
    storage, writer = written()
    storage.remove(snapshots_of(storage)[-1])
    for log in logs(storage):
        storage.files[log] += bytes(5 << 20)
    assert fingerprint(recovered(storage)) == fingerprint(writer.state)


@pytest.mark.parametrize("content", [b"", b"ZK", bytes(16), LOG_HEADER, LOG_HEADER + bytes(999)])
def test_log_that_was_only_begun_is_removed(content: bytes) -> None:
    storage, writer = written()
    path = f"{FOLDER}/log.{writer.state.zxid + 1:x}"
    storage.files[path] = bytearray(content)
    assert check_recovery(storage.clone(), writer.after.__getitem__) == writer.state.zxid
    recovered(storage)
    assert path not in storage.files


def test_unfinished_snapshot_is_removed() -> None:
    storage, _ = written()
    storage.files[f"{FOLDER}/snapshot.ff.tmp"] = bytearray(b"half")
    recovered(storage)
    assert f"{FOLDER}/snapshot.ff.tmp" not in storage.files


def test_state_that_was_served_survives_a_power_loss() -> None:
    storage = MemoryStorage()
    writer = Writer(storage, seed=3)
    writer.batch(5)
    writer.append(5)  # the process is killed before the fsync
    writer.store.close()
    state = recovered(storage)
    assert fingerprint(state) == fingerprint(writer.state)
    after_loss = storage.power_cut(lambda path, data, former: b"")
    assert fingerprint(recovered(after_loss)) == fingerprint(state)


def logged(*changes: Change) -> MemoryStorage:
    """Return a storage whose log has these changes, all by session 7."""
    storage = MemoryStorage()
    store = Store(storage, DIRECTORY)
    store.recover(new_state())
    store.append(
        [
            LoggedTransaction(7, 0, zxid, 1000, change)
            for zxid, change in enumerate(changes, start=1)
        ]
    )
    store.sync()
    store.close()
    return storage


def created(path: str, kind: int = codes.CREATE, *, is_ephemeral: bool = False) -> Created:
    return Created(kind, path, b"", ANYONE, is_ephemeral, 1)


def test_refused_multi_of_apache_changes_nothing() -> None:
    storage = logged(Multi((created("/a"), Failed(-2))), created("/b"))
    assert "/a" not in recovered(storage).tree.nodes
    assert "/b" in recovered(storage).tree.nodes


def test_ephemeral_node_without_its_session_is_deleted() -> None:
    state = recovered(logged(SessionOpened(9000), created("/kept", is_ephemeral=True)))
    assert state.tree.ephemerals == {7: {"/kept": None}}
    state = recovered(logged(created("/gone", is_ephemeral=True)))
    assert "/gone" not in state.tree.nodes
    assert state.zxid == 1


@pytest.mark.parametrize("in_multi", [False, True])
def test_node_with_a_time_to_live_is_refused(in_multi: bool) -> None:
    node = created("/ttl", codes.CREATE_TTL)
    change = Multi((node,)) if in_multi else node
    text = refusal(logged(change))
    assert text == (
        f"{FOLDER}: nodes with a time to live (TTL), which this server does not support: /ttl; delete them with"
        " Apache ZooKeeper first"
    )
    assert recovered(logged(change, Deleted("/ttl"))).zxid == 2


def test_node_with_a_time_to_live_in_a_snapshot_is_refused() -> None:
    state, storage = new_state(), MemoryStorage()
    state.tree.add("/ttl", DataNode(b"", ANYONE, 0, 0, owner=(-1 << 56) + 5000))
    Store(storage, DIRECTORY).recover(state)
    assert "does not support: /ttl; delete them" in refusal(storage.clone())


def test_snapshot_compressed_by_gzip_is_read() -> None:
    storage, writer = written()
    for path in snapshots_of(storage):
        content = storage.files.pop(path)
        storage.files[f"{path}.gz"] = bytearray(gzip.compress(content))
    assert fingerprint(recovered(storage)) == fingerprint(writer.state)


def test_snapshot_compressed_by_snappy_is_refused() -> None:
    storage, _ = written()
    newest = snapshots_of(storage)[-1]
    storage.rename(newest, f"{newest}.snappy")
    assert "is compressed with Snappy, which cannot be read here" in refusal(storage)
