"""Producer state: duplicates, sequence errors, transactions and snapshots."""

from __future__ import annotations

import struct
import tracemalloc
from random import Random

import pytest
from support.storage.logs import batch, end_marker, transactional_batch

from minikafka.base.errors import ErrorCode
from minikafka.kafka.records.codecs import crc32c
from minikafka.kafka.records.header import HEADER, Header
from minikafka.kafka.records.transactions import COMMIT
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.producer_table import UNPACKED_MAX, ProducerRoom
from minikafka.storage.log.producers import APPEND, EARLY, FULL, UNKNOWN, WRITTEN, ProducerStates

OUT_OF_ORDER = -int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
FENCED = -int(ErrorCode.INVALID_PRODUCER_EPOCH)
LAST = 2**31 - 1


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7, timestamp: int = 1000
) -> Header:
    data = batch(
        count,
        timestamp=timestamp,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return HEADER.unpack_from(data)


@pytest.fixture
def states() -> ProducerStates:
    storage = MemoryStorage()
    storage.make_directories("/d")
    return ProducerStates(storage, "/d")


def test_only_the_first_batch_of_an_unknown_producer_may_be_appended(
    states: ProducerStates,
) -> None:
    assert states.check(header(0)) == APPEND
    assert states.check(header(55)) == UNKNOWN


def test_next_sequence_may_be_appended_but_not_a_sequence_after_a_gap(
    states: ProducerStates,
) -> None:
    states.update(header(0, 3), 100)
    assert states.check(header(3)) == APPEND
    assert states.check(header(4)) == EARLY
    assert states.check(header(1)) == OUT_OF_ORDER, (
        "overlaps a remembered batch with other boundaries"
    )


@pytest.mark.row("R72")
def test_duplicate_of_one_of_the_last_five_batches_gets_the_original_offset(
    states: ProducerStates,
) -> None:
    for i in range(7):
        states.update(header(2 * i, 2), 100 + 2 * i)
    assert [states.check(header(2 * i, 2)) for i in range(7)] == [
        WRITTEN, WRITTEN, 104, 106, 108, 110, 112,
    ]  # fmt: skip
    assert states.check(header(12, 3)) == OUT_OF_ORDER, "same first sequence, but more"


def test_batch_older_than_the_last_five_is_recognized_as_a_duplicate(
    states: ProducerStates,
) -> None:
    """A Java producer can have more than five batches in flight when it changes to the next leader."""
    states.update(header(0), 100)
    for i in range(1, 300):
        states.update(header(i), 100 + i)
    assert states.check(header(0)) == WRITTEN
    assert states.check(header(286, 9)) == WRITTEN
    assert states.written_below(7) == 395, "the oldest of the last five"
    assert states.check(header(294, 2)) == OUT_OF_ORDER, (
        "overlaps a remembered batch with other boundaries"
    )
    assert states.check(header(299, 2)) == OUT_OF_ORDER, "half of it is new"
    assert states.check(header(301)) == EARLY, "a gap"


def test_sequences_before_the_first_known_batch_are_out_of_order(
    states: ProducerStates,
) -> None:
    """Batches before the first known batch may be lost, so a retry of such a batch must not pass as a duplicate."""
    states.update(header(5), 100)
    assert states.check(header(4)) == OUT_OF_ORDER
    assert states.check(header(0, 5)) == OUT_OF_ORDER
    states.update(header(0, epoch=1), 101)
    states.update(header(7, epoch=1), 102)
    assert states.check(header(0, epoch=1)) == 101
    assert states.check(header(5, 2, epoch=1)) == OUT_OF_ORDER, "in the gap"


def test_older_batches_are_duplicates_after_the_sequence_wrapped_to_zero(
    states: ProducerStates,
) -> None:
    for i in range(10):
        states.update(header((LAST - 3 + i) % 2**31), 100 + i)
    assert states.check(header(LAST - 3)) == WRITTEN
    assert states.check(header(LAST - 2, 3)) == WRITTEN
    assert states.check(header(LAST - 4)) == OUT_OF_ORDER
    assert states.check(header(7)) == EARLY


def test_restored_snapshot_recognizes_batches_older_than_the_last_five(
    states: ProducerStates,
) -> None:
    """A producer may have five batches in flight when a broker is restarted and then elected."""
    for i in range(10):
        states.update(header(2 * i, 2), 100 + 2 * i)
    states.update(header(5, producer=8), 120)
    states.update(header(-1, producer=9), 121)
    known = [states.check(header(2 * i, 2)) for i in range(11)]
    states.snapshot(122)
    states.restore(122)
    assert [states.check(header(2 * i, 2)) for i in range(11)] == known
    assert known == [WRITTEN] * 5 + [110, 112, 114, 116, 118, APPEND]
    assert states.check(header(5, producer=8)) == 120
    states.update(header(20, 2), 122)
    assert states.check(header(10, 2)) == WRITTEN


def test_snapshot_in_kafkas_format_restores_only_the_last_batch(states: ProducerStates) -> None:
    for i in range(10):
        states.update(header(2 * i, 2), 100 + 2 * i)
    data = states.encode()[: -(16 + 4 * 16)]
    storage = states._storage
    crc = struct.pack(">I", crc32c(data[6:]))
    storage.write_atomically("/d/00000000000000000120.snapshot", data[:2] + crc + data[6:])
    assert states.restore(120) == 120
    assert states.check(header(18, 2)) == 118
    assert states.check(header(16, 2)) == OUT_OF_ORDER


@pytest.mark.parametrize("size", [1, 15, 16, 79])
def test_snapshot_with_a_valid_crc_but_a_truncated_end_is_ignored(
    states: ProducerStates, size: int
) -> None:
    for i in range(10):
        states.update(header(2 * i, 2), 100 + 2 * i)
    data = states.encode()[: size - (16 + 4 * 16)]
    crc = struct.pack(">I", crc32c(data[6:]))
    states._storage.write_atomically("/d/00000000000000000120.snapshot", data[:2] + crc + data[6:])
    assert states.restore(120) == -1


def test_sequences_wrap_to_zero(states: ProducerStates) -> None:
    states.update(header(LAST - 1, 2), 0)
    assert states.check(header(0)) == APPEND
    states.update(header(LAST, 3), 10)
    assert states.check(header(2)) == APPEND
    assert states.check(header(LAST, 3)) == 10


def test_older_producer_epoch_is_fenced_and_a_newer_epoch_begins_at_sequence_0(
    states: ProducerStates,
) -> None:
    states.update(header(0, epoch=3), 0)
    assert states.check(header(1, epoch=2)) == FENCED
    assert states.check(header(0, epoch=4)) == APPEND
    assert states.check(header(1, epoch=4)) == EARLY
    states.update(header(0, epoch=4), 1)
    assert states.check(header(0, epoch=3)) == FENCED


def test_snapshot_has_kafkas_format_version_1_with_a_crc(states: ProducerStates) -> None:
    states.update(header(4, 3, epoch=2, timestamp=500), 50)
    data = states.encode()
    entries = struct.pack(">qhiqiqiq", 7, 2, 6, 52, 2, 502, -1, -1)
    count = struct.pack(">i", 1)
    assert data == struct.pack(">hI", 1, crc32c(count + entries)) + count + entries


def test_newest_valid_snapshot_below_the_log_end_is_restored(states: ProducerStates) -> None:
    states.update(header(0, 3), 0)
    states.snapshot(3)
    states.update(header(3, 3), 3)
    states.snapshot(6)
    states.snapshot(99)
    storage = states._storage
    storage.write_atomically("/d/00000000000000000008.snapshot", b"rotten")
    assert states.restore(10) == 6
    assert states.snapshot_offsets() == [3, 6], "a newer and an unreadable one are gone"
    assert states.check(header(3, 3)) == 3
    assert states.check(header(6)) == APPEND
    assert states.restore(5) == 3
    assert states.check(header(3)) == APPEND
    assert states.restore(2) == -1
    assert len(states) == 0


def test_only_the_newest_snapshot_and_snapshots_at_segment_starts_are_kept(
    states: ProducerStates,
) -> None:
    for offset in (1, 2, 3, 4):
        states.snapshot(offset)
    states.keep_snapshots({2})
    assert states.snapshot_offsets() == [2, 4]
    states.clear()
    assert states.snapshot_offsets() == []


def test_a_producer_expires_when_it_was_idle_and_its_batches_are_old(
    states: ProducerStates,
) -> None:
    states.update(header(0, producer=1, timestamp=0), 0)
    states.update(header(0, producer=2, timestamp=950), 1)
    states.expire(1000, 100)
    assert len(states) == 2, "old timestamps alone do not make a producer idle"
    states.expire(1000, 100)
    assert len(states) == 1
    states.expire(1050, 100)
    assert len(states) == 0


MANY = 3 * UNPACKED_MAX


def test_batches_of_many_producers_in_turn_are_all_recognized(states: ProducerStates) -> None:
    """Only the states of the producers that have appended last are kept unpacked."""
    for i in range(7):
        for producer in range(MANY):
            assert states.check(header(2 * i, 2, producer=producer)) == APPEND
            states.update(header(2 * i, 2, producer=producer), 1000 * i + 2 * producer)
    assert len(states) == MANY
    for producer in range(MANY):
        known = [states.check(header(2 * i, 2, producer=producer)) for i in range(8)]
        at = [1000 * i + 2 * producer for i in range(2, 7)]
        assert known == [WRITTEN, WRITTEN, *at, APPEND]
        assert states.last_of(producer) == (0, 13)
    assert len(states) == MANY
    states.snapshot(9999)
    again = ProducerStates(states._storage, "/d")
    assert again.restore(9999) == 9999
    assert sorted(again.active()) == sorted(states.active())
    assert again.check(header(0, 2, producer=5)) == WRITTEN


def test_producers_of_single_batches_take_little_memory(states: ProducerStates) -> None:
    headers = [header(0, producer=producer) for producer in range(2)]
    count = 20_000
    tracemalloc.start()
    try:
        for producer in range(count):
            fields = list(headers[0])
            fields[-4] = 10**12 + producer
            states.update(tuple(fields), producer)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(states) == count
    assert size < 250 * count


def test_new_producers_are_refused_when_the_broker_knows_too_many(states: ProducerStates) -> None:
    room = ProducerRoom(MANY)
    states.share(room)
    for producer in range(MANY):
        states.update(header(0, producer=producer), producer)
    assert states.check(header(0, producer=MANY)) == FULL
    assert states.check(header(5, producer=MANY)) == FULL
    assert [states.check(header(0, producer=one)) for one in range(MANY)] == [*range(MANY)]
    assert states.check(header(1, producer=0)) == APPEND
    assert states.check(header(0, producer=0, epoch=1)) == APPEND, "not a new id"
    states.update(header(0, producer=0, epoch=1), 500)
    assert room.count == MANY
    states.clear()
    assert room.count == 0
    assert states.check(header(0, producer=MANY)) == APPEND


def test_producers_that_are_idle_for_the_longest_are_forgotten_first(
    states: ProducerStates,
) -> None:
    states.update(transactional(0, producer=1), 0)
    for producer in range(2, MANY):
        states.update(header(0, producer=producer), producer)
    states.expire(0, 1)
    for producer in range(MANY, 2 * MANY):
        states.update(header(0, producer=producer), producer)
    states.expire(0, 1)
    states.forget_idle(2, MANY)
    assert len(states) == 2 * MANY - 1, "none was idle for two rounds"
    states.forget_idle(1, 10)
    assert len(states) == 2 * MANY - 11
    states.forget_idle(1, 10 * MANY)
    left = [one.producer_id for one in states.active()]
    assert sorted(left) == [1, *range(MANY, 2 * MANY)], "1 has an open transaction"


def test_transaction_marker_leaves_the_sequence_unchanged(
    states: ProducerStates,
) -> None:
    states.update(header(0, 2, epoch=0), 0)
    states.update(header(-1, epoch=0), 2)
    assert states.check(header(2, epoch=0)) == APPEND


def test_active_producers_are_listed(states: ProducerStates) -> None:
    assert list(states.active()) == []
    states.update(header(0, 3, timestamp=1000), 100)
    states.update(header(5, 1, epoch=2, producer=8, timestamp=2000), 103)
    assert list(states.active()) == [(7, 0, 2, 1002, -1, -1), (8, 2, 5, 2000, -1, -1)]


def transactional(sequence: int, *, epoch: int = 0, producer: int = 7) -> Header:
    return HEADER.unpack_from(transactional_batch(sequence, epoch=epoch, producer=producer))


def marker(*, epoch: int = 0, producer: int = 7) -> Header:
    return HEADER.unpack_from(end_marker(epoch=epoch, producer=producer))


class TestTransactions:
    def test_first_batch_opens_a_transaction_and_a_marker_ends_it(
        self, states: ProducerStates
    ) -> None:
        states.update(header(0), 10)
        assert states.first_unstable_offset(100) is None
        states.update(transactional(1), 11)
        states.update(transactional(2), 12)
        assert states.first_unstable_offset(100) == 11
        assert next(states.active()).transaction_start == 11
        states.update(marker(), 13)
        assert next(states.active()).transaction_start == -1
        assert states.first_unstable_offset(14) is None

    def test_ended_transaction_is_unstable_until_its_marker_is_committed(
        self, states: ProducerStates
    ) -> None:
        states.update(transactional(0), 10)
        states.update(marker(), 11)
        assert states.first_unstable_offset(11) == 10
        assert states.first_unstable_offset(12) is None

    def test_first_unstable_offset_is_the_start_of_the_earliest_open_transaction(
        self, states: ProducerStates
    ) -> None:
        for producer, offset in ((1, 10), (2, 11), (3, 12)):
            states.update(transactional(0, producer=producer), offset)
        states.update(marker(producer=2), 13)
        assert states.first_unstable_offset(20) == 10
        states.update(marker(producer=1), 14)
        assert states.first_unstable_offset(20) == 12

    @pytest.mark.parametrize("seed", range(10))
    def test_first_unstable_offset_is_right_in_every_order_of_events(
        self, states: ProducerStates, seed: int
    ) -> None:
        chance, committed = Random(seed), 0
        unstable: dict[int, tuple[int, int | None]] = {}
        open_: dict[int, int] = {}
        for offset in range(300):
            producer = chance.randrange(6)
            if producer in open_ and chance.random() < 0.5:
                states.update(marker(producer=producer), offset)
                unstable[open_.pop(producer)] = producer, offset
            else:
                states.update(transactional(0, producer=producer), offset)
                if producer not in open_:
                    open_[producer] = offset
                    unstable[offset] = producer, None
            committed = chance.randint(committed, offset + 1)
            if chance.random() < 0.5:
                stable = [
                    first
                    for first, (_, end) in unstable.items()
                    if end is not None and end < committed
                ]
                for first in stable:
                    del unstable[first]
                assert states.first_unstable_offset(committed) == min(unstable, default=None)
            if chance.random() < 0.02:
                states.snapshot(offset + 1)
                assert states.restore(offset + 1) == offset + 1
                unstable = {first: one for first, one in unstable.items() if one[1] is None}

    def test_marker_of_a_later_epoch_ends_the_transaction(self, states: ProducerStates) -> None:
        states.update(transactional(0), 10)
        states.update(marker(epoch=1), 11)
        assert states.first_unstable_offset(12) is None

    def test_marker_without_a_transaction_changes_nothing(self, states: ProducerStates) -> None:
        states.update(marker(), 11)
        assert states.first_unstable_offset(11) is None

    def test_producer_with_an_open_transaction_does_not_expire(
        self, states: ProducerStates
    ) -> None:
        states.update(transactional(0), 10)
        for _ in range(3):
            states.expire(10**9, 1)
        assert states.first_unstable_offset(11) == 10
        assert states.is_in_transaction(7, 0)
        states.update(marker(), 11)
        for _ in range(2):
            states.expire(10**9, 1)
        assert len(states) == 0

    def test_snapshot_keeps_the_open_transaction_and_the_coordinator_epoch(
        self, states: ProducerStates
    ) -> None:
        states.end_transaction(marker(), 49, COMMIT, 3)
        states.update(transactional(0), 50)
        entries = struct.pack(">qhiqiqiq", 7, 0, 0, 50, 0, 1000, 3, 50)
        assert states.encode().endswith(entries)
        states.snapshot(51)
        again = ProducerStates(states._storage, "/d")
        assert again.restore(51) == 51
        assert again.first_unstable_offset(51) == 50
        assert list(again.active()) == list(states.active())

    def test_open_transaction_is_forgotten_by_a_restore_at_offset_0_and_by_clear(
        self, states: ProducerStates
    ) -> None:
        states.update(transactional(0), 50)
        states.restore(0)
        assert states.first_unstable_offset(60) is None
        states.update(transactional(0), 50)
        states.clear()
        assert states.first_unstable_offset(60) is None
