"""The state machine of a follower: responses of the leader, truncation, gaps and disk failures."""

from __future__ import annotations

import pytest
from support.storage.logs import replace_segments
from support.storage.replication import KEY, TP, Replicas

from minikafka.base.errors import ErrorCode
from minikafka.kafka.records.batch import Record, build
from minikafka.simulation.clocks import ManualClock
from minikafka.storage.replication.follower import ASKED, DELAYED, STOPPED, Follower, reconcile
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.throttle import Throttle

NO_RECORDS = (bytearray(), memoryview(b""), 0, 0)


@pytest.mark.row("R44")
def test_follower_goes_offline_when_it_cannot_write_records() -> None:
    """Otherwise the write error would end every connection to the leader."""
    world = Replicas((0, 1))
    world.elect(0)
    world.produce(0, b"x")
    world.sync(0, 1)
    failed: list[Partition] = []
    machine, partition = world[1].follower, world[1].partition
    machine.on_storage_failed = lambda broken, _: failed.append(broken)
    world[1].storage.fail("/d/t-0")
    data = bytearray(build([Record(value=b"y")], base_offset=1, leader_epoch=0))
    machine.on_partition(KEY, 0, 1, 0, (data, memoryview(data), 0, len(data)), None)
    assert failed == [partition]
    assert machine.followed[KEY].state == STOPPED


def test_follower_removes_an_epoch_that_it_led_without_appending_a_record() -> None:
    """Otherwise every fetch would name an epoch unknown to the leader, and every response would report a divergence."""
    world = Replicas((0, 1))
    world.elect(0)
    world.produce(0, b"a")
    world.sync(0, 1)
    world.elect(1, to=(1,))
    world.elect(0)
    world.produce(0, b"b")
    world.sync(0, 1)
    assert world[1].log.epochs.entries == [(0, 0), (2, 1)]
    assert world[1].entries() == world[0].entries()


def follower_of_epochs(world: Replicas) -> Partition:
    """Return a follower with offsets 0-1 in epoch 0, offsets 2-3 in epoch 2, and high watermark 1."""
    world.elect(0)
    for value in (b"a", b"b"):
        world.produce(0, value)
    world.fetch(1, 0)
    world.elect(1, to=())
    world.elect(0)
    for value in (b"c", b"d"):
        world.produce(0, value)
    world.fetch(1, 0)
    partition = world[1].partition
    partition.high_watermark = 1
    assert partition.log.epochs.entries == [(0, 0), (2, 2)]
    assert partition.log.log_end_offset == 4
    return partition


@pytest.mark.row("R39")
@pytest.mark.parametrize(
    ("answer", "agreed", "end", "epochs"),
    [
        pytest.param(
            (2, 3), True, 3, [(0, 0), (2, 2)], id="the epoch asked for ends earlier there"
        ),
        pytest.param((2, 9), True, 4, [(0, 0), (2, 2)], id="it goes on there"),
        pytest.param((0, 1), True, 1, [(0, 0)], id="a smaller epoch, which ends earlier there"),
        pytest.param((0, 9), True, 2, [(0, 0)], id="a smaller epoch, which ends earlier here"),
        pytest.param((1, 9), False, 2, [(0, 0)], id="one that was never seen here: ask again"),
        pytest.param((-1, -1), True, 1, [(0, 0)], id="none: to the high watermark"),
    ],
)
def test_follower_truncates_to_where_the_logs_agree(
    answer: tuple[int, int], agreed: bool, end: int, epochs: list[tuple[int, int]]
) -> None:
    partition = follower_of_epochs(Replicas((0, 1)))
    assert reconcile(partition, *answer) is agreed
    assert partition.log.log_end_offset == end
    assert partition.log.epochs.entries == epochs


def test_log_without_epochs_is_truncated_to_the_leaders_end() -> None:
    """The records have no leader epoch if they were written in the oldest format."""
    partition = follower_of_epochs(Replicas((0, 1)))
    partition.log.epochs.clear()
    assert reconcile(partition, 0, 3)
    assert partition.log.log_end_offset == 3


