"""InitProducerId with a transactional id: new ids, raised epochs, fencing and recovery."""

from __future__ import annotations

import pytest
from support.transaction_world import T0, WALL_MS, TransactionWorld, record

from minikafka.base.errors import ErrorCode
from minikafka.transactions.messages.responses import InitProducerIdResponse
from minikafka.transactions.state.metadata import Metadata
from minikafka.transactions.states import TransactionState

FENCED = InitProducerIdResponse(ErrorCode.PRODUCER_FENCED)
BUSY = InitProducerIdResponse(ErrorCode.CONCURRENT_TRANSACTIONS)


def empty(producer_id, epoch):
    return record(Metadata(producer_id, epoch, 60_000, TransactionState.EMPTY, WALL_MS))


def ongoing(producer_id, epoch):
    state = TransactionState.ONGOING
    return record(Metadata(producer_id, epoch, 60_000, state, WALL_MS, WALL_MS, frozenset((T0,))))


def test_new_transactional_id_gets_a_producer_id_with_epoch_0():
    world = TransactionWorld()

    assert world.init(timeout_ms=1_234) == InitProducerIdResponse(0, 40, 0)
    assert world.init("other") == InitProducerIdResponse(0, 41, 0)
    assert world.last_record() == Metadata(40, 0, 1_234, TransactionState.EMPTY, world.wall_ms())


def test_next_producer_of_the_id_gets_the_next_epoch_and_its_own_timeout():
    world = TransactionWorld()
    world.init()

    assert world.init(timeout_ms=1_234) == InitProducerIdResponse(0, 40, 1)
    assert world.describe().timeout_ms == 1_234


@pytest.mark.parametrize("name", ["", "x" * 32_768, "ä" * 16_384])
def test_empty_and_too_long_ids_are_refused(name):
    assert TransactionWorld().init(name).error == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["x" * 32_767, "ä" * 16_383])
def test_longest_ids_are_accepted(name):
    assert TransactionWorld().init(name).error == 0


