"""The copy of a log in another directory: it becomes equal whatever happens to the log meanwhile."""

from __future__ import annotations

import random

import pytest
from support.storage.aborted import check_indexes
from support.storage.logs import (
    append,
    batch,
    clean,
    compacted,
    end_marker,
    offsets,
    open_log,
    produce,
    read_all,
    remove_below,
    transactional_batch,
)

from minikafka.base.errors import CorruptBatch
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.copying import LogCopy, read_range
from minikafka.storage.log.log import Log

FUTURE = "/e/t-0.0-future"
SIZE = len(batch())


def copy_of(replica: Log, *, future: Log | None = None) -> LogCopy:
    storage = replica.storage
    storage.make_directories("/e")
    return LogCopy(replica, future or open_log(storage, directory=FUTURE, segment_bytes=5 * SIZE))


def step(copy: LogCopy, size: int = 2 * SIZE) -> bool:
    """Copy one range; return False if there is none."""
    if not copy.is_agreed:
        copy.agree()
    wanted = copy.next_range(size)
    if wanted is not None:
        copy.append(read_range(copy.replica.storage, wanted))
    return wanted is not None


def finish(copy: LogCopy) -> None:
    while step(copy):
        pass
    copy.raise_start()
    assert copy.is_complete()
    copy.save_producers()


def check_equal(copy: LogCopy) -> None:
    replica, future = copy.replica, copy.future
    assert future.log_start_offset == replica.log_start_offset
    assert future.log_end_offset == replica.log_end_offset
    assert served(future) == served(replica)
    check_indexes(future)


def served(log: Log) -> bytes:
    """Return the bytes from the batch of the log start offset on."""
    return read_all(log)[log.locate(log.log_start_offset) - log.segments[0].start :]


def equalize(copy: LogCopy) -> None:
    """Let the copy replace the replica, and check its epochs and producers, also after a clean restart."""
    replica, future = copy.replica, copy.future
    expected = replica.epochs.entries, replica.producers.encode()
    copy.equalize()
    assert (future.epochs.entries, future.producers.encode()) == expected
    assert future.recovery_point >= replica.recovery_point
    future.sync()
    again = open_log(
        replica.storage.clone(),
        directory=FUTURE,
        recovery_point=future.recovery_point,
        log_start_offset=future.log_start_offset,
    )
    assert again.producers.encode() == expected[1]


