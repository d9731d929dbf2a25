"""The partitions of a transaction, descriptions, and the partitions that a coordinator serves."""

from __future__ import annotations

import pytest
from support.transaction_world import T0, T1, U0, WALL_MS, TransactionWorld, record

from minikafka.base.coordinators import LoadedRecord
from minikafka.base.errors import ErrorCode
from minikafka.transactions.messages.responses import (
    DescribedTransaction,
    ListedTransaction,
    ListResponse,
)
from minikafka.transactions.state.metadata import Metadata
from minikafka.transactions.state.records import transaction_key
from minikafka.transactions.states import TransactionState

STATE = TransactionState
P = (40, 0)
BEGUN = [STATE.ONGOING, STATE.PREPARE_COMMIT, STATE.PREPARE_ABORT]


def started():
    world = TransactionWorld()
    world.init()
    return world


def in_state(state, name="copy", started_ms=WALL_MS, producer_id=40):
    tps = frozenset((T0,)) if state in BEGUN else frozenset()
    return record(Metadata(producer_id, 0, 60_000, state, WALL_MS, started_ms, tps), name)


def test_producer_begins_and_commits_several_transactions():
    world = started()

    for number in range(3):
        assert world.add(P, T0, T1) == 0
        assert world.add(P, U0) == 0
        assert world.end(P) == 0
        assert world.markers[number].partitions == [T0, T1, U0]
        world.write_markers()
        assert world.end(P) == 0
    assert len(world.markers) == 3


# ---- partitions


@pytest.mark.parametrize(
    "state", [STATE.EMPTY, STATE.ONGOING, STATE.COMPLETE_COMMIT, STATE.COMPLETE_ABORT]
)
def test_partitions_are_added_unless_a_transaction_is_ending(state):
    assert TransactionWorld(in_state(state)).add(P, U0) == 0


def test_first_partitions_start_a_transaction():
    world = TransactionWorld(in_state(STATE.COMPLETE_ABORT))
    world.pass_time(1_000)
    world.add(P, T1)
    begun = world.wall_ms()
    world.pass_time(1_000)
    world.add(P, T0)

    assert world.last_record() == Metadata(
        40, 0, 60_000, STATE.ONGOING, world.wall_ms(), begun, frozenset((T0, T1))
    )