@pytest.mark.parametrize("producer", [(40, -1), (-1, 0)])
def test_request_with_an_id_without_an_epoch_is_refused(producer):
    assert TransactionWorld().init(producer=producer).error == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("timeout_ms", "error"),
    [
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (-1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (1, 0),
        (900_000, 0),
        (900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_timeout_must_be_positive_and_at_most_the_maximum(timeout_ms, error):
    assert TransactionWorld().init(timeout_ms=timeout_ms).error == error


def test_requests_wait_while_the_producer_id_is_allocated_and_written():
    world = TransactionWorld()
    world.holds = True

    assert world.init() is None
    assert world.init() == BUSY
    assert world.add((40, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.describe().error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    world.finish()
    assert world.init() == BUSY
    world.finish()
    assert world.answers[0] == InitProducerIdResponse(0, 40, 0)


@pytest.mark.parametrize("steps", [0, 1])
def test_new_id_is_forgotten_when_its_allocation_or_append_fails(steps):
    world = TransactionWorld()
    world.holds = True
    world.init()
    for _ in range(steps):
        world.finish()
    world.finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    assert world.answers[0] == InitProducerIdResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert world.list().transactions == []
    world.holds = False
    assert world.init().error == 0


def test_producer_that_starts_aborts_the_open_transaction_and_then_gets_its_epoch():
    world = TransactionWorld(ongoing(40, 3))

    assert world.init() == BUSY
    assert world.last_record().state is TransactionState.PREPARE_ABORT
    assert world.markers[-1].ended[1:5] == (40, 4, 7, False)
    assert world.init() == BUSY
    world.write_markers()
    assert world.init() == InitProducerIdResponse(0, 40, 5)
    assert world.end((40, 3)) == ErrorCode.PRODUCER_FENCED


def test_fencing_whose_append_fails_fences_the_producer_and_raises_its_epoch_once():
    world = TransactionWorld(ongoing(40, 3))
    world.holds = True
    for caller in range(3):
        assert world.init() is None
        world.finish(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert world.answers[caller].error == ErrorCode.COORDINATOR_NOT_AVAILABLE

    assert world.add((40, 3)) == ErrorCode.PRODUCER_FENCED
    assert world.end((40, 3)) == ErrorCode.PRODUCER_FENCED
    assert world.verify((40, 3)) == {T0: ErrorCode.PRODUCER_FENCED}
    assert world.describe().state == "Ongoing"
    world.init()
    world.finish()
    assert world.markers[-1].ended.producer_epoch == 4


def test_producer_that_recovers_gets_the_next_epoch_again_if_it_repeats_its_request():
    world = TransactionWorld(empty(40, 3))

    assert world.init(producer=(40, 3)) == InitProducerIdResponse(0, 40, 4)
    assert world.init(producer=(40, 3)) == InitProducerIdResponse(0, 40, 4)
    assert world.init(producer=(40, 3)) == InitProducerIdResponse(0, 40, 4)
    assert world.init(producer=(40, 4)) == InitProducerIdResponse(0, 40, 5)
    assert world.init(producer=(40, 3)) == FENCED


def test_producer_cannot_recover_after_another_one_has_started():
    world = TransactionWorld(empty(40, 3))

    assert world.init() == InitProducerIdResponse(0, 40, 4)
    assert world.init(producer=(40, 3)) == FENCED
    assert world.init(producer=(39, 4)) == FENCED
    assert world.init(producer=(40, 4)) == InitProducerIdResponse(0, 40, 5)


def test_producer_that_recovers_gets_a_new_id_if_the_coordinator_lost_it():
    assert TransactionWorld().init(producer=(12, 3)) == InitProducerIdResponse(0, 40, 0)


@pytest.mark.parametrize("producer", [(40, 2), (40, 4), (39, 3), (39, 32_766)])
def test_fenced_producer_does_not_abort_the_transaction_of_its_successor(producer):
    world = TransactionWorld(ongoing(40, 3))

    assert world.init(producer=producer) == FENCED
    assert world.describe().state == "Ongoing"
    assert world.end((40, 3)) == 0


def test_producer_aborts_its_own_open_transaction_when_it_recovers():
    world = TransactionWorld(ongoing(40, 3))

    assert world.init(producer=(40, 3)) == BUSY
    assert world.markers[-1].ended[1:5] == (40, 4, 7, False)


def test_producer_with_the_last_epoch_gets_a_new_producer_id():
    world = TransactionWorld(empty(12, 32_765))

    assert world.init() == InitProducerIdResponse(0, 12, 32_766)
    assert world.init() == InitProducerIdResponse(0, 40, 0)
    assert world.init(producer=(12, 32_766)) == FENCED


def test_producer_that_recovers_with_the_last_epoch_may_repeat_its_request():
    world = TransactionWorld(empty(12, 32_766))

    assert world.init(producer=(12, 32_766)) == InitProducerIdResponse(0, 40, 0)
    assert world.init(producer=(12, 32_766)) == InitProducerIdResponse(0, 40, 0)
    assert world.init(producer=(12, 32_766)) == InitProducerIdResponse(0, 40, 0)
    assert world.init(producer=(12, 32_765)) == FENCED
    assert world.init(producer=(40, 0)) == InitProducerIdResponse(0, 40, 1)
    assert world.init(producer=(12, 32_766)) == FENCED


def test_exhausted_producer_that_recovers_with_an_older_epoch_is_fenced():
    world = TransactionWorld(empty(12, 32_765))
    world.init(producer=(12, 32_765))

    assert world.init(producer=(12, 32_765)) == InitProducerIdResponse(0, 12, 32_766)
    assert world.init(producer=(12, 32_764)) == FENCED


def test_abort_of_a_producer_with_the_last_epoch_uses_the_epoch_above():
    world = TransactionWorld(ongoing(12, 32_766))

    assert world.init() == BUSY
    assert world.markers[-1].ended.producer_epoch == 32_767
    world.write_markers()
    assert world.init() == InitProducerIdResponse(0, 40, 0)


def test_new_producer_id_that_cannot_be_allocated_leaves_the_old_one():
    world = TransactionWorld(empty(12, 32_766))
    world.holds = True
    world.init()
    world.finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    assert world.answers[0] == InitProducerIdResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert world.describe().producer_id == 12
    world.holds = False
    assert world.init() == InitProducerIdResponse(0, 40, 0)
