"""Opening a log after a crash: valid batches stay, torn batches are truncated, a second recovery has no effect."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.storage.logs import (
    DIRECTORY,
    append,
    batch,
    end_marker,
    offsets,
    open_log,
    produce,
    read_all,
    remove_below,
    replicate,
    state_of,
    three_segments,
    transactional_batch,
)

from minikafka.kafka.records.header import HEADER, TRANSACTIONAL
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.epochs import decode as decode_epochs
from minikafka.storage.log.epochs import encode as encode_epochs
from minikafka.storage.log.log import Log
from minikafka.storage.log.producers import APPEND

SIZE = len(batch())


def path(base: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{base:020d}{suffix}"


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


def reopened(storage: MemoryStorage, *, clean: bool = False, **settings: Any) -> Log:
    return open_log(
        storage, clean=clean, segment_bytes=10 * SIZE, index_interval_bytes=2 * SIZE, **settings
    )


def test_start_after_a_clean_stop_restores_the_log_without_a_scan(storage: MemoryStorage) -> None:
    log = three_segments(storage)
    before = state_of(log)
    log.close()
    storage.files[path(0)][SIZE + 30] ^= 1  # a scan would find the damage and truncate the log
    assert state_of(reopened(storage, clean=True)) | {"data": b""} == before | {"data": b""}


@pytest.mark.row("R25")
@pytest.mark.parametrize("recovery_point", [0, 10, 13, 25])
def test_recovery_after_a_kill_restores_all_written_records(
    storage: MemoryStorage, recovery_point: int
) -> None:
    log = three_segments(storage)
    before = state_of(log)
    append(log, epoch=4)  # pending: never written
    again = state_of(reopened(storage.clone(), recovery_point=recovery_point))
    assert again | {"producers": b""} == before | {"producers": b""}


@pytest.mark.row("R25", "R72")
def test_recovery_restores_the_last_five_batches_of_producers(storage: MemoryStorage) -> None:
    three_segments(storage)
    log = reopened(storage.clone())
    for sequence in range(21, 25):
        header = HEADER.unpack_from(batch(producer_id=9, producer_epoch=0, base_sequence=sequence))
        assert log.producers.check(header) == sequence


def test_recovery_restores_the_coordinator_epoch_of_the_last_marker(storage: MemoryStorage) -> None:
    log = reopened(storage)
    append(log, transactional_batch(0))
    append(log, end_marker(coordinator_epoch=5))
    log.flush()
    (producer,) = reopened(storage.clone()).producers.active()
    assert (producer.coordinator_epoch, producer.transaction_start) == (5, -1)


@pytest.mark.row("R25")
@pytest.mark.parametrize("kept", [0, 1, 12, 30, 60, SIZE - 1])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(storage: MemoryStorage, kept: int) -> None:
    three_segments(storage)
    del storage.files[path(20)][3 * SIZE + kept :]
    log = reopened(storage)
    assert log.log_end_offset == 23
    assert len(storage.read(path(20))) == 3 * SIZE
    assert log.epochs.entries == [(0, 0), (1, 8), (2, 16)]
    assert offsets(read_all(log)) == list(range(23))
    assert storage.read(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n3\n0 0\n1 8\n2 16\n"


def test_a_torn_tail_is_cut_even_after_a_clean_stop(storage: MemoryStorage) -> None:
    """Otherwise the rest of the torn batch could follow a shorter batch that is written over its beginning."""
    three_segments(storage).close()
    storage.files[path(20)] += bytes(7)
    assert reopened(storage, clean=True).log_end_offset == 25
    assert len(storage.read(path(20))) == 5 * SIZE


def test_a_tail_of_zeros_is_cut(storage: MemoryStorage) -> None:
    three_segments(storage)
    storage.files[path(20)][4 * SIZE :] = bytes(3 * SIZE)
    assert reopened(storage).log_end_offset == 24
    assert len(storage.read(path(20))) == 4 * SIZE


@pytest.mark.parametrize("position", [5, 16, 18, 30, SIZE - 1])
def test_recovery_ends_the_log_at_the_first_damaged_batch(
    storage: MemoryStorage, position: int
) -> None:
    three_segments(storage)
    storage.files[path(10)][4 * SIZE + position] ^= 1
    log = reopened(storage)
    assert log.log_end_offset == 14
    assert not any(storage.exists(path(20, suffix)) for suffix in (".log", ".index", ".timeindex"))
    assert (
        log.producers.check(
            HEADER.unpack_from(batch(producer_id=9, producer_epoch=0, base_sequence=14))
        )
        == -1
    )
    assert not [name for name in storage.names(DIRECTORY) if "snapshot" in name]


def test_recovery_deletes_segments_behind_a_truncated_one(storage: MemoryStorage) -> None:
    three_segments(storage)
    del storage.files[path(10)][7 * SIZE :]
    log = reopened(storage)
    assert log.log_end_offset == 17
    assert DIRECTORY in log.storage.synced, "after a power loss, the segments would be back"
    produce(log, 1)
    assert offsets(read_all(log)) == list(range(18))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffixes", [(".log",), (".log", ".index", ".timeindex")])
def test_missing_segment_is_reported_and_later_segments_are_kept(
    storage: MemoryStorage, suffixes: tuple[str, ...], clean: bool
) -> None:
    three_segments(storage)
    whole = reopened(storage, clean=True)
    assert whole.gaps.lost_from is None
    whole.close()
    for suffix in suffixes:
        del storage.files[path(10, suffix)]
    log = reopened(storage, clean=clean, recovery_point=whole.log_end_offset)
    assert (log.gaps.lost_from, log.log_end_offset) == (10, whole.log_end_offset)
    log.truncate_to(10)
    assert offsets(read_all(log)) == list(range(10))


def test_one_missing_record_at_the_end_of_a_segment_is_reported(storage: MemoryStorage) -> None:
    three_segments(storage).close()
    del storage.files[path(10)][9 * SIZE :]
    assert reopened(storage, clean=True).gaps.lost_from == 19


def test_recovery_notices_a_missing_segment_also_without_index_files(
    storage: MemoryStorage,
) -> None:
    three_segments(storage)
    del storage.files[path(10)]
    for base in (0, 20):
        del storage.files[path(base, ".index")]
    assert reopened(storage, clean=True).gaps.lost_from == 10


@pytest.mark.row("R25")
def test_segments_below_the_recovery_point_are_not_scanned(storage: MemoryStorage) -> None:
    three_segments(storage)
    storage.files[path(0)][SIZE + 70] ^= 1
    assert reopened(storage.clone(), recovery_point=12).log_end_offset == 25
    assert reopened(storage.clone(), recovery_point=0).log_end_offset == 1


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_second_recovery_changes_nothing(data: st.DataObject) -> None:
    storage = MemoryStorage()
    three_segments(storage)
    recovery_point = data.draw(st.integers(0, 25))
    may_be_torn = [
        name
        for name in storage.names(DIRECTORY)
        if not name.endswith(".snapshot")
        and not (name.endswith(".log") and int(name[:20]) + 10 <= recovery_point)
    ]
    for _ in range(data.draw(st.integers(1, 3))):
        content = storage.files[f"{DIRECTORY}/{data.draw(st.sampled_from(may_be_torn))}"]
        if content and data.draw(st.booleans()):
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(
                st.integers(0, 7)
            )
        else:
            del content[data.draw(st.integers(0, len(content))) :]
    once = state_of(reopened(storage, recovery_point=recovery_point))
    twice = state_of(reopened(storage, recovery_point=min(recovery_point, once["end"])))
    assert once | {"producers": b""} == twice | {"producers": b""}
    assert offsets(once["data"]) == list(range(once["end"]))


def test_recovery_writes_the_same_index_files_as_the_roll_of_a_segment(
    storage: MemoryStorage,
) -> None:
    """Without the entry of the largest timestamp, the next start would have to read the segments again."""
    sizes = {"segment_bytes": 10 * SIZE, "index_interval_bytes": 3 * SIZE}
    log = open_log(storage, **sizes)
    for number in range(25):
        produce(log, 1, timestamp=1000 + number)
    files = [path(base, suffix) for base in (0, 10) for suffix in (".index", ".timeindex")]
    written = [storage.read(file) for file in files]
    for file in files:
        storage.remove(file)
    open_log(storage, **sizes)
    assert [storage.read(file) for file in files] == written


def test_start_deletes_old_snapshots_that_no_segment_begins_with(storage: MemoryStorage) -> None:
    three_segments(storage).close()
    content = storage.read(path(10, ".snapshot"))
    storage.write_atomically(path(13, ".snapshot"), content)
    reopened(storage, clean=True)
    kept = [name for name in storage.names(DIRECTORY) if name.endswith(".snapshot")]
    assert kept == [f"{offset:020d}.snapshot" for offset in (10, 20, 25)]


@pytest.mark.row("R25")
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "garbage"])
def test_damaged_index_is_rebuilt_from_the_log(
    storage: MemoryStorage, suffix: str, damage: str
) -> None:
    log = three_segments(storage)
    before = state_of(log)
    log.close()
    if damage == "missing":
        storage.remove(path(0, suffix))
    else:
        storage.files[path(0, suffix)][:] = b"" if damage == "empty" else b"\xff" * 24
    again = reopened(storage, clean=True)
    assert state_of(again) == before
    assert again.offset_for_timestamp(1005, 25) == (1005, 5, 0)
    assert storage.read(path(0, suffix))


@pytest.mark.parametrize("content", [None, b"", b"0\n1\n", b"0\n1\n7 99\n"])
def test_lost_epoch_file_is_rebuilt_from_the_batches(
    storage: MemoryStorage, content: bytes | None
) -> None:
    log = three_segments(storage)
    before = log.epochs.entries
    log.sync()
    name = f"{DIRECTORY}/leader-epoch-checkpoint"
    if content is None:
        storage.remove(name)
    else:
        storage.files[name][:] = content
    recovery_point = 0 if content and b"99" in content else 25
    assert reopened(storage.clone(), recovery_point=recovery_point).epochs.entries == before


def test_empty_log_that_kafka_created_is_opened_without_a_warning(
    storage: MemoryStorage, caplog: pytest.LogCaptureFixture
) -> None:
    storage.make_directories(DIRECTORY)
    for name in (path(0), f"{DIRECTORY}/leader-epoch-checkpoint"):
        storage.write_atomically(name, b"")
    log = reopened(storage, clean=True)
    assert caplog.messages == []
    append(log)
    log.flush()
    assert offsets(read_all(log)) == [0]


TRUE_EPOCHS = [(0, 0), (3, 4), (4, 12)]


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("recovery_point", [0, 11])
@pytest.mark.parametrize(
    "entries",
    [
        [],
        [(0, 0)],
        [(1, 0), (3, 4), (4, 12)],
        [(0, 1), (3, 4), (4, 12)],
        [(0, 0), (4, 12)],
        [(0, 0), (3, 4), (4, 9)],
        [(0, 0), (3, 4), (4, 13)],
        [(0, 0), (3, 5), (4, 12)],
        [(0, 0), (3, 4), (1000, 12)],
        [(0, 0), (3, 4), (4, 12), (1000, 14)],
        [(0, 0), (2, 4), (4, 12)],
        TRUE_EPOCHS,
    ],
    ids=str,
)
def test_wrong_epoch_file_is_rebuilt_from_the_batches(
    storage: MemoryStorage,
    entries: list[tuple[int, int]],
    recovery_point: int,
    is_clean: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = reopened(storage)
    for epoch, count in ((0, 4), (3, 8), (4, 3)):
        produce(log, *[1] * count, epoch=epoch)
    log.close()
    file = f"{DIRECTORY}/leader-epoch-checkpoint"
    assert log.epochs.entries == TRUE_EPOCHS
    storage.write_atomically(file, encode_epochs(entries))
    again = reopened(storage.clone(), clean=is_clean, recovery_point=recovery_point)
    assert again.epochs.entries == TRUE_EPOCHS
    assert decode_epochs(again.storage.read(file)) == TRUE_EPOCHS
    assert again.log_end_offset == 15
    if is_clean:
        assert (f"{file} does not match the log" in caplog.text) is (entries != TRUE_EPOCHS)


def test_epoch_without_a_record_at_the_log_end_is_removed(
    storage: MemoryStorage,
) -> None:
    log = three_segments(storage)
    log.epochs.assign(7, 25)
    assert reopened(storage.clone()).epochs.latest == 3


def test_log_restarts_at_a_start_offset_beyond_its_end(storage: MemoryStorage) -> None:
    three_segments(storage)
    log = reopened(storage, log_start_offset=40)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (40, 40, 0)
    assert log.epochs.entries == []
    produce(log, 1, epoch=5)
    assert offsets(read_all(log)) == [40]


def test_rebuilt_epochs_of_a_log_that_starts_inside_a_batch_begin_at_its_start(
    storage: MemoryStorage,
) -> None:
    log = reopened(storage)
    produce(log, 8, epoch=3)
    log.epochs.replace([(1, 5)])
    log.close()
    assert reopened(storage, clean=True, log_start_offset=5).epochs.entries == [(3, 5)]


def test_a_recovery_point_beyond_the_log_is_clamped_to_its_end(storage: MemoryStorage) -> None:
    three_segments(storage)
    assert reopened(storage, recovery_point=1000).recovery_point == 25


def test_leftover_files_of_a_crash_are_removed(storage: MemoryStorage) -> None:
    three_segments(storage)
    storage.write_atomically(f"{DIRECTORY}/{5:020d}.index", b"12345678")
    storage.write_atomically(f"{DIRECTORY}/leader-epoch-checkpoint.tmp", b"half")
    reopened(storage)
    assert not storage.exists(f"{DIRECTORY}/{5:020d}.index")
    assert not storage.exists(f"{DIRECTORY}/leader-epoch-checkpoint.tmp")


def test_batches_larger_than_a_scan_chunk_are_recovered(storage: MemoryStorage) -> None:
    log = open_log(storage)
    for size in (10, 3_000_000, 10, 1_500_000):
        produce(log, 1, size=size)
    again = open_log(storage.clone())
    assert read_all(again) == read_all(log)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "append",
                "append",
                "append",
                "flush",
                "flush",
                "cut",
                "restart",
                "kill",
                "start",
                "sync",
            ]
        ),
        st.integers(0, 100),
    ),
    max_size=40,
)


@given(STEPS)
@settings(max_examples=80, deadline=None)
def test_log_has_the_expected_records_after_random_appends_truncations_and_kills(
    steps: list[tuple[str, int]],
) -> None:
    """Compare the log with a list of epochs by offset, through random appends, truncations, kills and restarts."""
    storage = MemoryStorage()
    log = reopened(storage)
    model: list[int] = []
    written = 0
    epoch = 0
    for step, number in steps:
        if step == "append":
            append(log, batch(number % 4 + 1, timestamp=1000 + number), epoch=epoch)
            model += [epoch] * (number % 4 + 1)
        elif step == "cut":
            log.flush()
            target = log.locate(max(log.log_start_offset, len(model) * number // 100))
            at = max(log.log_start_offset, len(model) * number // 100)
            log.truncate_to(at)
            assert log.position == target
            del model[log.log_end_offset :]
            written = len(model)
            epoch += 1
        elif step == "start":
            log.advance_log_start_offset(written * number // 100)
        elif step == "kill":
            storage = storage.clone()
            log = reopened(
                storage, recovery_point=log.recovery_point, log_start_offset=log.log_start_offset
            )
            del model[written:]
        elif step == "restart":
            log.close()
            log = reopened(storage, clean=True, log_start_offset=log.log_start_offset)
            written = len(model)
        else:
            log.sync() if step == "sync" else log.flush()
            written = len(model)
        # The start of a new segment also writes the pending batches.
        written = max(written, log.written_log_end_offset)
        assert log.log_end_offset == len(model)
        assert log.written_log_end_offset == written
    data = read_all(log, 300)
    read = offsets(data)
    assert read == list(range(read[0], written)) if read else written <= log.log_start_offset
    assert all(
        log.epochs.epoch_of(offset) == model[offset]
        for offset in read
        if offset >= log.log_start_offset
    )
    follower = open_log(MemoryStorage(), log_start_offset=read[0]) if read else None
    if follower is not None:
        replicate(follower, data)
        assert read_all(follower) == data


def test_snapshot_at_the_start_of_the_log_is_used_after_a_kill() -> None:
    storage = MemoryStorage()
    log = open_log(storage, segment_bytes=10 * SIZE)
    produce(log, 1, producer_id=8, producer_epoch=0, base_sequence=0)
    produce(log, *[1] * 25)
    remove_below(log, 20)
    again = reopened(storage, log_start_offset=20)
    assert again.producers.last_of(8) == (0, 0)


def test_snapshot_of_truncated_records_that_a_power_loss_brings_back_is_not_used() -> None:
    storage = MemoryStorage()
    log = three_segments(storage)
    log.sync()
    stale = {offset: storage.read(path(offset, ".snapshot")) for offset in (10, 20)}
    log.truncate_to(4)
    for number in range(20):
        produce(log, 1, epoch=5, producer_id=8, producer_epoch=0, base_sequence=number)
    left = storage.clone()
    for offset, content in stale.items():
        left.files[path(offset, ".snapshot")] = bytearray(content)
    again = reopened(left, recovery_point=log.recovery_point)
    assert again.producers.last_of(8) == (0, 19)
    assert again.producers.last_of(9) == (0, 3)
    assert again.producers.written_below(8) == log.producers.written_below(8)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 2, 4])
def test_first_producer_with_the_first_values_is_recovered(
    clean: bool, recovery_point: int
) -> None:
    """Producer id, epoch, sequence number and offset are 0; the transaction at offset 0 stays open."""
    storage = MemoryStorage()
    first = {"producer_id": 0, "producer_epoch": 0}
    log = open_log(storage, segment_bytes=2 * SIZE)
    append(log, transactional_batch(0, producer=0))
    produce(log, 1, **first, base_sequence=1, attributes=TRANSACTIONAL)
    produce(log, 1, producer_id=5, producer_epoch=0, base_sequence=0)
    produce(log, 1)
    follower = open_log(MemoryStorage(), segment_bytes=2 * SIZE)
    replicate(follower, read_all(log))
    if clean:
        log.close()
    again = open_log(storage, clean=clean, recovery_point=recovery_point, segment_bytes=2 * SIZE)
    for each in (log, follower, again):
        assert each.producers.last_of(0) == (0, 1)
        assert each.producers.is_in_transaction(0, 0)
        assert each.producers.first_unstable_offset(4) == 0
        assert each.producers.check(HEADER.unpack_from(transactional_batch(0, producer=0))) == 0
        aborted = end_marker(producer=0, commit=False)
        append(each, aborted)
        each.flush()
        assert each.aborted_transactions(0, 1) == [(0, 0)]


@pytest.mark.parametrize("way", ["snapshot", "batches"])
def test_producer_whose_sequence_number_has_wrapped_is_recovered(way: str) -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    fields = {"producer_id": 0, "producer_epoch": 0}
    last = 2**31 - 1
    produce(log, 1, **fields, base_sequence=last - 3)
    produce(log, 4, **fields, base_sequence=last - 2)
    produce(log, 2, **fields, base_sequence=1)
    if way == "snapshot":
        log.close()
    again = open_log(storage, clean=way == "snapshot")
    assert again.producers.last_of(0) == (0, 2)
    for count, sequence, offset in ((1, last - 3, 0), (4, last - 2, 1), (2, 1, 5)):
        retry = batch(count, **fields, base_sequence=sequence)
        assert again.producers.check(HEADER.unpack_from(retry)) == offset
    assert again.producers.check(HEADER.unpack_from(batch(**fields, base_sequence=3))) == APPEND


@pytest.mark.parametrize("way", ["snapshot", "batches"])
@pytest.mark.parametrize("last_count", [1, 3])
def test_batch_in_which_the_sequence_number_wraps_is_recovered_as_the_last(
    way: str, last_count: int
) -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    fields = {"producer_id": 0, "producer_epoch": 0}
    first = 2**31 - last_count
    produce(log, 1, **fields, base_sequence=first - 1)
    produce(log, last_count + 1, **fields, base_sequence=first)
    if way == "snapshot":
        log.close()
        content = storage.read(path(log.log_end_offset, ".snapshot"))
        entry = struct.unpack_from(">qhiqi", content, 10)
        assert entry == (0, 0, 0, last_count + 1, last_count), "as Kafka reads it"
    again = open_log(storage, clean=way == "snapshot")
    for count, sequence, offset in ((1, first - 1, 0), (last_count + 1, first, 1)):
        retry = batch(count, **fields, base_sequence=sequence)
        assert again.producers.check(HEADER.unpack_from(retry)) == offset
    (producer,) = again.producers.active()
    assert (producer.last_sequence, again.producers.last_batches()) == (
        0,
        [(0, last_count + 1, 0)],
    )
