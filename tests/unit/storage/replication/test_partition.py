"""Leader and follower of one partition, rule by rule; test_scenarios.py has the scenarios of lost records."""

from __future__ import annotations

import pytest
from support.storage.logs import clean, end_marker, transactional_batch
from support.storage.replication import KEY, LAG_MS, TP, Replicas

from minikafka.base.errors import ErrorCode
from minikafka.base.model import LeaderAndIsr, PartitionState
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.wire.fetch import finished
from minikafka.storage.replication.isr import Committed, IsrState, PendingExpand, PendingShrink
from minikafka.storage.replication.progress import FollowerProgress
from minikafka.storage.replication.verification import NO_GUARD

NO_RECORDS = (bytearray(), memoryview(b""), 0, 0)


@pytest.mark.row("C27", "B3", "C28")
def test_waiting_produce_requests_are_counted_and_answered_in_order() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    for value in (b"m1", b"m2", b"m3"):
        r.produce(0, value)
    assert r[0].sent == []
    assert r[0].answers.waiting_for(r[0].partition) == 3
    r.sync(0, 1)
    assert b"".join(r[0].sent) == b"1:0:02:0:13:0:2"
    assert r[0].answers.waiting_for(r[0].partition) == 0


def test_produce_request_times_out_at_its_deadline_and_not_before() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    first = r.now
    r.produce(0, b"m1")
    r.now += 1
    r.produce(0, b"m2")
    for number, deadline in enumerate((first + 30_000, first + 30_001), start=1):
        r[0].answers.expire(deadline - 1)
        assert len(r[0].sent) == number - 1
        r[0].answers.expire(deadline)
        assert r[0].sent[-1] == b"%d:7:-1" % number


def test_committed_produce_request_does_not_time_out_before_its_answer_is_sent() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    partition = r[0].partition
    assert partition.record_follower_fetch(partition.followers[1], 1, r.now)
    r[0].answers.expire(r.now + 60_000)
    assert r[0].sent == []
    r[0].answers.drain()
    assert r[0].sent == [b"1:0:0"]


def test_tick_is_asked_for_again_after_an_append_of_the_tick_has_failed() -> None:
    def fail() -> None:
        raise ValueError

    r = Replicas((0, 1))
    asked: list[int] = []
    r[0].finish_soon = lambda: asked.append(1)
    r[0].purgatory.before_write(fail)
    with pytest.raises(ValueError):  # noqa: PT011
        r[0].purgatory.finish_tick(r.now)
    r[0].purgatory.finish_soon()
    assert len(asked) == 2


@pytest.mark.row("C27")
def test_follower_refuses_a_produce_request() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    assert r.produce(1, b"m1") == -6
    assert r[1].log.log_end_offset == 0


@pytest.mark.row("C33")
def test_fetch_acknowledges_records_and_returns_the_high_watermark() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1", b"m2")
    r.fetch(1, 0)
    assert r[0].partition.followers[1].offset == 0
    assert r[1].hw == 0
    r.fetch(1, 0)
    assert r[0].partition.followers[1].offset == 2
    assert r[0].hw == 2
    r.fetch(1, 0)
    assert r[1].hw == 2


@pytest.mark.row("C34", "R33")
def test_followers_high_watermark_is_at_most_its_log_end() -> None:
    r = Replicas((0, 1, 2), isr=(0,))
    r.elect(0)
    r.produce(0, b"m1", acks=1)
    r.fetch(1, 0)
    assert r[1].values() == [b"m1"]
    r[1].follower.next_fetch()
    r[1].follower.on_partition(KEY, 0, 99, 0, NO_RECORDS, None)
    assert r[1].hw == r[1].log.log_end_offset == 1


@pytest.mark.row("T11", "X16", "R30", "R32")
def test_follower_is_caught_up_when_it_reaches_the_log_end_of_its_last_fetch() -> None:
    """The fetch offset must reach the log end that the leader had at the previous fetch. Later records are no lag."""
    r = Replicas((0, 1))
    r.elect(0)
    partition = r[0].partition
    progress: FollowerProgress = partition.followers[1]
    r.produce(0, b"m1", b"m2")
    partition.record_follower_fetch(progress, 0, r.now + 100)
    r.produce(0, b"m3")
    partition.record_follower_fetch(progress, 2, r.now + 200)
    assert progress.last_caught_up == r.now + 100
    r.produce(0, b"m4")
    partition.record_follower_fetch(progress, 2, r.now + 300)
    assert progress.last_caught_up == r.now + 100, "it did not reach the end of its last fetch"