@pytest.mark.row("R39")
def test_follower_asks_with_its_next_smaller_epoch_if_it_lacks_the_leaders_epoch() -> None:
    world = Replicas((0, 1))
    world.elect(0)
    world.produce(0, b"a", b"b")
    world.sync(0, 1)
    world.produce(0, b"c")
    world.elect(1, isr=(1,), to=(1,))
    world.produce(1, b"x")
    world.elect(0, isr=(0,), to=(0,))
    world.produce(0, b"d")
    world.elect(1, isr=(1,))
    machine = world[0].follower
    asked = [machine.epoch_questions()]
    machine.on_epoch_answer(KEY, 0, *world[1].partition.epoch_end_offset(2))
    assert world[0].values() == [b"a", b"b", b"c"], "epoch 2 ends at 3, before the leader's epoch 1"
    assert not machine.has_fetch()
    asked.append(machine.epoch_questions())
    assert asked == [[("t", 0, 3, 2)], [("t", 0, 3, 0)]]
    machine.on_epoch_answer(KEY, 0, *world[1].partition.epoch_end_offset(0))
    assert world[0].values() == [b"a", b"b"]
    world.sync(1, 0)
    assert world[0].entries() == world[1].entries()


@pytest.mark.row("R45")
def test_follower_asks_for_the_end_of_its_epoch_before_it_fetches_in_a_new_leader_epoch() -> None:
    """Its leader is the same in both leader epochs."""
    world = Replicas((0, 1))
    world.elect(0)
    world.produce(0, b"a")
    world.sync(0, 1)
    world.elect(0)
    machine = world[1].follower
    assert machine.next_fetch()[0] == {}
    assert machine.epoch_questions() == [("t", 0, 1, 0)]
    assert machine.next_fetch()[0] == {}
    machine.on_epoch_answer(KEY, 0, 0, 1)
    assert machine.next_fetch()[0] == {b"t": [(0, 1, 1, 0, 0, 1 << 20)]}


def test_follower_removes_an_epoch_entry_above_the_leaders_epoch_but_no_records() -> None:
    """Kafka keeps the wrong epoch. The leader then refuses every fetch, and the follower never joins the ISR."""
    partition = follower_of_epochs(Replicas((0, 1)))
    partition.log.epochs.replace([(0, 0), (2, 2), (1_000, 3)])
    assert reconcile(partition, -1, -1) is False
    assert partition.log.log_end_offset == 4
    assert partition.log.epochs.entries == [(0, 0), (2, 2)]


def test_full_truncation_sets_the_high_watermark_to_the_new_start_offset() -> None:
    partition = follower_of_epochs(Replicas((0, 1)))
    partition.truncate_fully_and_start_at(7)
    assert (partition.high_watermark, partition.log.log_end_offset) == (7, 7)


class TestGaps:
    def leader_with_a_gap(self, **config: str) -> Replicas:
        """Return replicas whose leader has the offsets 0 and 2 and whose follower has offset 0."""
        world = Replicas((0, 1), isr=(0,), **config)
        world.elect(0)
        world.produce(0, b"a", acks=1)
        world.fetch(1, 0)
        gaps = world[0].log.gaps
        gaps.mark(0)
        batch = bytearray(build([Record(timestamp=1, value=b"c")], base_offset=2, leader_epoch=0))
        world[0].log.append_replicated(batch, memoryview(batch), 0, len(batch))
        return world

    def test_follower_copies_a_gap_in_a_compacted_topic(self) -> None:
        world = self.leader_with_a_gap(cleanup_policy="compact")
        world.sync(0, 1)
        assert world[1].entries() == [(0, b"a"), (2, b"c")]
        assert world[1].log.gaps.first_dirty_offset == 0

    def test_follower_asks_for_the_epoch_end_offset_at_a_gap_in_an_uncompacted_topic(self) -> None:
        world = self.leader_with_a_gap()
        world.fetch(1, 0)
        assert world[1].entries() == [(0, b"a")]
        machine = world[1].follower
        assert machine.followed[KEY].state == DELAYED
        world.retry(1)
        assert machine.epoch_questions(), "it reconciles before it fetches again"

    def test_follower_of_a_formerly_compacted_topic_accepts_a_gap_sent_twice(self) -> None:
        world = self.leader_with_a_gap()
        world.fetch(1, 0)
        world.retry(1)
        world.fetch(1, 0)
        assert world[1].log.gaps.accepted
        world.fetch(1, 0)
        assert world[1].entries() == [(0, b"a"), (2, b"c")]

    def test_leader_sends_no_records_above_records_that_it_lost(self) -> None:
        world = self.leader_with_a_gap()
        gaps = world[0].log.gaps
        gaps.accepted, gaps.first_dirty_offset, gaps.lost_from = False, None, 1
        for _ in range(4):
            world.fetch(1, 0)
            world.retry(1)
        assert world[1].entries() == [(0, b"a")]
        assert not world[1].log.gaps.accepted

    def test_follower_goes_offline_when_its_disk_fails_while_it_saves_an_offset_gap(self) -> None:
        world = self.leader_with_a_gap()
        failed: list[Partition] = []
        world[1].follower.on_storage_failed = lambda broken, _: failed.append(broken)
        world.fetch(1, 0)
        world.retry(1)
        world[1].log.gaps.on_marked = lambda: world[1].storage.check("/d/t-0")
        world[1].storage.fail("/d/t-0")
        world.fetch(1, 0)
        assert failed == [world[1].partition]
        assert world[1].follower.followed[KEY].state == STOPPED

    def test_follower_truncates_where_its_log_lost_a_record_and_copies_from_there(self) -> None:
        world = Replicas((0, 1))
        world.elect(0)
        for value in (b"a", b"b", b"c"):
            world.produce(0, value)
        world.sync(0, 1)
        world[1].log.gaps.lost_from = 1
        world.elect(0)
        world.ask(1, 0)
        assert world[1].entries() == [(0, b"a")]
        world.sync(0, 1)
        assert world[1].entries() == world[0].entries()


