"""The end of a transaction: the decision, its markers, and the record that completes it."""

from __future__ import annotations

import pytest
from support.transaction_world import T0, T1, U0, WALL_MS, TransactionWorld, record

from minikafka.base.errors import ErrorCode
from minikafka.transactions.state.metadata import Metadata
from minikafka.transactions.states import TransactionState

STATE = TransactionState
P = (40, 3)
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
WRONG = ErrorCode.INVALID_TXN_STATE


def in_state(state, *tps):
    started = -1 if state is STATE.EMPTY else WALL_MS
    return record(Metadata(40, 3, 60_000, state, WALL_MS, started, frozenset(tps)))


def open_world(*tps):
    return TransactionWorld(in_state(STATE.ONGOING, *(tps or (T0, T1))))


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (STATE.EMPTY, WRONG, WRONG),
        (STATE.ONGOING, 0, 0),
        (STATE.PREPARE_COMMIT, CONCURRENT, CONCURRENT),
        (STATE.PREPARE_ABORT, CONCURRENT, CONCURRENT),
        (STATE.COMPLETE_COMMIT, 0, WRONG),
        (STATE.COMPLETE_ABORT, WRONG, 0),
    ],
)
def test_end_of_a_transaction_depends_on_its_state(state, commit, abort):
    tps = () if state in (STATE.EMPTY, STATE.COMPLETE_COMMIT, STATE.COMPLETE_ABORT) else (T0,)

    assert TransactionWorld(in_state(state, *tps)).end(P, committed=True) == commit
    assert TransactionWorld(in_state(state, *tps)).end(P, committed=False) == abort


@pytest.mark.parametrize(
    ("producer", "name", "error"),
    [
        (P, "", ErrorCode.INVALID_REQUEST),
        (P, "other", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ((41, 3), "copy", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ((40, 2), "copy", ErrorCode.PRODUCER_FENCED),
        ((40, 4), "copy", ErrorCode.PRODUCER_FENCED),
    ],
)
def test_requests_of_other_producers_are_refused(producer, name, error):
    world = open_world()

    assert world.end(producer, name=name) == error
    assert world.add(producer, U0, name=name) == error
    assert world.verify(producer, T0, name=name) == {T0: error}
    assert world.describe().partitions == [T0, T1]


def test_markers_are_sent_after_the_decision_is_committed_and_answered():
    world = open_world()
    world.holds = True

    assert world.end(P) is None
    assert world.describe().state == "Ongoing"
    assert world.end(P) == CONCURRENT
    assert world.add(P, U0) == CONCURRENT
    assert world.markers == []
    world.finish()

    assert world.answers[0].error == 0
    (markers,) = world.markers
    assert markers.partitions == [T0, T1]
    assert markers.ended[:5] == ("copy", 40, 3, 7, True)
    assert world.describe().state == "PrepareCommit"


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_decision_that_is_not_written_is_not_made(error, answered):
    world = open_world()
    world.holds = True
    world.end(P)
    world.finish(error)

    assert world.answers[0].error == answered
    assert world.markers == []
    assert world.describe().state == "Ongoing"
    world.holds = False
    assert world.end(P, committed=False) == 0
    assert not world.markers[-1].ended.committed


def test_transaction_is_complete_after_the_last_marker():
    world = open_world(T0, T1, U0)
    world.end(P, committed=False)

    world.write_markers(T1)
    assert world.describe().state == "PrepareAbort"
    assert world.describe().partitions == [T0, U0]
    world.write_markers(T0, T1)
    assert world.last_record().state is STATE.PREPARE_ABORT
    world.write_markers(U0)
    assert world.describe()[2:] == ("CompleteAbort", 60_000, WALL_MS, 40, 3, [])
    assert world.last_record().partitions == frozenset()


def test_transaction_without_partitions_is_complete_at_once():
    world = TransactionWorld(in_state(STATE.ONGOING))

    assert world.end(P) == 0
    assert world.describe().state == "CompleteCommit"
    assert world.markers == []


def test_report_about_the_transaction_before_does_not_count():
    world = open_world(T0)
    world.end(P)
    first = world.markers[-1].ended
    world.write_markers()
    world.add(P, T0)
    world.end(P)

    world.run(world.core.markers_written(first, [T0], world.now))
    assert world.describe().state == "PrepareCommit"
    world.write_markers()
    assert world.describe().state == "CompleteCommit"


def test_completion_is_written_again_until_it_succeeds():
    world = open_world(T0)
    world.end(P)
    world.holds = True
    world.write_markers()
    for error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1):
        world.finish(error)
        assert world.held == []
        assert world.end(P) == CONCURRENT
        world.pass_time(100)
        assert len(world.held) == 1
    world.finish()

    assert world.describe().state == "CompleteCommit"
    world.pass_time(1_000)
    assert world.held == []


def test_completion_is_not_written_again_after_an_unload():
    world = open_world(T0)
    world.end(P)
    world.holds = True
    world.write_markers()
    world.finish(ErrorCode.REQUEST_TIMED_OUT)
    world.run(world.core.unload(0))

    world.pass_time(1_000)
    assert world.held == []


def test_fenced_coordinator_sends_no_more_markers():
    world = open_world(T0)
    world.end(P)

    world.run(world.core.fenced(world.markers[-1].ended, world.now))
    assert len(world.markers) == 1
    assert world.describe().state == "PrepareCommit"


def test_coordinator_that_was_elected_again_sends_the_markers_with_its_new_epoch():
    world = open_world(T0, T1)
    world.end(P)
    old = world.markers[-1].ended
    world.write_markers(T1)
    assert not world.core.begin_load(0, 9)
    world.run(world.core.fenced(old, world.now))

    assert world.markers[-1].partitions == [T0]
    assert world.markers[-1].ended[1:5] == (40, 3, 9, True)
    world.run(world.core.markers_written(old, [T0], world.now))
    assert world.describe().state == "PrepareCommit"
    world.write_markers()
    assert world.describe().state == "CompleteCommit"


@pytest.mark.parametrize("committed", [True, False])
def test_next_coordinator_sends_the_markers_of_a_decision_again(committed):
    world = open_world(T0, T1)
    world.end(P, committed=committed)
    world.write_markers(T0)

    after = TransactionWorld(*world.log, loads=False)
    after.load(8)

    (markers,) = after.markers
    assert markers.partitions == [T0, T1]
    assert markers.ended[1:5] == (40, 3, 8, committed)
    assert after.end(P, committed=committed) == CONCURRENT
    after.write_markers()
    assert after.end(P, committed=committed) == 0


def test_unload_answers_waiting_producers_and_drops_the_markers():
    world = open_world(T0)
    world.holds = True
    world.end(P)
    world.init("new")
    allocate = world.held[-1]
    world.run(world.core.unload(0))

    assert [answer.error for answer in world.answers.values()] == [ErrorCode.NOT_COORDINATOR] * 2
    assert world.dropped == [0]
    assert world.end(P) == ErrorCode.NOT_COORDINATOR
    world.finish()
    world.run(world.core.allocated(allocate.token, 99, 0, world.now))
    assert world.markers == []
    assert len(world.answers) == 3


def test_append_of_an_earlier_term_does_not_change_what_was_loaded_since():
    world = open_world(T0)
    world.holds = True
    world.end(P)
    world.run(world.core.unload(0))
    world.load(8)

    world.finish()
    assert world.describe().state == "Ongoing"
    assert world.end(P, committed=False) is None