@pytest.mark.row("T13", "R31")
def test_high_watermark_waits_for_a_follower_that_is_about_to_join_the_isr() -> None:
    r = Replicas((0, 1), isr=(0,))
    r.alive.discard(1)
    r.elect(0, to=(0, 1))
    r.produce(0, b"m1", acks=1)
    r.fetch(1, 0)
    r.alive.add(1)
    for value in (b"m2", b"m3"):
        r.produce(0, value, acks=1)
    behind = r[0].hw
    partition = r[0].partition
    assert behind < r[0].log.log_end_offset, "otherwise the follower could never reach it"
    r.sync(0, 1)
    assert type(partition.isr_state) is PendingExpand
    r.commit_isr(0)
    r.sync(0, 1)
    assert r[0].hw == r[0].log.log_end_offset


@pytest.mark.row("T13")
def test_lagging_follower_outside_the_isr_does_not_delay_the_high_watermark() -> None:
    r = Replicas((0, 1), isr=(0,))
    r.elect(0)
    r.now += LAG_MS + 1
    r.produce(0, b"m1", acks=1)
    assert r[0].hw == 1


@pytest.mark.row("T12", "R29")
def test_follower_below_the_start_of_the_leader_epoch_does_not_join_the_isr() -> None:
    r = Replicas((0, 1, 2), isr=(0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.fetch(1, 0)
    r.elect(1, isr=(1, 0), to=(1, 2))
    partition = r[1].partition
    assert (partition.epoch_start_offset, partition.high_watermark) == (1, 0)
    progress = partition.followers[2]
    partition.record_follower_fetch(progress, 0, r.now)
    assert not partition.may_expand_isr(progress)
    partition.record_follower_fetch(progress, 1, r.now)
    assert partition.may_expand_isr(progress)


@pytest.mark.row("T14", "R37")
def test_new_leader_writes_its_epoch_to_the_checkpoint_before_any_record() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.elect(0)
    epochs = r[0].log.epochs
    assert epochs.latest == r.epoch
    assert r[0].partition.epoch_end_offset(r.epoch - 1) == (r.epoch - 1, 1)
    checkpoint = r[0].storage.read("/d/t-0/leader-epoch-checkpoint").decode()
    assert checkpoint.split("\n")[2:4] == ["0 0", "1 1"]


@pytest.mark.row("T15", "R40")
def test_diverging_response_does_not_move_the_high_watermark() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1", b"m2")
    r.fetch(1, 0)
    assert (r[1].hw, r[1].log.log_end_offset) == (0, 2)
    machine = r[1].follower
    machine.next_fetch()
    machine.on_partition(KEY, 0, 2, 0, NO_RECORDS, (0, 1))
    assert r[1].hw == 0
    assert machine.next_fetch()[0] == {}, "it asks where the logs part before it fetches on"
    assert machine.epoch_questions()


def test_truncation_lowers_the_high_watermark() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.produce(0, b"m2")
    r.sync(0, 1)
    assert r[1].hw == 2
    r[1].partition.truncate_to(1)
    assert r[1].hw == 1


@pytest.mark.row("T16")
def test_fetch_that_waits_during_an_election_gets_no_records_of_the_new_epoch() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    target, machine = r[0], r[1].follower
    r.fetch(1, 0)
    session = target.sessions[1]
    topics, forgotten = machine.next_fetch()
    finished(session.fetch(topics.items(), forgotten.items(), 1 << 20, r.now + 500, r.now))
    target.purgatory.finish_tick(r.now)
    assert session.parked
    r.elect(0, to=(0,))
    target.responses.clear()
    r.produce(0, b"m1")
    target.purgatory.finish_tick(r.now)
    records = [answer[5] for _, rows in target.responses.get(1, ()) for answer in rows if answer[6]]
    assert records == []
    assert target.partition.followers[1].offset == -1, "nor did it acknowledge anything"
    assert r[0].hw == 0


@pytest.mark.row("X15")
def test_waiting_produce_request_does_not_delay_another_partition() -> None:
    slow, fast = Replicas((0, 1)), Replicas((0, 1))
    for r in (slow, fast):
        r.elect(0)
    fast[0].purgatory = slow[0].purgatory
    fast[0].answers.purgatory = slow[0].purgatory
    slow.produce(0, b"m1")
    fast.produce(0, b"m2")
    fast.sync(0, 1)
    assert fast[0].sent == [b"1:0:0"]
    assert slow[0].sent == []
    assert slow[0].partition.tp == fast[0].partition.tp == TP


@pytest.mark.row("X18", "C16")
def test_restarted_follower_keeps_all_records_of_the_leader() -> None:
    """The restarted follower has an old high watermark, and requests the leader's epochs before it truncates."""
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.produce(0, b"m2")
    r.sync(0, 1)
    r.crash(1)
    r.restart(1, checkpoint=1)
    r.send_leader_and_isr(1)
    r.ask(1, 0)
    assert r[1].hw == 1
    assert r[1].values() == [b"m1", b"m2"]
    assert r[1].follower.next_fetch()[0][b"t"][0][2] == 2, "it fetches from its end"


@pytest.mark.row("X18", "C16")
def test_follower_truncates_records_of_epochs_unknown_to_the_leader() -> None:
    r = Replicas((0, 1), isr=(0,))
    r.elect(0)
    r.produce(0, b"m1", acks=1)
    r.fetch(1, 0)
    r.elect(1, isr=(1,), to=(1,))
    r.produce(1, b"x", acks=1)
    r.elect(0, isr=(0,), to=(0,))
    r.produce(0, b"y", acks=1)
    r.send_leader_and_isr(1)
    r.ask(1, 0)
    r.ask(1, 0)
    assert r[1].values() == [b"m1"]


def test_dead_follower_outside_the_isr_does_not_delay_the_high_watermark() -> None:
    """No LeaderAndIsr reports the death of a follower outside the ISR, and this follower never fetches again."""
    r = Replicas((0, 1, 2), isr=(0,))
    r.elect(0)
    r.produce(0, b"m1")
    r.sync(0, 2, 1, rounds=2)
    partition = r[0].partition
    assert partition.isr_state == PendingExpand((0,), 2)
    r.produce(0, b"m2")
    r.sync(0, 2)
    assert r[0].hw == 1, "1 is about to join as well"
    r.commit_isr(0)
    assert r[0].hw == 1, "nobody knows yet that 1 is dead"
    r.crash(1)
    r.produce(0, b"m3")
    r.sync(0, 2)
    assert (partition.isr, r[0].hw) == ((0, 2), 3)


def test_follower_without_a_fetch_in_the_current_leader_epoch_leaves_the_isr() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.sync(0, 1)
    session = r[0].sessions[1]
    r.elect(0, to=(0,))
    r.now += LAG_MS + 1
    session.seen = r.now  # the follower fetched another partition in the same session
    r.produce(0, b"m2")
    assert r[0].partition.maybe_shrink_isr(r.now)


@pytest.mark.row("R27")
@pytest.mark.parametrize("is_written", [True, False])
def test_high_watermark_waits_for_a_leaving_follower_until_the_shrink_is_written(
    is_written: bool,
) -> None:
    """Until then the committed ISR may elect the leaving follower, which lacks the record (R27)."""
    r = Replicas((0, 1, 2))
    r.elect(0)
    partition = r[0].partition
    r.now += LAG_MS + 1
    r.sync(0, 1)
    r.produce(0, b"m1")
    assert partition.maybe_shrink_isr(r.now)
    r.sync(0, 1)
    assert (partition.isr_state, r[0].hw) == (PendingShrink((0, 1, 2), frozenset({2})), 0)
    if is_written:
        assert partition.isr_committed(2, r.now)
        assert (partition.isr_state, r[0].hw) == (Committed((0, 1)), 1)
    else:
        partition.isr_not_written()
        r.sync(0, 1)
        assert (partition.isr_state, r[0].hw) == (Committed((0, 1, 2)), 0)


@pytest.mark.row("R27")
@pytest.mark.parametrize(
    "pending", [PendingExpand((0, 1), 2), PendingShrink((0, 1), frozenset({1}))]
)
def test_leader_proposes_no_isr_change_while_another_is_pending(pending: IsrState) -> None:
    """A second proposal would forget replicas that the first write may have added or kept (R27)."""
    r = Replicas((0, 1, 2), isr=(0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.sync(0, 2)
    partition = r[0].partition
    partition.isr_state = pending
    r.now += LAG_MS + 1
    assert not partition.maybe_shrink_isr(r.now)
    assert not partition.may_expand_isr(partition.followers[2])
    assert partition.isr_state is pending


def test_leader_with_a_failed_disk_does_not_change_the_isr() -> None:
    """Otherwise the leader would remove every follower, since no follower can catch up, and stay in the ISR alone."""
    r = Replicas((0, 1, 2), isr=(0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.sync(0, 1, 2)
    r.commit_isr(0)
    partition = r[0].partition
    r.produce(0, b"m2")
    partition.offline = True
    r.now += LAG_MS + 1
    assert not partition.maybe_shrink_isr(r.now)
    partition.isr_state = type(partition.isr_state)((0, 1))
    assert partition.next_to_join(r.now) is None
    assert not partition.maybe_advance_high_watermark(r.now)


def test_fetch_session_of_an_old_leader_epoch_gets_no_records_of_a_new_epoch() -> None:
    """The log was truncated between the two leaderships, so the old file position belongs to another record."""
    r = Replicas((0, 1, 2))
    r.elect(0)
    r.produce(0, b"A")
    r.sync(0, 1)
    session = r[0].sessions[1]
    session.parked = False  # the follower has not yet received the response for another partition
    r.produce(0, b"B")
    r.elect(2, to=(0, 2))
    r.sync(2, 0)
    assert r[0].values() == []
    r.elect(0, to=(0, 2))
    r.produce(0, b"C")
    r.produce(0, b"D")
    r[0].responses.clear()
    session.parked = True
    session.serve(r.now)
    assert r[0].responses == {}
    r.send_leader_and_isr(1)
    r.sync(0, 1, 2)
    assert r[0].entries() == r[1].entries() == r[2].entries() == [(0, b"C"), (1, b"D")]


def test_high_watermark_is_sent_to_the_follower_again_in_a_new_leader_epoch() -> None:
    """The response with the new high watermark is lost, and without new records the leader would not send it again."""
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.fetch(1, 0)
    r.fetch(1, 0, lose_answer=True)
    assert (r[0].hw, r[1].hw) == (1, 0)
    r.elect(0)
    r.fetch(1, 0)
    assert r[1].hw == 1


@pytest.mark.row("R29")
def test_follower_below_the_high_watermark_does_not_join_the_isr() -> None:
    r = Replicas((0, 1, 2), isr=(0, 1))
    r.elect(0)
    for value in (b"m1", b"m2"):
        r.produce(0, value)
    r.sync(0, 1)
    partition = r[0].partition
    partition.maybe_advance_high_watermark(r.now + LAG_MS + 1)
    assert partition.high_watermark == 2
    progress = partition.followers[2]
    partition.record_follower_fetch(progress, 1, r.now)
    assert not partition.may_expand_isr(progress)
    partition.record_follower_fetch(progress, 2, r.now)
    assert partition.may_expand_isr(progress)


def test_follower_that_fetches_at_the_log_end_is_caught_up() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    progress = r[0].partition.followers[1]
    r[0].partition.record_follower_fetch(progress, 1, r.now + 5)
    assert progress.last_caught_up == r.now + 5


def test_follower_lags_only_when_more_than_the_lag_limit_has_passed() -> None:
    r = Replicas((0, 1), isr=(0,))
    r.elect(0)
    partition = r[0].partition
    partition.record_follower_fetch(partition.followers[1], 0, r.now)
    r.now += LAG_MS
    r.produce(0, b"m1", acks=1)
    assert partition.high_watermark == 0, "it is about to join the ISR"
    assert partition.maybe_advance_high_watermark(r.now + 1)
    partition.isr_state = Committed((0, 1))
    assert not partition.maybe_shrink_isr(r.now)
    assert partition.maybe_shrink_isr(r.now + 1)


def test_follower_has_fetched_since_the_time_of_its_last_fetch() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.fetch(1, 0)
    progress = r[0].partition.followers[1]
    assert progress.item is not None
    fetched_at = progress.item.last_fetch()
    assert progress.has_fetched(fetched_at)
    assert not progress.has_fetched(fetched_at + 1)
    progress.release()
    assert not progress.has_fetched(fetched_at)


def test_min_isr_is_limited_to_the_number_of_replicas() -> None:
    r = Replicas((0, 1), min_insync_replicas="3")
    r.elect(0)
    assert not r[0].partition.under_min_isr
    assert r.produce(0, b"m1") == 1


@pytest.mark.row("R40")
def test_fetch_with_an_unknown_epoch_diverges_at_the_end_of_the_previous_epoch() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    for value in (b"m1", b"m2", b"m3"):
        r.produce(0, value)
    r.elect(1, to=())
    r.elect(0, to=(0,))
    r.produce(0, b"m4")
    diverging = r[0].partition.diverging
    assert diverging(1, 2) == (0, 3)
    assert diverging(0, 2) is None
    assert diverging(0, 4) == (0, 3)
    assert diverging(2, 4) is None


@pytest.mark.row("R31")
def test_isr_member_that_is_not_an_assigned_replica_delays_the_high_watermark() -> None:
    r = Replicas((0, 1, 2), isr=(0, 2))
    state = PartitionState(TP, 0, 0, (0, 2), 1, 1, (0, 1))
    partition = r[0].partition
    partition.become_leader(state, r.now - LAG_MS - 1)
    r.produce(0, b"m1")
    assert partition.high_watermark == 0
    partition.record_follower_fetch(partition.followers[2], 1, r.now)
    assert partition.high_watermark == 1


class TestPositions:
    """File positions kept between calls are not used after the layout of the log has changed."""

    def compacted(self, **config: str) -> Replicas:
        """Return two replicas with six committed records in segments of two records."""
        r = Replicas((0, 1), segment_bytes="200", **config)
        r.elect(0)
        for number in range(6):
            r.produce(0, b"%03d" % number)
        r.sync(0, 1, rounds=7)
        assert r[0].hw == 6
        return r

    def test_end_of_consumer_reads_has_its_new_file_position_after_a_compaction(self) -> None:
        r = self.compacted()
        partition, log = r[0].partition, r[0].log
        partition.restore_high_watermark(2)
        _, position = partition.read_limit(read_committed=False)
        assert position == log.locate(2)
        clean(log, 1, lambda offset: offset == 3)
        assert partition.read_limit(read_committed=False) == (2, log.locate(2))
        assert partition.read_limit(read_committed=True) == (2, log.locate(2))
        assert log.locate(2) != position

    def test_follower_fetch_offset_has_its_new_file_position_after_a_compaction(self) -> None:
        r = self.compacted(cleanup_policy="compact")
        partition, log = r[0].partition, r[0].log
        progress = partition.followers[1]
        partition.record_follower_fetch(progress, 2, r.now)
        clean(log, 1, lambda offset: offset == 3)
        assert progress.current_position() == log.locate(2)

    @pytest.mark.parametrize("fetches_again", [False, True])
    def test_follower_fetch_after_a_compaction_starts_at_the_new_file_position(
        self, fetches_again: bool
    ) -> None:
        r = self.compacted(cleanup_policy="compact")
        partition, log = r[0].partition, r[0].log
        progress = partition.followers[1]
        partition.record_follower_fetch(progress, 0, r.now)
        position = progress.current_position()
        _, progress.next_offset, progress.next_position = log.read(position, log.position, 1)
        clean(log, 0, lambda offset: offset == 0)
        if fetches_again:
            partition.record_follower_fetch(progress, 0, r.now)
        partition.record_follower_fetch(progress, 1, r.now)
        assert progress.position == log.locate(2)

    def test_high_watermark_advances_to_the_new_file_position_after_a_compaction(self) -> None:
        r = Replicas((0, 1), segment_bytes="200", cleanup_policy="compact")
        r.elect(0)
        for number in range(6):
            r.produce(0, b"%03d" % number)
        partition, log = r[0].partition, r[0].log
        follower = partition.followers[1]
        partition.under_min_isr = True  # keeps the fetch from moving the high watermark
        partition.record_follower_fetch(follower, 2, r.now)
        clean(log, 1, lambda offset: offset == 3)
        partition.under_min_isr = False
        assert partition.maybe_advance_high_watermark(r.now)
        assert partition.read_limit(read_committed=False) == (2, log.locate(2))


class TestLastStableOffset:
    """The last stable offset stops at the start of an open transaction until the end marker is committed."""

    def led(self) -> Replicas:
        r = Replicas((0, 1))
        r.elect(0)
        r.produce(0, b"m0")
        r.sync(0, 1)
        return r

    def append(
        self, r: Replicas, batch: bytearray, *, internal: bool = False, leader: int = 0
    ) -> int:
        """Append a batch, which is verified if it is internal."""
        replica = r[leader]
        replica.purgatory.dirty.append(replica.partition)
        field = memoryview(batch)
        guard = replica.partition.verification_of(field) if internal else NO_GUARD
        required = replica.partition.append_as_leader(
            field, -1, r.now, 0, internal=internal, guard=guard
        )
        replica.purgatory.finish_tick(r.now)
        return required

    def test_last_stable_offset_without_transactions_is_the_high_watermark(self) -> None:
        r = self.led()
        partition = r[0].partition
        assert partition.last_stable_offset == partition.high_watermark == 1
        assert partition.read_limit(read_committed=True) == partition.read_limit(
            read_committed=False
        )

    def test_last_stable_offset_stays_at_the_start_of_an_open_transaction(self) -> None:
        r = self.led()
        self.append(r, transactional_batch(0), internal=True)
        self.append(r, transactional_batch(1), internal=True)
        r.produce(0, b"m3")
        r.sync(0, 1)
        partition, log = r[0].partition, r[0].log
        assert (partition.last_stable_offset, partition.high_watermark) == (1, 4)
        assert partition.read_limit(read_committed=True) == (1, log.locate(1))
        assert partition.read_limit(read_committed=False) == (4, log.written_position)

    def test_last_stable_offset_moves_when_the_marker_is_committed(self) -> None:
        r = self.led()
        self.append(r, transactional_batch(0), internal=True)
        assert self.append(r, end_marker(coordinator_epoch=5), internal=True) == 3
        r.fetch(1, 0)
        assert r[0].partition.last_stable_offset == 1
        r.sync(0, 1)
        assert r[0].partition.last_stable_offset == r[0].partition.high_watermark == 3
        assert next(r[0].log.producers.active()).coordinator_epoch == 5
        assert list(r[1].log.producers.active()) == list(r[0].log.producers.active())

    def test_transactional_batch_of_a_client_is_refused_without_verification(self) -> None:
        r = self.led()
        assert self.append(r, transactional_batch(0)) == -ErrorCode.INVALID_TXN_STATE
        assert r[0].log.log_end_offset == 1

    def test_clients_may_not_write_transaction_markers(self) -> None:
        r = self.led()
        assert self.append(r, end_marker()) == -ErrorCode.INVALID_RECORD

    def test_new_leader_knows_the_last_stable_offset(self) -> None:
        r = self.led()
        self.append(r, transactional_batch(0), internal=True)
        r.produce(0, b"m2")
        r.sync(0, 1)
        r.elect(1)
        assert (r[1].partition.last_stable_offset, r[1].hw) == (1, 3)

    @pytest.mark.parametrize("commit", [False, True])
    def test_new_replica_above_the_start_of_a_transaction_knows_it_when_it_leads(
        self, commit: bool
    ) -> None:
        """A reassignment adds a replica whose log begins inside of two open transactions."""
        r = Replicas((0, 1), isr=(0,))
        r.elect(0)
        for batch in (
            transactional_batch(0),
            transactional_batch(0, producer=8),
            transactional_batch(1),
        ):
            self.append(r, batch, internal=True)
        r.produce(0, b"m3")
        r[0].partition.advance_log_start_offset(2)
        r.sync(0, 1)
        r.commit_isr(0)
        r.elect(1)
        r.sync(1, 0)
        partition, producers = r[1].partition, r[1].log.producers
        assert (r[1].log.log_start_offset, partition.last_stable_offset, r[1].hw) == (2, 2, 4)
        assert producers.is_in_transaction(7, 0)
        assert self.append(r, end_marker(commit=commit), internal=True, leader=1) == 5
        r.sync(1, 0)
        assert partition.last_stable_offset == r[1].hw == 5
        assert r[1].log.aborted_transactions(2, 5) == ([] if commit else [(7, 2)])
        assert r[0].log.aborted_transactions(2, 5) == ([] if commit else [(7, 0)])

    def test_removed_records_of_an_open_transaction_do_not_end_it(self) -> None:
        """DeleteRecords and retention remove the first batches of a transaction that goes on."""
        r = self.led()
        self.append(r, transactional_batch(0), internal=True)
        r.produce(0, b"m2")
        r.sync(0, 1)
        for broker in (0, 1):
            r[broker].log.roll()
            r[broker].partition.advance_log_start_offset(3)
            r[broker].log.remove_first_segments(1)
        self.append(r, transactional_batch(1))
        r.sync(0, 1)
        assert r[0].partition.last_stable_offset == r[1].partition.last_stable_offset == 3
        r.crash(1)
        r.restart(1, checkpoint=4)
        r[1].log.advance_log_start_offset(3)
        assert r[1].partition.last_stable_offset == 3
        assert r[1].log.producers.is_in_transaction(7, 0)

    def test_last_stable_offset_is_known_after_a_restart(self) -> None:
        r = self.led()
        self.append(r, transactional_batch(0), internal=True)
        self.append(r, end_marker(), internal=True)
        self.append(r, transactional_batch(1), internal=True)
        r.sync(0, 1)
        r.crash(1)
        r.restart(1, checkpoint=4)
        assert r[1].partition.last_stable_offset == 3
        assert next(r[1].log.producers.active()).coordinator_epoch == 0

    def test_last_stable_offset_rises_with_the_log_start_offset(self) -> None:
        r = self.led()
        self.append(r, transactional_batch(0), internal=True)
        r.produce(0, b"m2")
        r.sync(0, 1)
        r[0].partition.advance_log_start_offset(2)
        assert r[0].partition.last_stable_offset == 2

    def test_truncation_removes_an_open_transaction_above_the_new_log_end(self) -> None:
        r = self.led()
        self.append(r, transactional_batch(0), internal=True)
        r.sync(0, 1)
        partition = r[1].partition
        partition.truncate_to(1)
        assert partition.last_stable_offset == partition.high_watermark == 1
        assert partition.log.producers.first_unstable_offset(10) is None

    def test_last_stable_offset_is_at_most_the_high_watermark(self) -> None:
        r = self.led()
        r.produce(0, b"m1")
        r.produce(0, b"m2")
        self.append(r, transactional_batch(0), internal=True)
        r[0].partition.record_follower_fetch(r[0].partition.followers[1], 2, r.now)
        assert r[0].partition.last_stable_offset == r[0].partition.high_watermark == 2


def test_follower_does_not_advance_its_high_watermark_by_itself() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.fetch(1, 0)
    assert not r[1].partition.maybe_advance_high_watermark(r.now)
    assert r[1].hw == 0


def test_offline_leader_does_not_advance_the_high_watermark_or_append() -> None:
    r = Replicas((0,))
    r.elect(0)
    partition = r[0].partition
    r[0].purgatory.dirty.clear()
    batch = bytearray(build([Record(timestamp=1, value=b"m1")]))
    arguments = memoryview(batch), -1, r.now, 0
    assert partition.append_as_leader(*arguments) == 1
    r[0].log.flush()
    partition.offline = True
    assert not partition.maybe_advance_high_watermark(r.now)
    assert partition.check_leader_epoch(-1) == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.append_as_leader(*arguments) == -ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.row("R31")
def test_record_of_a_leader_alone_in_the_isr_is_not_committed_before_it_is_written() -> None:
    """The high watermark may be checked between append and write, for example when an ISR change is committed."""
    r = Replicas((0,))
    r.elect(0)
    partition = r[0].partition
    batch = bytearray(build([Record(0, 1000, None, b"m1", ())]))
    assert partition.append_as_leader(memoryview(batch), 1, r.now, 0) == 1
    assert not partition.maybe_advance_high_watermark(r.now)
    assert r[0].hw == 0
    r[0].log.flush()
    assert partition.written(r.now)
    assert r[0].hw == 1


@pytest.mark.row("R40")
def test_fetch_above_the_log_end_in_the_latest_epoch_diverges_at_the_log_end() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    assert r[0].partition.diverging(0, 1) is None
    assert r[0].partition.diverging(0, 2) == (0, 1)


@pytest.mark.row("R26")
def test_proposed_isr_has_the_epochs_of_the_leader_and_the_version_of_the_last_change() -> None:
    r = Replicas((0, 1, 2))
    r.elect(0)
    partition = r[0].partition
    r.produce(0, b"m1")
    r.sync(0, 1)
    r.now += LAG_MS + 1
    r.sync(0, 1)
    assert partition.maybe_shrink_isr(r.now)
    assert partition.proposed_state() == LeaderAndIsr(0, 0, (0, 1), 1, 1)
    partition.isr_committed(7, r.now)
    assert partition.proposed_state() == LeaderAndIsr(0, 0, (0, 1), 1, 7)


class DirtyReader:
    """A consumer session that counts how often its partition is marked dirty."""

    marks = 0

    def mark_dirty(self) -> None:
        self.marks += 1


def test_change_of_role_wakes_consumers_and_releases_the_followers() -> None:
    """Otherwise a waiting consumer gets no answer, and a former follower's session keeps reading the partition."""
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.sync(0, 1)
    partition, reader = r[0].partition, DirtyReader()
    progress = partition.followers[1]
    assert progress.item is not None
    partition.readers[reader] = None
    r.elect(1)
    assert (reader.marks, partition.readers) == (1, {})
    assert (partition.followers, progress.item, partition.leader) == ({}, None, 1)
    partition.readers[reader] = None
    partition.stop()
    assert reader.marks == 2


def opening(*, to: tuple[int, ...] = (0, 1, 2)) -> Replicas:
    """Return replicas with one committed record, whose leader 0 was elected again and is opening."""
    r = Replicas((0, 1, 2))
    r.elect(0)
    r.produce(0, b"m1")
    for follower in (1, 2):
        r.fetch(follower, 0)
        r.fetch(follower, 0)
    r.elect(0, to=to, opens_later=True)
    return r


@pytest.mark.row("C17", "C18")
def test_opening_leader_refuses_clients_and_appends_nothing() -> None:
    r = opening()
    partition = r[0].partition
    assert r.produce(0, b"m2") == r.produce(0, b"m2", acks=1) == -ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert r[0].log.log_end_offset == 1
    assert (
        partition.check_leader_epoch(-1)
        == partition.check_reader(-1)
        == ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    assert partition.check_leader_epoch(1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.open(r.now)
    assert partition.check_leader_epoch(1) == partition.check_reader(1) == 0
    assert r.produce(0, b"m2") == 2


@pytest.mark.row("C17")
def test_high_watermark_of_an_opening_leader_stays_until_the_isr_has_its_log() -> None:
    r = Replicas((0, 1))
    r.elect(1)
    r.produce(1, b"m1", b"m2")
    r.fetch(0, 1)
    r.elect(0, opens_later=True)
    assert (r[0].hw, r[0].log.log_end_offset) == (0, 2), "the page would expose both records"
    r.fetch(1, 0)
    assert r[0].hw == 2


@pytest.mark.row("C17")
def test_opening_leader_answers_a_diverged_followers_epoch_request_and_fetches() -> None:
    r = Replicas((0, 1, 2))
    r.elect(1)
    r.produce(1, b"m1")
    r.sync(1, 0, 2)
    r.produce(1, b"lost")
    r.elect(0, opens_later=True)
    r.sync(0, 1, 2)
    assert [replica.values() for replica in r.replicas.values()] == [[b"m1"]] * 3
    assert r[0].hw == 1


@pytest.mark.row("C17")
def test_waiting_produce_request_fails_when_its_leader_is_elected_again_and_opens_later() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    assert r[0].sent == []
    r.elect(0, opens_later=True)
    assert r[0].sent == [b"1:%d:-1" % ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_opening_leader_leaves_the_isr_to_its_mode() -> None:
    r = opening(to=(0,))
    partition = r[0].partition
    r.now += LAG_MS + 1
    assert not partition.maybe_shrink_isr(r.now)
    assert type(partition.isr_state) is Committed
    partition.open(r.now)
    assert partition.maybe_shrink_isr(r.now)
    assert partition.isr_state == PendingShrink((0, 1, 2), frozenset({1, 2}))


def test_caught_up_follower_joins_the_isr_after_the_leader_has_opened() -> None:
    r = Replicas((0, 1), isr=(0,))
    r.elect(0, opens_later=True)
    r.sync(0, 1)
    partition = r[0].partition
    assert not partition.may_expand_isr(partition.followers[1])
    partition.open(r.now)
    assert partition.may_expand_isr(partition.followers[1])