@pytest.mark.row("R44")
@pytest.mark.parametrize("is_out_of_range", [False, True])
def test_follower_goes_offline_when_its_disk_fails_while_it_truncates(
    is_out_of_range: bool,
) -> None:
    world = Replicas((0, 1))
    world.elect(0)
    world.produce(0, b"a", b"b")
    world.sync(0, 1)
    world.elect(0)
    failed: list[Partition] = []
    machine = world[1].follower
    machine.on_storage_failed = lambda broken, _: failed.append(broken)
    if is_out_of_range:
        world.ask(1, 0)
        machine.next_fetch()
        world[1].storage.fail("/d/t-0")
        machine.on_partition(KEY, ErrorCode.OFFSET_OUT_OF_RANGE, -1, 9, NO_RECORDS, None)
    else:
        machine.epoch_questions()
        world[1].storage.fail("/d/t-0")
        machine.on_epoch_answer(KEY, 0, 0, 0)
    assert failed == [world[1].partition]
    assert machine.followed[KEY].state == STOPPED
    assert (machine.next_fetch()[0], machine.epoch_questions()) == ({}, [])


@pytest.mark.row("R43")
def test_response_to_a_fetch_from_before_a_truncation_is_ignored() -> None:
    """A compacted topic can have gaps. If the response were used, its records would be appended above a gap."""
    world = Replicas((0, 1), cleanup_policy="compact")
    world.elect(0)
    for value in (b"a", b"b", b"c"):
        world.produce(0, value)
    world.sync(0, 1)
    world.produce(0, b"d")
    machine, partition = world[1].follower, world[1].partition
    machine.next_fetch()
    answer = bytearray(build([Record(timestamp=1, value=b"d")], base_offset=3, leader_epoch=0))
    partition.truncate_to(1)
    machine.on_partition(KEY, 0, 3, 0, (answer, memoryview(answer), 0, len(answer)), None)
    assert world[1].entries() == [(0, b"a")]


def test_logs_of_replicas_are_equal_if_the_start_of_an_epoch_was_compacted_away() -> None:
    """Replica 2 has uncommitted records of epoch 0 at the offsets at which epoch 1 began.

    The records of epoch 1 at these offsets are compacted away. The new leader has copied the compacted log,
    and its epoch 1 must not start above these offsets.
    """
    world = Replicas((0, 1, 2), isr=(0, 1, 2), cleanup_policy="compact", segment_bytes="100")
    world.elect(2)
    world.produce(2, b"a")
    world.sync(2, 0, 1)
    world.crash(2)
    for value in (b"x", b"y"):
        world.produce(2, value)
    world.elect(0, isr=(0,), to=(0,))
    for value in (b"b", b"c", b"d"):
        world.produce(0, value)
    log = world[0].log
    for segment in log.segments[1:3]:
        log.storage.write_atomically(segment.path(".log.cleaned"), b"")
        replace_segments(log, [segment])
    assert world[0].entries_of_every_segment() == [(0, b"a"), (3, b"d")]
    world.send_leader_and_isr(1)
    world.sync(0, 1)
    world.elect(1, isr=(1,), to=(0, 1))
    world.alive.add(2)
    world.send_leader_and_isr(2)
    world.sync(1, 0, 2)
    expected = world[1].entries_of_every_segment()
    assert expected == [(0, b"a"), (3, b"d")]
    assert world[2].entries_of_every_segment() == expected


