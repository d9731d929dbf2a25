"""The fetch session of a follower: which fetches the leader refuses, and what it sends to the others."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from support.storage.logs import clean
from support.storage.replication import KEY, Replicas

from minikafka.base.errors import ErrorCode, StorageFailed
from minikafka.base.fetch_rows import PartitionData
from minikafka.kafka.records.batch import records
from minikafka.kafka.wire.fetch import finished
from minikafka.storage.replication.follower import FETCHING

DEADLINE_MS = 500


class Unreadable:
    """A file whose reads fail."""

    def __getattr__(self, name: str) -> Any:
        raise StorageFailed("/d/t-0/0.log", OSError(errno.EIO, "Input/output error"))


def fetch(r: Replicas, offset: int, *, epoch: int, last_epoch: int, start: int = 0) -> None:
    """Send a fetch of replica 1 to the leader, replica 0, in their session; the leader does not answer yet."""
    row = (0, epoch, offset, last_epoch, start, 1 << 20)
    session = r[0].sessions[1]
    finished(session.fetch([(b"t", [row])], (), 1 << 20, r.now + DEADLINE_MS, r.now))


def answer(r: Replicas) -> PartitionData:
    """Let the leader answer the fetch; return the partition in the response."""
    r[0].responses.clear()
    r[0].sessions[1].serve(r.now)
    ((_, (row,)),) = r[0].responses[1]
    return row


def in_sync(*values: bytes) -> Replicas:
    """Return leader 0 and its follower 1 with these committed records, and a record that only the leader has."""
    r = Replicas((0, 1))
    r.elect(0)
    for value in values:
        r.produce(0, value)
    r.sync(0, 1)
    r.produce(0, b"newest")
    return r


@pytest.mark.row("R32", "R40")
def test_fetch_whose_last_epoch_the_leader_lacks_acknowledges_no_records() -> None:
    """The follower has not compared its log; its fetch offset lies below the leader's log end."""
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"a")
    r.sync(0, 1)
    r.elect(1, isr=(1,), to=(1,))
    r.produce(1, b"x", b"y")
    r.elect(0, isr=(0,))
    r.produce(0, b"b", b"c", b"d", acks=1)
    before = r[0].hw
    machine = r[1].follower
    machine.epoch_questions()
    followed = machine.to_list[KEY] = machine.followed[KEY]
    followed.state = FETCHING
    r.fetch(1, 0)
    partition = r[0].partition
    assert (partition.followers[1].offset, partition.isr_state.maximal) == (-1, (0,))
    assert r[0].hw == before
    assert r[1].entries() == [(0, b"a"), (1, b"x"), (2, b"y")]
    r.sync(0, 1)
    assert r[1].entries() == r[0].entries()


@pytest.mark.row("R40")
def test_response_to_a_diverging_fetch_has_the_end_of_the_epoch_and_no_records() -> None:
    r = in_sync(b"a")
    r.elect(0)
    r.produce(0, b"b")
    fetch(r, 2, epoch=1, last_epoch=9)
    row = answer(r)
    assert (row.error, row.high_watermark, row.size, row.diverging) == (0, -1, 0, (-1, -1))
    r.produce(0, b"c")
    fetch(r, 3, epoch=1, last_epoch=1)
    assert (answer(r).diverging, r[0].partition.followers[1].offset) == (None, 3)


@pytest.mark.row("R42")
@pytest.mark.parametrize("has_records", [False, True])
def test_follower_below_the_leaders_log_start_restarts_there(has_records: bool) -> None:
    r = Replicas((0, 1), isr=(0,))
    r.elect(0)
    r.produce(0, b"a", acks=1)
    if has_records:
        r.fetch(1, 0)
    r.alive.discard(1)
    r.produce(0, b"b", acks=1)
    r.produce(0, b"c", acks=1)
    r[0].partition.advance_log_start_offset(2)
    r[1].follower.disconnected()
    r.sync(0, 1)
    assert r[1].log.log_start_offset == 2
    assert r[1].entries() == [(2, b"c")]


def test_fetch_below_the_leaders_log_start_acknowledges_no_records() -> None:
    r = in_sync(b"a", b"b")
    r[0].partition.advance_log_start_offset(2)
    fetch(r, 1, epoch=0, last_epoch=0)
    assert (answer(r).error, r[0].partition.followers[1].offset) == (
        ErrorCode.OFFSET_OUT_OF_RANGE,
        2,
    )


@pytest.mark.row("R44")
def test_leader_with_a_failed_disk_refuses_the_fetches_of_its_followers() -> None:
    r = in_sync(b"a")
    r[0].partition.offline = True
    fetch(r, 2, epoch=0, last_epoch=0)
    assert r[0].partition.followers[1].offset == 1
    assert answer(r).error == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.row("R41")
@pytest.mark.parametrize(
    ("epoch", "error"),
    [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_fetch_of_another_leader_epoch_acknowledges_no_records(
    epoch: int, error: ErrorCode
) -> None:
    r = in_sync(b"a")
    r.elect(0)
    fetch(r, 2, epoch=epoch, last_epoch=0)
    assert answer(r).error == error
    assert (r[0].partition.followers[1].offset, r[0].hw) == (-1, 1)


def test_directory_goes_offline_when_records_for_a_follower_cannot_be_read() -> None:
    r = in_sync(b"a")
    r.produce(0, b"in memory")
    told: list[Any] = []
    r[0].purgatory.on_storage_failed = lambda partition, failure: told.append(partition.tp)
    r[0].log.segments[-1].file = Unreadable()
    fetch(r, 1, epoch=0, last_epoch=0)
    row = answer(r)
    assert (row.error, row.size) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
    assert told == [r[0].partition.tp]


def test_fetch_that_waits_during_a_compaction_gets_the_records_from_its_offset() -> None:
    r = Replicas((0, 1), segment_bytes="200", cleanup_policy="compact")
    r.elect(0)
    for number in range(6):
        r.produce(0, b"%03d" % number)
    r.sync(0, 1, rounds=7)
    fetch(r, 2, epoch=0, last_epoch=0)
    clean(r[0].log, 1, lambda offset: offset == 2)
    row = answer(r)
    data = b"".join(bytes(part) for part in row.slices)
    assert [record.value for record in records(data)] == [b"002"]


def test_each_parked_fetch_is_answered_exactly_at_its_deadline() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.sync(0, 1)
    session = r[0].sessions[1]
    for _ in range(3):
        fetch(r, 0, epoch=0, last_epoch=-1)
        r[0].responses.clear()
        session.serve(r.now)  # there is nothing to send
        session.expire(r.now + DEADLINE_MS - 1)
        assert (session.parked, r[0].responses) == (True, {})
        session.expire(r.now + DEADLINE_MS)
        assert (session.parked, list(r[0].responses)) == (False, [1])
        r.now += DEADLINE_MS


@pytest.mark.parametrize("missing", [0, 1])
def test_fetch_waits_only_while_fewer_than_the_minimum_of_bytes_can_be_sent(missing: int) -> None:
    r = in_sync(b"a")
    session, log = r[0].sessions[1], r[0].log
    fetch(r, 1, epoch=0, last_epoch=0)
    session.min_bytes = log.written_position - log.locate(1) + missing
    session.serve(r.now)
    assert session.parked == bool(missing)
    r[0].purgatory.finish_tick(r.now + DEADLINE_MS)
    assert not session.parked