def test_copy_has_the_batches_epochs_and_producers_of_the_replica() -> None:
    replica = open_log(MemoryStorage(), segment_bytes=5 * SIZE)
    for sequence in range(12):
        append(replica, transactional_batch(sequence), epoch=sequence // 5)
    append(replica, end_marker(commit=False), epoch=2)
    replica.flush()
    replica.epochs.assign(7, replica.log_end_offset)
    copy = copy_of(replica)
    finish(copy)
    check_equal(copy)
    equalize(copy)
    assert copy.future.aborted_transactions(0, 13) == [(7, 0)]
    assert copy.future.epochs.latest == 7, "an epoch without records"


def test_copy_follows_appends_while_it_is_made() -> None:
    replica = open_log(MemoryStorage())
    produce(replica, 1, 1, 1)
    copy = copy_of(replica)
    step(copy)
    produce(replica, 1, 1)
    append(replica)
    finish_without_pending(copy)
    assert copy.future.log_end_offset == 5, "pending batches are not written yet"


def finish_without_pending(copy: LogCopy) -> None:
    while step(copy):
        pass
    assert not copy.is_complete()


def test_batch_that_is_larger_than_a_range_is_copied() -> None:
    replica = open_log(MemoryStorage())
    produce(replica, 1, size=5000)
    produce(replica, 1)
    copy = copy_of(replica)
    finish(copy)
    check_equal(copy)


def test_damaged_batch_is_not_copied() -> None:
    storage = MemoryStorage()
    replica = open_log(storage)
    produce(replica, 1, 1)
    storage.files["/d/t-0/00000000000000000000.log"][SIZE + 70] ^= 1
    copy = copy_of(replica)
    with pytest.raises(CorruptBatch):
        finish(copy)
    assert copy.future.log_end_offset <= 1


def test_records_that_replace_truncated_records_are_copied() -> None:
    replica = open_log(MemoryStorage())
    produce(replica, *[1] * 10, epoch=3)
    copy = copy_of(replica)
    finish(copy)
    replica.truncate_to(6)
    produce(replica, *[1] * 8, epoch=4, size=11)
    assert not copy.is_agreed
    assert not copy.is_complete()
    finish(copy)
    check_equal(copy)


def test_copy_of_a_log_that_began_again_begins_again() -> None:
    replica = open_log(MemoryStorage())
    produce(replica, *[1] * 10)
    copy = copy_of(replica)
    finish(copy)
    replica.truncate_fully_and_start_at(4)
    produce(replica, 1, epoch=2, size=11)
    finish(copy)
    check_equal(copy)
    assert offsets(read_all(copy.future)) == [4]


def test_producers_of_deleted_records_are_copied() -> None:
    replica = open_log(MemoryStorage(), segment_bytes=2 * SIZE)
    append(replica, batch(producer_id=5, producer_epoch=1, base_sequence=0))
    replica.flush()
    produce(replica, *[1] * 8)
    remove_below(replica, 6)
    copy = copy_of(replica)
    finish(copy)
    check_equal(copy)
    replica.sync()
    equalize(copy)
    assert copy.future.producers.last_of(5) == (1, 0)


def test_records_that_were_deleted_after_they_were_copied_cannot_be_read() -> None:
    replica = open_log(MemoryStorage(), segment_bytes=3 * SIZE)
    produce(replica, *[1] * 9)
    copy = copy_of(replica)
    finish(copy)
    replica.advance_log_start_offset(4)
    assert not copy.is_complete()
    finish(copy)
    assert copy.future.log_start_offset == 4


def test_copy_of_a_compacted_log_accepts_its_gaps() -> None:
    replica = compacted(MemoryStorage(), *range(12), segment_bytes=5 * SIZE)
    clean(replica, 0, lambda offset: offset % 2 == 0)
    replica.gaps.accept(5)
    copy = copy_of(replica)
    while step(copy):
        pass
    assert not copy.is_complete(), "its first dirty offset differs"
    copy.future.gaps.accept(5)
    finish(copy)
    check_equal(copy)


def test_copy_goes_on_after_a_restart() -> None:
    storage = MemoryStorage()
    replica = open_log(storage, segment_bytes=5 * SIZE)
    produce(replica, *[1] * 20, epoch=1)
    copy = copy_of(replica)
    for _ in range(3):
        step(copy)
    end = copy.future.log_end_offset
    after = storage.clone()
    again = open_log(after, segment_bytes=5 * SIZE)
    copied = LogCopy(again, open_log(after, directory=FUTURE, segment_bytes=5 * SIZE))
    copied.agree()
    assert copied.future.log_end_offset == end > 0
    finish(copied)
    check_equal(copied)


class Schedule:
    """Random changes of a replica's log, which is copied meanwhile."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.storage = MemoryStorage()
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.open_()
        self.copy = copy_of(self.replica)

    def open_(self) -> None:
        self.replica = open_log(self.storage, segment_bytes=self.rng.choice((3, 7)) * SIZE)

    def append(self) -> None:
        producer = self.rng.randrange(6)
        if producer > 3:
            append(self.replica, batch(self.rng.randint(1, 3)), epoch=self.epoch)
        elif self.rng.random() < 0.3:
            commit = self.rng.random() < 0.5
            append(self.replica, end_marker(producer=producer, commit=commit), epoch=self.epoch)
        else:
            epoch, sequence = self.replica.producers.last_of(producer)
            data = transactional_batch(sequence + 1, producer=producer, epoch=max(epoch, 0))
            append(self.replica, data, epoch=self.epoch)
        self.replica.flush()

    def elect(self) -> None:
        self.epoch += self.rng.randint(1, 2)
        if self.rng.random() < 0.3:
            self.replica.epochs.assign(self.epoch, self.replica.log_end_offset)

    def truncate(self) -> None:
        """Truncate the log as a follower of a new leader does."""
        low, end = self.replica.log_start_offset, self.replica.log_end_offset
        if end > low:
            self.replica.truncate_to(self.rng.randint(max(low, end - 8), end))
            self.replica.epochs.truncate_from_end(self.replica.log_end_offset)
        self.epoch += 1

    def begin_again(self) -> None:
        self.replica.truncate_fully_and_start_at(
            self.replica.log_end_offset + self.rng.choice((0, 3))
        )
        self.epoch += 1

    def delete(self) -> None:
        low, end = self.replica.log_start_offset, self.replica.log_end_offset
        self.replica.advance_log_start_offset(self.rng.randint(low, end))
        if self.rng.random() < 0.7:
            self.replica.remove_first_segments(
                self.replica.segments.count_below(self.replica.log_start_offset)
            )

    def restart(self) -> None:
        """Open both logs again, without a clean stop."""
        start, future_start = self.replica.log_start_offset, self.copy.future.log_start_offset
        self.storage = self.storage.clone()
        self.replica = open_log(self.storage, log_start_offset=start, segment_bytes=5 * SIZE)
        future = open_log(
            self.storage, directory=FUTURE, log_start_offset=future_start, segment_bytes=4 * SIZE
        )
        self.copy = LogCopy(self.replica, future)

    def run(self, steps: int) -> None:
        changes = [self.append] * 30 + [self.elect] * 4 + [self.truncate] * 3
        changes += [self.begin_again, self.delete, self.delete, self.restart]
        for _ in range(steps):
            self.rng.choice(changes)()
            for _ in range(self.rng.randrange(3)):
                step(self.copy, self.rng.choice((SIZE, 3 * SIZE)))
            if self.rng.random() < 0.05:
                finish(self.copy)
                check_equal(self.copy)
        finish(self.copy)
        check_equal(self.copy)
        equalize(self.copy)


def test_copy_becomes_equal_after_random_changes() -> None:
    for seed in range(15):
        Schedule(seed).run(60)