def test_responses_of_a_former_leader_epoch_are_ignored() -> None:
    """The partition has become follower in a newer epoch, but the fetcher still follows it in the former epoch."""
    world = Replicas((0, 1))
    world.elect(0)
    world.produce(0, b"a")
    world.sync(0, 1)
    machine, partition = world[1].follower, world[1].partition
    followed = machine.followed[KEY]
    machine.next_fetch()
    answer = bytearray(build([Record(timestamp=1, value=b"b")], base_offset=1, leader_epoch=0))
    partition.leader_epoch = 1
    machine.on_partition(KEY, 0, 2, 0, (answer, memoryview(answer), 0, len(answer)), None)
    assert world[1].entries() == [(0, b"a")]
    followed.state = ASKED
    machine.on_epoch_answer(KEY, 0, 0, 0)
    assert world[1].entries() == [(0, b"a")]
    assert followed.state == ASKED


@pytest.mark.row("R33")
def test_follower_keeps_records_between_its_high_watermark_and_the_leaders_start() -> None:
    """These records may be uncommitted: a follower's log start offset never exceeds its high watermark."""
    world = Replicas((0, 1))
    world.elect(0)
    for _ in range(3):
        world.produce(0, b"x")
    world.sync(0, 1)
    machine, partition = world[1].follower, world[1].partition
    partition.high_watermark = 1
    machine.next_fetch()
    machine.on_partition(KEY, 0, 1, 2, (bytearray(), memoryview(b""), 0, 0), None)
    assert partition.log.log_start_offset == 1


def test_high_watermark_of_a_follower_never_decreases() -> None:
    """A new leader may still have a lower high watermark than its predecessor."""
    partition = follower_of_epochs(Replicas((0, 1)))
    partition.follow_high_watermark(3)
    partition.follow_high_watermark(2)
    assert partition.high_watermark == 3


@pytest.mark.parametrize(("checkpointed", "restored"), [(9, 4), (3, 3), (0, 1)])
def test_restored_high_watermark_lies_within_the_log(checkpointed: int, restored: int) -> None:
    partition = follower_of_epochs(Replicas((0, 1)))
    partition.log.advance_log_start_offset(1)
    partition.restore_high_watermark(checkpointed)
    assert partition.high_watermark == restored


