"""Transactions that time out, and transactional ids that expire."""

from __future__ import annotations

from support.transaction_world import T0, WALL_MS, TransactionWorld, record

from minikafka.base.errors import ErrorCode
from minikafka.transactions.state.metadata import Metadata
from minikafka.transactions.states import TransactionState

STATE = TransactionState


def test_coordinator_without_transactional_ids_has_no_timer():
    assert TransactionWorld().core.next_deadline() is None


def test_transaction_that_has_timed_out_is_aborted_with_a_raised_epoch():
    world = TransactionWorld(abort_timed_out_interval_ms=1_000)
    world.init(timeout_ms=3_500)
    world.add((40, 0))

    world.pass_time(3_999)
    assert world.describe().state == "Ongoing"
    world.pass_time(1)
    assert world.describe().state == "PrepareAbort"
    assert world.markers[-1].ended[1:5] == (40, 1, 7, False)
    world.write_markers()
    assert world.end((40, 0)) == ErrorCode.PRODUCER_FENCED
    assert world.init().producer_epoch == 2


def test_transaction_times_out_after_its_timeout_and_not_when_it_is_over_exactly():
    world = TransactionWorld(abort_timed_out_interval_ms=1_000)
    world.init(timeout_ms=3_000)
    world.add((40, 0))

    world.pass_time(3_000)
    assert world.describe().state == "Ongoing"
    world.pass_time(1_000)
    assert world.describe().state == "PrepareAbort"


def test_each_transaction_of_an_id_that_times_out_is_aborted_and_the_next_one_served():
    world = TransactionWorld(abort_timed_out_interval_ms=1_000)
    for epoch in (0, 2, 4):
        assert world.init(timeout_ms=500).producer_epoch == epoch
        assert world.add((40, epoch)) == 0
        world.pass_time(2_000)
        assert world.describe().state == "PrepareAbort"
        world.write_markers()
        assert world.describe().state == "CompleteAbort"


def test_time_of_a_transaction_counts_from_its_first_partition():
    world = TransactionWorld(abort_timed_out_interval_ms=1_000)
    world.init(timeout_ms=5_500)
    world.pass_time(4_000)
    world.add((40, 0))
    world.pass_time(4_000)
    world.add((40, 0), T0)

    world.pass_time(1_000)
    assert world.describe().state == "Ongoing"
    world.pass_time(2_000)
    assert world.describe().state == "PrepareAbort"


def test_next_coordinator_aborts_a_transaction_that_timed_out_meanwhile():
    state = STATE.ONGOING
    started = WALL_MS - 3_600_000
    metadata = Metadata(40, 3, 60_000, state, started, started, frozenset((T0,)))
    world = TransactionWorld(record(metadata))

    assert world.describe().state == "Ongoing"
    world.pass_time(10_000)
    assert world.describe().state == "PrepareAbort"


def test_transaction_whose_end_is_being_written_does_not_time_out():
    world = TransactionWorld(abort_timed_out_interval_ms=1_000)
    world.init(timeout_ms=500)
    world.add((40, 0))
    world.holds = True
    world.end((40, 0))
    world.pass_time(5_000)
    assert len(world.held) == 1
    world.finish()

    assert world.markers[-1].ended[1:5] == (40, 0, 7, True)


def test_abort_that_could_not_be_written_is_tried_at_the_next_search():
    world = TransactionWorld(abort_timed_out_interval_ms=1_000)
    world.init(timeout_ms=500)
    world.add((40, 0))
    world.holds = True
    world.pass_time(1_000)
    world.finish(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.held == []
    world.pass_time(1_000)
    world.finish()

    assert world.markers[-1].ended.producer_epoch == 1


def expiring(*records, **settings):
    times = {"expiration_ms": 60_000, "remove_expired_interval_ms": 1_000}
    return TransactionWorld(*records, **{**times, **settings})


def test_unused_id_is_removed_with_a_tombstone():
    world = expiring()
    world.init()

    world.pass_time(59_000)
    assert world.describe().state == "Empty"
    world.pass_time(2_000)
    assert world.describe().error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.last_record() is None
    assert world.add((40, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.init().producer_id == 41


def test_id_expires_exactly_when_it_was_not_used_for_the_whole_time():
    world = expiring(remove_expired_interval_ms=60_000)
    world.init()

    world.pass_time(60_000)
    assert world.describe().error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_ids_that_are_made_after_a_search_are_found_by_the_next_one():
    world = expiring()
    for name in ("first", "second", "third"):
        world.init(name)
        world.pass_time(62_000)
        assert world.describe(name).error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_open_transaction_keeps_its_id():
    world = expiring(abort_timed_out_interval_ms=10_000_000)
    world.init(timeout_ms=900_000)
    world.add((40, 0))

    world.pass_time(200_000)
    assert world.describe().state == "Ongoing"
    world.end((40, 0))
    world.pass_time(200_000)
    assert world.describe().state == "PrepareCommit"
    world.write_markers()
    world.pass_time(62_000)
    assert world.describe().error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_requests_wait_while_an_id_is_removed():
    world = expiring()
    world.init()
    world.holds = True
    world.pass_time(61_000)

    assert world.init().error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.add((40, 0)) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.finish(ErrorCode.REQUEST_TIMED_OUT)
    assert world.describe().state == "Empty"
    world.holds = False
    assert world.add((40, 0)) == 0


def test_many_ids_expire_in_several_calls():
    old = Metadata(40, 3, 60_000, STATE.EMPTY, WALL_MS - 100_000)
    names = [f"copy-{number}" for number in range(1_203)]
    world = expiring(*(record(old, name) for name in names))

    world.now += 1_000
    world.run(world.core.handle_timer(world.now))
    assert len(world.list().transactions) == 703
    assert world.core.next_deadline() == world.now
    world.pass_time(0)
    assert world.list().transactions == []