def test_partitions_are_in_the_transaction_after_their_append():
    world = started()
    world.holds = True

    assert world.add(P, T0) is None
    assert world.verify(P, T0) == {T0: ErrorCode.TRANSACTION_ABORTABLE}
    assert world.add(P, T1) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.finish(ErrorCode.REQUEST_TIMED_OUT)
    assert set(world.answers[1].errors.values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert world.describe().state == "Empty"
    world.add(P, T1)
    world.finish()
    assert world.verify(P, T0, T1) == {T0: ErrorCode.TRANSACTION_ABORTABLE, T1: 0}


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (STATE.EMPTY, ErrorCode.TRANSACTION_ABORTABLE),
        (STATE.ONGOING, 0),
        (STATE.PREPARE_COMMIT, ErrorCode.CONCURRENT_TRANSACTIONS),
        (STATE.PREPARE_ABORT, ErrorCode.CONCURRENT_TRANSACTIONS),
        (STATE.COMPLETE_COMMIT, ErrorCode.TRANSACTION_ABORTABLE),
        (STATE.COMPLETE_ABORT, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_verification_depends_on_the_state(state, error):
    assert TransactionWorld(in_state(state)).verify(P, T0) == {T0: error}


def test_known_partitions_and_a_repeated_end_are_answered_after_an_append():
    world = started()
    world.add(P, T0)
    world.holds = True

    # A former coordinator would otherwise answer from its old picture.
    assert world.add(P, T0) is None
    world.finish(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.answers[2].errors == {T0: ErrorCode.NOT_COORDINATOR}
    world.holds = False
    world.end(P)
    world.write_markers()
    world.holds = True
    assert world.end(P) is None
    world.finish(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.answers[4].error == ErrorCode.NOT_COORDINATOR


# ---- description and listing


def test_description_of_unknown_and_empty_ids_has_an_error():
    world = started()

    assert world.describe("other") == DescribedTransaction(
        "other", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    )
    assert world.describe("") == DescribedTransaction("", ErrorCode.INVALID_REQUEST)


def test_description_has_the_last_record():
    world = TransactionWorld(in_state(STATE.ONGOING))

    assert world.describe() == DescribedTransaction(
        "copy", 0, "Ongoing", 60_000, WALL_MS, 40, 0, [T0]
    )


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ((), ["a", "b", "c"]),
        ((["Ongoing"],), ["a"]),
        ((["Ongoing", "Empty"],), ["a", "c"]),
        (([], [41]), ["b"]),
        ((["Ongoing"], [41]), []),
        (([], [], 0), ["a", "b", "c"]),
        (([], [], 6_000), ["a", "c"]),
        (([], [], 8_000), ["c"]),
    ],
)
def test_listing_has_the_ids_that_pass_all_filters(filters, names):
    world = TransactionWorld(
        in_state(STATE.ONGOING, "a", WALL_MS - 3_000),
        in_state(STATE.COMPLETE_COMMIT, "b", WALL_MS, 41),
        in_state(STATE.EMPTY, "c", -1),
    )

    assert [each.transactional_id for each in world.list(*filters).transactions] == names


def test_listing_names_states_that_do_not_exist():
    world = TransactionWorld(in_state(STATE.ONGOING, "a"))

    assert world.list(["ongoing", "Nothing"]) == ListResponse(0, ["ongoing", "Nothing"], [])
    assert world.list(["Ongoing", "Nothing"]) == ListResponse(
        0, ["Nothing"], [ListedTransaction("a", 40, "Ongoing")]
    )


# ---- partitions of the topic


def errors_of_all(world):
    listed = world.list().error
    return {
        world.init().error,
        world.add(P, T0),
        world.end(P),
        *world.verify(P, T0).values(),
        world.describe().error,
        listed,
    }


def test_requests_wait_for_the_load_and_go_elsewhere_after_it():
    world = TransactionWorld(in_state(STATE.ONGOING), loads=False)
    elsewhere = {ErrorCode.NOT_COORDINATOR, 0}  # ListTransactions has an empty list
    assert errors_of_all(world) == elsewhere

    assert world.core.begin_load(0, 8)
    assert errors_of_all(world) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    world.run(world.core.unload(0))
    assert errors_of_all(world) == elsewhere
    world.load(9)
    assert world.describe().state == "Ongoing"
    world.run(world.core.unload(0))
    assert errors_of_all(world) == elsewhere
    assert world.list().transactions == []
    world.pass_time(4_000_000)
    assert world.core.next_deadline() is None


def test_load_of_an_earlier_epoch_has_no_effect():
    world = TransactionWorld(loads=False)
    world.core.begin_load(0, 8)
    assert world.core.begin_load(0, 9)
    key, value = in_state(STATE.ONGOING)

    world.core.load(0, 8, [LoadedRecord(key, value)])
    assert world.core.loaded(0, 8, 0) == []
    assert world.describe().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.run(world.core.loaded(0, 9, 0))
    assert world.describe().error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_loaded_partition_takes_a_later_epoch_for_its_markers():
    world = TransactionWorld(in_state(STATE.ONGOING))

    assert not world.core.begin_load(0, 9)
    world.end(P)
    assert world.markers[-1].ended.coordinator_epoch == 9


def test_load_keeps_the_last_record_of_an_id_and_skips_unreadable_ones():
    world = TransactionWorld(loads=False)
    world.core.begin_load(0, 8)
    key, value = in_state(STATE.ONGOING)
    gone, old = in_state(STATE.EMPTY, "gone", -1)
    world.core.load(
        0,
        8,
        [
            LoadedRecord(*in_state(STATE.EMPTY, started_ms=-1)),
            LoadedRecord(gone, old),
            LoadedRecord(key, value),
            LoadedRecord(None, value),
            LoadedRecord(b"\0\1\0\1x", value),
            LoadedRecord(transaction_key("bad"), value[:-1]),
            LoadedRecord(gone, None),
        ],
    )
    world.run(world.core.loaded(0, 8, 0))

    assert [each.transactional_id for each in world.list().transactions] == ["copy"]
    assert world.describe().state == "Ongoing"


def test_end_of_a_transaction_in_the_topic_has_no_effect():
    assert started().core.transaction_ended(0, 40, True) == []


def test_number_of_partitions_decides_which_id_belongs_to_the_coordinator():
    world = TransactionWorld()
    world.core.partition_count = 50

    assert world.init("copy").error == ErrorCode.NOT_COORDINATOR
    assert world.core.partition_count == 50


def test_id_in_two_partitions_is_in_the_state_of_the_one_that_was_loaded_last():
    world = TransactionWorld(in_state(STATE.ONGOING))
    key, value = in_state(STATE.EMPTY, started_ms=-1)
    world.core.begin_load(1, 3)
    world.core.load(1, 3, [LoadedRecord(key, value)])
    world.run(world.core.loaded(1, 3, 0))

    assert world.describe().state == "Empty"
    world.run(world.core.unload(0))
    world.pass_time(100_000)
    assert world.describe().state == "Empty"
    assert world.markers == []
