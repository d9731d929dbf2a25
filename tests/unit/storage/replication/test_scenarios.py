"""Scenarios in which a partition could lose acknowledged records, step by step."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from support.storage.replication import KEY, LAG_MS, Replicas

from minikafka.base.errors import ErrorCode, StorageFailed
from minikafka.storage.replication.early import FIRST_BATCHES_MS, WAIT_MS
from minikafka.storage.replication.follower import STOPPED
from minikafka.storage.replication.isr import PendingExpand, PendingShrink


def acked(replicas: Replicas, leader: int) -> list[bytes]:
    return [answer for answer in replicas[leader].sent if answer.split(b":")[1] == b"0"]


@pytest.mark.row("C28")
def test_acks_all_is_answered_when_every_isr_member_has_the_batch() -> None:
    r = Replicas()
    r.elect(0)
    assert r.produce(0, b"m1") == 1
    assert acked(r, 0) == []
    r.fetch(1, 0)
    r.fetch(1, 0)
    assert acked(r, 0) == []
    r.fetch(2, 0)
    r.fetch(2, 0)
    assert acked(r, 0) == [b"1:0:0"]
    assert r[0].hw == 1


def test_leader_alone_in_the_isr_commits_records_when_it_writes_them() -> None:
    r = Replicas(isr=(0,))
    r.elect(0)
    r.produce(0, b"m1")
    assert acked(r, 0) == [b"1:0:0"]


@pytest.mark.row("X18", "C16")
@pytest.mark.parametrize("is_reconciled", [False, True])
def test_s01_restarted_follower_does_not_truncate_to_its_checkpoint(is_reconciled: bool) -> None:
    """The leader dies before or after the follower has compared the logs, but before the follower fetches."""
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1", b"m2")
    r.sync(0, 1)
    assert r[0].hw == 2
    r.crash(1)
    r.restart(1, checkpoint=1)
    r.send_leader_and_isr(1)
    if is_reconciled:
        r.ask(1, 0)
    r.crash(0)
    r.elect(1, isr=(1,))
    assert r[1].values() == [b"m1", b"m2"]
    r.restart(0, checkpoint=2)
    r.send_leader_and_isr(0)
    r.sync(1, 0)
    assert r[0].values() == r[1].values() == [b"m1", b"m2"]


@pytest.mark.row("X18", "C16")
def test_s02_logs_are_equal_after_a_leader_lost_its_tail() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.sync(0, 1)
    r.produce(0, b"m2")
    r.elect(1, isr=(1,), to=(1,))
    r.produce(1, b"m3")
    r.send_leader_and_isr(0)
    r.sync(1, 0)
    assert r[0].entries() == r[1].entries() == [(0, b"m1"), (1, b"m3")]


@pytest.mark.row("X17", "C17")
def test_s04_new_leader_exposes_no_records_that_other_replicas_may_lack() -> None:
    r = Replicas((0, 1, 2))
    r.elect(0)
    r.produce(0, b"m1")
    r.sync(0, 1, 2)
    r.produce(0, b"m2", b"m3")
    r.fetch(1, 0)
    r.crash(0)
    r.elect(1, isr=(1, 2))
    assert r[1].hw <= 1
    assert not r[1].partition.latest_offset_is_known
    r.sync(1, 2)
    assert r[1].hw == 3
    assert r[1].partition.latest_offset_is_known
    assert r[2].values() == [b"m1", b"m2", b"m3"]


@pytest.mark.row("X18", "C16", "R39")
def test_s05_follower_truncates_to_the_end_of_the_leaders_largest_smaller_epoch() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.elect(0)
    r.produce(0, *[b"a%d" % i for i in range(5)])
    r.sync(0, 1)
    r.produce(0, *[b"a%d" % i for i in range(5, 10)])
    r.elect(1, to=(1,))
    r.produce(1, b"b5", b"b6", b"b7")
    r.crash(1)
    r.elect(0, isr=(0,), to=(0,))
    r.produce(0, b"a10")
    r.restart(1, checkpoint=5)
    r.send_leader_and_isr(1)
    r.sync(0, 1, rounds=6)
    assert r[1].entries() == r[0].entries()
    assert len(r[0].entries()) == 11


@pytest.mark.row("C16", "R45")
def test_s06_follower_removes_a_record_that_its_reelected_leader_has_truncated() -> None:
    r = Replicas((1, 2, 3), isr=(1,))
    r.elect(1)
    r.produce(1, b"x", acks=1)
    r.fetch(3, 1)
    assert r[3].values() == [b"x"]
    r.elect(2, isr=(2,), to=(2, 1))
    r.sync(2, 1)
    assert r[1].values() == []
    r.crash(2)
    r.elect(1, isr=(1,), to=(1,))
    r.produce(1, b"y", acks=1)
    r.send_leader_and_isr(3)
    r.sync(1, 3)
    assert r[3].entries() == r[1].entries() == [(0, b"y")]


@pytest.mark.row("R32", "R41")
def test_s07_fetches_of_an_old_epoch_are_fenced() -> None:
    r = Replicas((0, 1, 2))
    r.elect(0)
    r.produce(0, b"m1")
    r.sync(0, 1, 2)
    r.elect(1, to=(0, 1))
    r.elect(0, isr=(0, 1), to=(0, 1))
    r.produce(0, b"m2")
    r.sync(0, 1)
    before = r[0].hw
    r[2].follower.disconnected()  # otherwise its fetch would contain no partition
    r.fetch(2, 0)
    assert r[2].follower.followed[KEY].state == STOPPED
    assert r[0].partition.followers[2].offset == -1
    assert r[0].hw == before
    assert r[0].partition.isr == (0, 1)


def test_s08_high_watermark_counts_only_fetches_of_the_current_leader_epoch() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.fetch(1, 0)
    r.elect(1, to=(1,))
    r.elect(0, to=(0,))
    assert r[0].hw == 0
    r.fetch(1, 0)
    assert r[0].hw == 0


def test_s10_follower_joins_the_isr_only_at_the_start_of_the_leader_epoch() -> None:
    r = Replicas((0, 1, 2), isr=(0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.sync(0, 1)
    r.crash(0)
    r.elect(1, isr=(1,))
    r.fetch(2, 1)
    partition = r[1].partition
    assert partition.epoch_start_offset == 1
    assert type(partition.isr_state) is not PendingExpand
    r.sync(1, 2)
    assert type(partition.isr_state) is PendingExpand
    r.commit_isr(1)
    assert partition.isr == (1, 2)


@pytest.mark.row("R27")
def test_s29_high_watermark_waits_for_the_maximal_isr() -> None:
    r = Replicas((0, 1), isr=(0,))
    r.elect(0)
    r.produce(0, b"m1")
    r.sync(0, 1)
    assert type(r[0].partition.isr_state) is PendingExpand
    r.alive.discard(1)  # only the pending ISR write holds the high watermark back
    r.produce(0, b"m2")
    assert not r[0].partition.maybe_advance_high_watermark(r.now)
    assert r[0].hw == 1
    r.fetch(1, 0)
    r.fetch(1, 0)
    assert r[0].hw == 2


@pytest.mark.row("C28", "X16", "R30")
def test_produce_request_is_answered_when_a_lagging_follower_leaves_the_isr() -> None:
    r = Replicas((0, 1, 2))
    r.elect(0)
    r.sync(0, 1, 2)
    r.produce(0, b"m1")
    r.sync(0, 1)
    r.now += LAG_MS + 1
    r.sync(0, 1)
    assert r[0].partition.maybe_shrink_isr(r.now)
    assert type(r[0].partition.isr_state) is PendingShrink
    assert acked(r, 0) == []
    r.commit_isr(0)
    assert r[0].partition.isr == (0, 1)
    assert acked(r, 0) == [b"1:0:0"]


@pytest.mark.row("X16", "R30")
def test_idle_follower_stays_in_the_isr_when_a_record_follows_its_last_fetch() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.sync(0, 1)
    r.now += 10 * LAG_MS
    r.fetch(1, 0)
    r.produce(0, b"m1")
    assert not r[0].partition.maybe_shrink_isr(r.now)


@pytest.mark.key("min.insync.replicas")
@pytest.mark.row("R34")
def test_s13_acks_all_is_refused_below_min_insync_replicas() -> None:
    r = Replicas((0, 1, 2), isr=(0,), min_insync_replicas="2")
    r.elect(0)
    assert r.produce(0, b"m1") == -19
    assert r.produce(0, b"m1", acks=1) == 1
    assert r.produce(0, b"m2", acks=0) == 2
    assert r[0].hw == 0


@pytest.mark.row("R34")
def test_s13_waiting_produce_request_fails_when_the_isr_becomes_too_small() -> None:
    r = Replicas((0, 1), min_insync_replicas="2")
    r.elect(0)
    r.sync(0, 1)
    r.produce(0, b"m1")
    r.now += LAG_MS + 1
    r[0].partition.maybe_shrink_isr(r.now)
    r.commit_isr(0)
    assert r[0].sent == [b"1:20:-1"]
    assert r[0].hw == 0


@pytest.mark.row("T17", "R47")
def test_t17_former_leader_fails_waiting_produce_requests() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.elect(1)
    assert r[0].sent == [b"1:6:-1"]


def test_new_epoch_of_the_same_leader_leaves_produce_requests_waiting() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.elect(0)
    assert r[0].sent == []
    r.sync(0, 1)
    assert acked(r, 0) == [b"1:0:0"]


@pytest.mark.row("R72")
def test_s32_new_leader_recognizes_a_retried_batch() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1", b"m2", producer=(9, 0, 0))
    r.sync(0, 1)
    r.crash(0)
    r.elect(1, isr=(1,))
    assert r.produce(1, b"m1", b"m2", producer=(9, 0, 0)) == 2
    assert r[1].partition.appended_base == 0
    assert r.produce(1, b"m3", producer=(9, 0, 2)) == 3
    assert r.produce(1, b"m5", producer=(9, 0, 7)) == -ErrorCode.LEADER_NOT_AVAILABLE
    assert r[1].values() == [b"m1", b"m2", b"m3"]


def test_retry_of_a_batch_older_than_the_last_five_succeeds_once_committed() -> None:
    """A Java producer may have to retry more than five batches when two leaders fail one after the other."""
    r = Replicas((0, 1))
    r.elect(0)
    for sequence in range(8):
        r.produce(0, b"m%d" % sequence, producer=(9, 0, sequence))
    assert r.produce(0, b"m0", producer=(9, 0, 0)) == -ErrorCode.LEADER_NOT_AVAILABLE
    r.sync(0, 1)
    assert r.produce(0, b"m0", producer=(9, 0, 0)) == -ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert r[0].values() == [b"m%d" % sequence for sequence in range(8)]


def test_former_leader_does_not_return_out_of_order_sequence_for_a_gap() -> None:
    """The former leader lacks a batch that its successor has. The error could be fatal for librdkafka."""
    r = Replicas((0, 1, 2))
    r.elect(0)
    r.produce(0, b"m0", producer=(9, 0, 0))
    for follower in (1, 2):
        r.sync(0, follower)
    r.elect(1, isr=(1, 2), to=(1, 2))
    r.produce(1, b"m1", producer=(9, 0, 1))
    for _ in range(4):
        assert r.produce(0, b"m2", producer=(9, 0, 2)) == -ErrorCode.LEADER_NOT_AVAILABLE
        r.now += WAIT_MS
    assert r.produce(1, b"m2", producer=(9, 0, 2)) == 3


def test_sequence_gap_becomes_out_of_order_after_five_seconds_and_a_follower_fetch() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m0", producer=(9, 0, 0))
    r.sync(0, 1)
    assert r.produce(0, b"m2", producer=(9, 0, 2)) == -ErrorCode.LEADER_NOT_AVAILABLE
    r.now += WAIT_MS
    assert r.produce(0, b"m2", producer=(9, 0, 2)) == -ErrorCode.LEADER_NOT_AVAILABLE
    r.sync(0, 1)
    assert r.produce(0, b"m2", producer=(9, 0, 2)) == -ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert r.produce(0, b"m1", producer=(9, 0, 1)) == 2, "it comes after all"
    assert r.produce(0, b"m3", producer=(9, 0, 3)) == -ErrorCode.LEADER_NOT_AVAILABLE, "another gap"
    assert r.produce(0, b"m2", producer=(9, 0, 2)) == 3


def test_sequence_gap_becomes_out_of_order_after_five_seconds_with_an_isr_of_one() -> None:
    r = Replicas((0, 1), isr=(0,))
    r.elect(0)
    r.produce(0, b"m0", producer=(9, 0, 0))
    assert r.produce(0, b"m2", producer=(9, 0, 2)) == -ErrorCode.LEADER_NOT_AVAILABLE
    r.now += WAIT_MS
    assert r.produce(0, b"m2", producer=(9, 0, 2)) == -ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    r.now += WAIT_MS + 1
    gap = r.produce(0, b"m2", producer=(9, 0, 2))
    assert gap == -ErrorCode.LEADER_NOT_AVAILABLE, "the wait begins again after a silence"


def test_new_leader_accepts_an_unknown_producer_only_from_its_first_batch() -> None:
    """Only the former leader has the first batch, and the client still waits for that leader's response.

    If the new leader wrote the second batch now, librdkafka would regard the first batch as written.
    """
    r = Replicas((0, 1))
    r.elect(0)
    assert r.produce(0, b"m1", producer=(9, 0, 0)) == 1
    r.elect(1, isr=(1,))
    assert r.produce(1, b"m2", producer=(9, 0, 1)) == -ErrorCode.LEADER_NOT_AVAILABLE
    assert r.produce(1, b"m1", producer=(9, 0, 0)) == 1
    assert r.produce(1, b"m2", producer=(9, 0, 1)) == 2
    assert r[1].values() == [b"m1", b"m2"]


def test_unknown_producer_is_accepted_at_any_sequence_a_minute_after_election() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.elect(1, isr=(1,))
    r.now += FIRST_BATCHES_MS - 1
    r.elect(1)
    assert r.produce(1, b"m7", producer=(9, 0, 6)) == -ErrorCode.LEADER_NOT_AVAILABLE
    r.now += 1
    assert r.produce(1, b"m7", producer=(9, 0, 6)) == 1


def test_unknown_producer_is_accepted_at_sequence_6_five_seconds_after_its_refusal() -> None:
    """The topic was recreated, then its leader changed. The producer never sends its first batch again.

    A refusal for `FIRST_BATCHES_MS` (one minute) could last longer than the producer's delivery timeout.
    """
    r = Replicas((0, 1))
    r.elect(0)
    r.elect(1, isr=(1,))
    assert r.produce(1, b"m7", producer=(9, 0, 6)) == -ErrorCode.LEADER_NOT_AVAILABLE
    r.now += WAIT_MS - 1
    assert r.produce(1, b"m7", producer=(9, 0, 6)) == -ErrorCode.LEADER_NOT_AVAILABLE
    r.now += 1
    assert r.produce(1, b"n3", producer=(8, 0, 2)) == -ErrorCode.LEADER_NOT_AVAILABLE
    assert r.produce(1, b"m7", producer=(9, 0, 6)) == 1


def test_first_leader_of_a_topic_accepts_any_first_sequence_number() -> None:
    """The topic may have been deleted and recreated while its producers continue."""
    r = Replicas((0, 1))
    r.elect(0)
    assert r.produce(0, b"m7", producer=(9, 0, 6)) == 1


class Unreadable:
    """A file whose reads fail."""

    def __getattr__(self, name: str) -> Any:
        raise StorageFailed("/d/t-0/0.log", OSError(errno.EIO, "Input/output error"))


def test_directory_goes_offline_when_an_offset_cannot_be_located() -> None:
    """The follower must get KAFKA_STORAGE_ERROR. Without a response, the follower would repeat the fetch forever."""
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.produce(0, b"m2")
    told: list[Any] = []
    r[0].purgatory.on_storage_failed = lambda partition, failure: told.append(partition.tp)
    r[0].log.segments[-1].file = Unreadable()
    r.fetch(1, 0)
    assert told == [r[0].partition.tp]
    session = r[0].sessions[1]
    assert session.items[b"t"][0].error == ErrorCode.KAFKA_STORAGE_ERROR
    assert not session.parked


def test_records_of_a_lost_fetch_response_are_fetched_again() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.fetch(1, 0, lose_answer=True)
    r[1].follower.disconnected()
    r[0].sessions.pop(1).close()
    r.sync(0, 1)
    assert r[1].values() == [b"m1"]
    assert r[0].hw == 1


@pytest.mark.row("R29")
def test_idle_follower_joins_the_isr_after_another_follower_has_joined() -> None:
    r = Replicas(isr=(0,))
    r.elect(0)
    r.fetch(1, 0)
    assert isinstance(r[0].partition.isr_state, PendingExpand)
    r.fetch(2, 0)
    r.commit_isr(0)
    assert r.isr == (0, 1)
    r.fetch(2, 0)
    assert isinstance(r[0].partition.isr_state, PendingExpand)
    r.commit_isr(0)
    assert r.isr == (0, 1, 2)


def test_second_follower_is_proposed_for_the_isr_once_the_first_one_has_joined() -> None:
    r = Replicas((0, 1, 2), isr=(0,))
    r.elect(0)
    r.produce(0, b"m1", acks=1)
    r.sync(0, 1)
    r.sync(0, 2)
    assert r[0].partition.isr_state == PendingExpand((0,), 1)
    assert r[0].partition.next_to_join(r.now) is None
    r.commit_isr(0)
    assert r[0].partition.isr == (0, 1)
    joining = r[0].partition.next_to_join(r.now)
    assert joining is not None
    assert joining.broker_id == 2


@pytest.mark.row("R24", "R29")
def test_follower_joins_the_isr_once_it_is_known_to_be_alive() -> None:
    r = Replicas((0, 1), isr=(0,))
    r.elect(0)
    r.produce(0, b"m1", acks=1)
    r.alive.discard(1)
    r.sync(0, 1)
    assert r[0].partition.next_to_join(r.now) is None
    r.alive.add(1)
    assert r[0].partition.next_to_join(r.now) is not None


def test_follower_that_stopped_fetching_does_not_join_the_isr() -> None:
    r = Replicas((0, 1), isr=(0,))
    r.elect(0)
    r.alive.discard(1)
    r.sync(0, 1)
    r.alive.add(1)
    item = r[0].partition.followers[1].item
    assert item is not None
    assert r[0].partition.next_to_join(item.last_fetch() + LAG_MS) is not None
    assert r[0].partition.next_to_join(item.last_fetch() + LAG_MS + 1) is None


def test_empty_log_beyond_the_leaders_end_restarts_at_the_leaders_start() -> None:
    r = Replicas((0, 1))
    r[1].partition.truncate_fully_and_start_at(100)  # as after a damaged checkpoint
    r.elect(0)
    r.produce(0, b"m1")
    r.fetch(1, 0)
    assert acked(r, 0) == []
    assert r[0].hw == 0
    r.sync(0, 1)
    assert r[1].entries() == r[0].entries() == [(0, b"m1")]
    assert (r[1].log.log_start_offset, r[1].hw) == (0, 1)
    assert acked(r, 0) == [b"1:0:0"]


def test_empty_log_beyond_the_leaders_end_does_not_join_the_isr() -> None:
    r = Replicas((0, 1), isr=(0,))
    r[1].partition.truncate_fully_and_start_at(100)
    r.elect(0)
    r.produce(0, b"m1")
    r.fetch(1, 0)
    assert r[0].partition.isr_state.maximal == (0,)
    r.fetch(1, 0)
    r.fetch(1, 0)
    r.commit_isr(0)
    assert r.isr == (0, 1)
    assert r[1].values() == [b"m1"]


def test_restarted_follower_copies_the_records_of_a_lost_segment_file_again() -> None:
    r = Replicas((0, 1), segment_bytes="100")
    r.elect(0)
    for number in range(6):
        r.produce(0, b"m%d" % number)
        r.sync(0, 1)
    r.crash(1)
    segments = {name: data for name, data in r[1].storage.files.items() if name.endswith(".log")}
    assert len(segments) > 4
    del r[1].storage.files[sorted(segments)[2]]
    r[1].recovery_point = r[1].log.log_end_offset
    r.restart(1, checkpoint=6)
    assert r[1].log.log_end_offset == 6
    r.elect(0)
    r.sync(0, 1)
    found = {name: data for name, data in r[1].storage.files.items() if name.endswith(".log")}
    assert found == segments