class TestRequests:
    def following(self) -> tuple[Replicas, Follower]:
        """Return a cluster and its follower of an empty partition, before the follower's first request."""
        world = Replicas((0, 1))
        world.elect(0)
        return world, world[1].follower

    def test_epoch_of_a_partition_is_requested_again_after_a_disconnect(self) -> None:
        _, machine = self.following()
        questions = machine.epoch_questions()
        assert machine.epoch_questions() == []
        machine.disconnected()
        assert machine.epoch_questions() == questions

    @pytest.mark.parametrize("step", ["new", "listed", "delayed", "throttled"])
    def test_removed_partition_is_in_no_further_request(self, step: str) -> None:
        world, machine = self.following()
        if step == "throttled":
            world[1].partition.follower_throttle = Throttle(ManualClock(), 11, 1_000)
        if step != "new":
            world.ask(1, 0)
        if step == "delayed":
            machine.next_fetch()
            machine.on_partition(KEY, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 0, NO_RECORDS, None)
        machine.remove(TP)
        machine.release_held()
        assert (machine.has_fetch(), machine.next_row()) == (False, None)
        assert machine.epoch_questions() == []
        assert machine.get_timer(world.now) is None

    @pytest.mark.parametrize("behind", [False, True])
    def test_throttled_replica_that_has_reached_the_high_watermark_is_not_held(
        self, behind: bool
    ) -> None:
        """Only a replica that is behind waits for the throttle, so that an in-sync replica stays in sync."""
        world = Replicas((0, 1), isr=(0,))
        world.alive.discard(1)
        world.elect(0, to=(0, 1))
        world.produce(0, b"m1", acks=1)
        machine = world[1].follower
        world[1].partition.follower_throttle = Throttle(ManualClock(), 11, 1_000)
        world.ask(1, 0)
        machine.release_held()
        machine.next_fetch()
        machine.on_session(0, 1)
        data = bytearray(world[0].log.read(0, world[0].log.written_position, 1 << 20)[0])
        records = (data, memoryview(data), 0, len(data))
        machine.on_partition(KEY, 0, 2 if behind else 1, 0, records, None)
        assert (KEY in machine.held, KEY in machine.to_list) == (behind, not behind)

    def test_partition_that_is_followed_again_is_not_forgotten(self) -> None:
        world, machine = self.following()
        world.fetch(1, 0)
        machine.remove(TP)
        machine.add(world[1].partition)
        world.ask(1, 0)
        topics, forgotten = machine.next_fetch()
        assert (list(topics), forgotten) == ([b"t"], {})
        assert machine.has_fetch(), "the session has the partition"

    def test_removed_partition_is_sent_as_forgotten_only_if_the_session_has_it(self) -> None:
        world, machine = self.following()
        machine.remove(TP)
        machine.session_id = 7
        assert machine.next_fetch() == ({}, {})
        world.elect(0)
        world.fetch(1, 0)
        machine.remove(TP)
        assert machine.next_fetch() == ({}, {b"t": [0]})
        machine.remove(TP)
        assert machine.next_fetch() == ({}, {})

    def test_new_session_sends_no_forgotten_partitions(self) -> None:
        world, machine = self.following()
        world.fetch(1, 0)
        machine.remove(TP)
        machine.session_id = 0
        assert machine.next_fetch() == ({}, {})

    def test_next_fetch_row_is_none_without_a_partition_or_with_a_forgotten_partition(self) -> None:
        world, machine = self.following()
        assert machine.next_row() is None
        world.ask(1, 0)
        machine.forgotten[b"other", 0] = None
        assert machine.next_row() is None
        machine.forgotten.clear()
        row = machine.next_row()
        assert row is not None
        assert row[0] == b"t"
        assert machine.next_row() is None

    @pytest.mark.row("R50")
    def test_session_error_begins_a_new_session(self) -> None:
        world, machine = self.following()
        world.fetch(1, 0)
        assert machine.session_id
        assert not machine.on_session(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        assert (machine.session_id, machine.session_epoch) == (0, 0)
        assert list(machine.next_fetch()[0]) == [b"t"]

    def test_session_epoch_wraps_to_one(self) -> None:
        _, machine = self.following()
        machine.session_epoch = 0x7FFFFFFF
        assert machine.on_session(0, 7)
        assert machine.session_epoch == 1
        assert machine.on_session(0, 7)
        assert machine.session_epoch == 2


class TestStaleResponses:
    """A response for a partition that is no longer followed, or that is in another state, changes nothing."""

    def follower_with_records(self) -> tuple[Replicas, Follower]:
        world = Replicas((0, 1))
        world.elect(0)
        for value in (b"a", b"b"):
            world.produce(0, value)
        world.sync(0, 1)
        return world, world[1].follower

    def test_epoch_response_for_a_removed_partition_is_ignored(self) -> None:
        world, machine = self.follower_with_records()
        machine.remove(TP)
        machine.on_epoch_answer(KEY, 0, 0, 0)
        assert world[1].log.log_end_offset == 2

    def test_epoch_response_without_a_request_is_ignored(self) -> None:
        world, machine = self.follower_with_records()
        machine.on_epoch_answer(KEY, 0, 0, 0)
        assert world[1].log.log_end_offset == 2

    def test_epoch_response_for_a_former_leader_epoch_is_ignored(self) -> None:
        world, machine = self.follower_with_records()
        machine.add(world[1].partition)
        machine.epoch_questions()
        world[1].partition.leader_epoch += 1
        machine.on_epoch_answer(KEY, 0, 0, 0)
        assert world[1].log.log_end_offset == 2

    def test_epoch_request_with_an_error_response_is_retried_without_truncation(self) -> None:
        world, machine = self.follower_with_records()
        machine.add(world[1].partition)
        machine.epoch_questions()
        machine.on_epoch_answer(KEY, ErrorCode.UNKNOWN_LEADER_EPOCH, -1, 0)
        assert world[1].log.log_end_offset == 2
        assert machine.followed[KEY].state == DELAYED

    def records(self, offset: int) -> tuple[bytearray, memoryview, int, int]:
        data = bytearray(
            build([Record(timestamp=1, value=b"new")], base_offset=offset, leader_epoch=0)
        )
        return data, memoryview(data), 0, len(data)

    @pytest.mark.row("R44")
    def test_partition_is_fetched_again_after_a_response_with_a_damaged_batch(self) -> None:
        world, machine = self.follower_with_records()
        world.produce(0, b"c")
        world[0].sessions.clear()
        machine.disconnected()
        machine.next_fetch()
        data, view, start, end = self.records(2)
        data[-1] ^= 1
        machine.on_partition(KEY, 0, 3, 0, (data, view, start, end), None)
        assert (world[1].values(), machine.followed[KEY].state) == ([b"a", b"b"], DELAYED)
        world.retry(1)
        world.fetch(1, 0)
        assert world[1].values() == [b"a", b"b", b"c"]

    def test_records_of_a_removed_partition_are_ignored(self) -> None:
        world, machine = self.follower_with_records()
        machine.remove(TP)
        machine.on_partition(KEY, 0, 3, 0, self.records(2), None)
        assert world[1].log.log_end_offset == 2

    def test_follower_ignores_records_before_it_has_compared_its_log_with_the_leaders(self) -> None:
        world, machine = self.follower_with_records()
        machine.add(world[1].partition)
        machine.followed[KEY].sent_offset = 2
        machine.on_partition(KEY, 0, 3, 0, self.records(2), None)
        assert world[1].log.log_end_offset == 2

    @pytest.mark.row("R43")
    def test_records_of_a_former_leader_epoch_are_ignored(self) -> None:
        world, machine = self.follower_with_records()
        machine.next_fetch()
        world[1].partition.leader_epoch += 1
        machine.on_partition(KEY, 0, 3, 0, self.records(2), None)
        assert world[1].log.log_end_offset == 2

    def test_empty_log_keeps_its_start_offset_after_unknown_topic_or_partition(self) -> None:
        world = Replicas((0, 1))
        world.elect(0)
        world.fetch(1, 0)
        machine, nothing = world[1].follower, (bytearray(), memoryview(b""), 0, 0)
        machine.on_partition(KEY, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, 50, nothing, None)
        assert world[1].log.log_start_offset == 0

    def out_of_range(self, log_start_offset: int) -> Replicas:
        """Let a follower with two records receive OFFSET_OUT_OF_RANGE and this log start offset of the leader."""
        world, machine = self.follower_with_records()
        nothing = (bytearray(), memoryview(b""), 0, 0)
        machine.on_partition(
            KEY, ErrorCode.OFFSET_OUT_OF_RANGE, -1, log_start_offset, nothing, None
        )
        return world

    @pytest.mark.row("R42")
    def test_log_that_ends_below_the_leaders_start_restarts_at_the_leaders_start(self) -> None:
        log = self.out_of_range(5)[1].log
        assert (log.log_start_offset, log.log_end_offset) == (5, 5)

    @pytest.mark.row("R42")
    def test_log_beyond_the_leaders_end_is_truncated_to_the_leaders_end(self) -> None:
        world = Replicas((0, 1))
        world.elect(0)
        for value in (b"a", b"b", b"c"):
            world.produce(0, value)
        world.sync(0, 1)
        world[0].partition.truncate_to(1)
        world.elect(0)
        world.ask(1, 0)
        assert world[1].entries() == world[0].entries() == [(0, b"a")]

    @pytest.mark.parametrize("log_start_offset", [1, 2])
    def test_log_that_overlaps_the_leaders_log_is_kept_after_offset_out_of_range(
        self, log_start_offset: int
    ) -> None:
        world = self.out_of_range(log_start_offset)
        assert (world[1].log.log_start_offset, world[1].log.log_end_offset) == (0, 2)
        assert world[1].follower.followed[KEY].state == DELAYED

    @pytest.mark.parametrize(
        ("code", "delay"),
        [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 50), (ErrorCode.KAFKA_STORAGE_ERROR, 1000)],
    )
    def test_not_leader_error_is_retried_sooner_than_a_storage_error(
        self, code: ErrorCode, delay: int
    ) -> None:
        world, machine = self.follower_with_records()
        machine.on_partition(KEY, code, -1, 0, (bytearray(), memoryview(b""), 0, 0), None)
        assert machine.get_timer(world.now) == world.now + delay
