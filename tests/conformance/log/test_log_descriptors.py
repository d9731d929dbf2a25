"""A log whose files cannot be opened, because no file descriptor is free: nothing is lost, and it is tried again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from support.storage.logs import (
    DIRECTORY,
    append,
    batch,
    offsets,
    open_log,
    produce,
    read_all,
    replicate,
)

from minikafka.base.errors import StorageFailed
from minikafka.simulation.descriptors import FewDescriptors
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.log import Log
from minikafka.storage.log.segments.segment import LOG

SIZE = len(batch(2))
SETTINGS = {"segment_bytes": 2 * SIZE, "index_interval_bytes": 1}


def kept(log: Log) -> list[int]:
    return offsets(read_all(log))


def whole(storage: MemoryStorage) -> Log:
    """Return the log as the next start recovers it after a crash."""
    return open_log(storage.clone(), **SETTINGS)


def with_records(storage: MemoryStorage) -> Log:
    log = open_log(storage, **SETTINGS)
    for epoch in (0, 1):
        append(log, batch(2), epoch=epoch)
    log.flush()
    return log


def produces_another_segment(log: Log) -> None:
    produce(log, 2, epoch=1)


def begins_an_epoch(log: Log) -> None:
    produce(log, 2, epoch=5)


def follows(log: Log) -> None:
    replicate(log, bytes(batch(2, base_offset=log.log_end_offset, leader_epoch=5)))


def truncates(log: Log) -> None:
    log.truncate_to(2)


def restarts(log: Log) -> None:
    log.truncate_fully_and_start_at(9)


def syncs(log: Log) -> None:
    log.sync()


OPERATIONS = (
    produces_another_segment,
    begins_an_epoch,
    follows,
    truncates,
    restarts,
    syncs,
)


@pytest.mark.parametrize("operate", OPERATIONS)
def test_operation_succeeds_later_if_any_one_opening_finds_no_descriptor(
    operate: Callable[[Log], None],
) -> None:
    expected = with_records(MemoryStorage())
    operate(expected)
    for number in count():
        storage = MemoryStorage()
        log = with_records(storage)
        few = FewDescriptors(storage)
        few.fail_only(number)
        before = kept(log)
        try:
            operate(log)
        except StorageFailed as failure:
            few.heal()
            if "in the middle of a change" in str(failure):
                continue  # the log directory goes offline, and the next start recovers the log
            assert kept(log) == before
            operate(log)
        few.heal()
        assert (kept(log), log.epochs.entries) == (kept(expected), expected.epochs.entries)
        assert (log.log_end_offset, log.recovery_point) == (
            expected.log_end_offset,
            expected.recovery_point,
        )
        log.checkpoint_indexes()
        assert whole(storage).epochs.entries == whole(expected.storage).epochs.entries
        assert kept(whole(storage)) == kept(whole(expected.storage))
        if not few.failed:
            return


@pytest.mark.parametrize("missing", ["/", f"{DIRECTORY}/{4:020d}.timeindex"])
def test_batches_go_into_the_full_segment_until_a_descriptor_is_free(missing: str) -> None:
    storage = MemoryStorage()
    log = with_records(storage)
    few = FewDescriptors(storage)
    few.lacks = lambda path, at: path.startswith(missing) or path.endswith(f"{6:020d}.timeindex")
    produce(log, 2, 2)
    assert few.failed
    assert (len(log.segments), log.written_log_end_offset) == (1, 8)
    assert not storage.exists(f"{log.directory}/{4:020d}{LOG}")
    few.heal()
    produce(log, 2)
    assert [segment.base_offset for segment in log.segments] == [0, 8]
    assert kept(whole(storage)) == list(range(10))


def test_batch_is_refused_if_the_full_segment_cannot_hold_its_offset() -> None:
    storage = MemoryStorage()
    log = with_records(storage)
    FewDescriptors(storage).fail_all()
    log._roll_last_offset = 4
    with pytest.raises(StorageFailed) as caught:
        append(log, batch(2), epoch=1)
    assert caught.value.lacks_descriptors
    assert (log.log_end_offset, log.pending) == (4, [])


@pytest.mark.parametrize("number", range(4))
def test_first_batch_is_appended_later_if_a_new_log_gets_no_descriptor(number: int) -> None:
    storage = MemoryStorage()
    log = open_log(storage, **SETTINGS)
    few = FewDescriptors(storage)
    few.fail_only(number)
    with pytest.raises(StorageFailed) as caught:
        append(log, batch(2), epoch=3)
    assert caught.value.lacks_descriptors
    assert (log.log_end_offset, log.pending, storage.names(log.directory)) == (0, [], [])
    few.heal()
    produce(log, 2, epoch=3)
    assert kept(log) == kept(whole(storage)) == [0, 1]
    assert log.epochs.entries == [(3, 0)]


def test_log_that_restarts_without_a_descriptor_creates_its_files_later() -> None:
    storage = MemoryStorage()
    log = with_records(storage)
    few = FewDescriptors(storage)
    few.lacks = lambda path, at: path.endswith(LOG)
    log.truncate_fully_and_start_at(9)
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    with pytest.raises(StorageFailed):
        append(log, batch(2), epoch=2)
    few.heal()
    produce(log, 2, epoch=2)
    assert kept(log) == kept(whole(storage)) == [9, 10]


def test_records_without_an_fsync_for_lack_of_a_descriptor_are_not_acknowledged() -> None:
    storage = MemoryStorage()
    log = open_log(storage, flush_messages=1)
    produce(log, 2)
    few = FewDescriptors(storage)
    few.fail_all()
    append(log, batch(2))
    with pytest.raises(StorageFailed) as caught:
        log.flush()
    assert caught.value.lacks_descriptors
    assert log.recovery_point == 2
    few.heal()
    produce(log, 2)
    assert (log.recovery_point, kept(whole(storage))) == (6, list(range(6)))


def test_truncation_without_a_descriptor_keeps_the_recovery_point() -> None:
    storage = MemoryStorage()
    log = with_records(storage)
    log.sync()
    few = FewDescriptors(storage)

    def persist() -> None:
        storage.write_atomically("/d/recovery-point-offset-checkpoint", b"%d" % log.recovery_point)

    log.write_checkpoints = persist
    few.fail_all()
    with pytest.raises(StorageFailed):
        log.truncate_to(2)
    assert log.recovery_point == 4
    few.heal()
    log.truncate_to(2)
    assert storage.read("/d/recovery-point-offset-checkpoint") == b"2"
