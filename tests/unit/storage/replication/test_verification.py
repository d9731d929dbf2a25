"""Batches in transactions on the leader: verification, guards, and fenced markers (KIP-890, part 1)."""

from __future__ import annotations

import pytest
from support.storage.logs import batch, end_marker, transactional_batch
from support.storage.replication import Replicas

from minikafka.base.errors import ErrorCode
from minikafka.storage.replication import verification
from minikafka.storage.replication.verification import NO_GUARD

NO_TRANSACTION = -ErrorCode.INVALID_TXN_STATE


class Leader:
    """The leader of a partition, to which producer 7 writes."""

    def __init__(self) -> None:
        self.replicas = Replicas((0, 1))
        self.replicas.elect(0)
        self.partition = self.replicas[0].partition

    def append(self, data: bytearray, guard: int = NO_GUARD, *, internal: bool = False) -> int:
        return self.partition.append_as_leader(
            memoryview(data), 1, self.replicas.now, 0, guard=guard, internal=internal
        )

    def guard(self, data: bytearray) -> int:
        return self.partition.verification_of(memoryview(data))

    def end(self, *, epoch: int = 0, coordinator_epoch: int = 0, commit: bool = True) -> int:
        marker = end_marker(commit=commit, epoch=epoch, coordinator_epoch=coordinator_epoch)
        return self.append(marker, internal=True)

    def open(self) -> None:
        """Append the first batch of a transaction in epoch 0."""
        first = transactional_batch(0)
        assert self.append(first, self.guard(first)) > 0


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.mark.parametrize("internal", [False, True])
def test_transactional_batch_without_a_verification_is_refused(
    leader: Leader, internal: bool
) -> None:
    assert leader.append(transactional_batch(0), internal=internal) == NO_TRANSACTION
    assert leader.append(transactional_batch(0), 1, internal=internal) == NO_TRANSACTION
    assert leader.partition.log.log_end_offset == 0


def test_verified_batch_opens_the_transaction_for_later_batches(leader: Leader) -> None:
    guard = leader.guard(transactional_batch(0))
    assert guard > NO_GUARD
    assert leader.append(transactional_batch(0), guard) == 1
    assert leader.guard(transactional_batch(1)) == NO_GUARD
    assert leader.append(transactional_batch(1)) == 2


def test_marker_between_verification_and_append_invalidates_the_guard(leader: Leader) -> None:
    guard = leader.guard(transactional_batch(0))
    assert leader.end() == 1
    assert leader.append(transactional_batch(0), guard) == NO_TRANSACTION


def test_guard_of_an_appended_batch_is_used_up_when_the_transaction_ends(leader: Leader) -> None:
    guard = leader.guard(transactional_batch(0))
    leader.append(transactional_batch(0), guard)
    leader.end()
    assert leader.append(transactional_batch(1), guard) == NO_TRANSACTION


def test_verifications_of_a_producer_at_the_same_time_share_their_guard(leader: Leader) -> None:
    guard = leader.guard(transactional_batch(0))
    assert leader.guard(transactional_batch(1)) == guard
    assert leader.guard(transactional_batch(0, epoch=1)) > guard
    assert leader.append(transactional_batch(0), guard) == NO_TRANSACTION


def test_guard_of_another_producer_is_invalid(leader: Leader) -> None:
    guard = leader.guard(transactional_batch(0, producer=8))
    assert leader.append(transactional_batch(0), guard) == NO_TRANSACTION


def test_guard_of_an_earlier_leader_epoch_is_refused_with_a_retriable_error(
    leader: Leader,
) -> None:
    guard = leader.guard(transactional_batch(0))
    leader.replicas.elect(1)
    leader.replicas.elect(0)
    assert leader.append(transactional_batch(0), guard) == -ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.append(transactional_batch(0), leader.guard(transactional_batch(0))) == 1


def test_oldest_guard_becomes_invalid_if_too_many_are_needed(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "_GUARDS_MAX", 2)
    batches = [transactional_batch(0, producer=producer) for producer in (1, 2, 3)]
    guards = [leader.guard(data) for data in batches]
    results = [leader.append(data, guard) for data, guard in zip(batches, guards, strict=True)]
    assert results == [NO_TRANSACTION, 1, 2]


def test_batch_of_a_new_epoch_needs_its_own_verification(leader: Leader) -> None:
    leader.open()
    assert leader.append(transactional_batch(0, epoch=1)) == NO_TRANSACTION
    leader.end(epoch=1, commit=False)
    assert leader.append(transactional_batch(1)) == -ErrorCode.INVALID_PRODUCER_EPOCH


def test_plain_batch_of_a_producer_with_an_open_transaction_is_refused(leader: Leader) -> None:
    leader.open()
    plain = batch(producer_id=7, producer_epoch=0, base_sequence=1)
    assert leader.append(bytearray(plain)) == NO_TRANSACTION
    leader.end()
    assert leader.append(bytearray(plain)) > 0


def test_retry_of_a_batch_is_answered_from_the_log_without_verification(leader: Leader) -> None:
    leader.open()
    leader.end()
    assert leader.append(transactional_batch(0)) == 1
    assert leader.partition.log.log_end_offset == 2


def test_marker_of_a_former_coordinator_is_refused(leader: Leader) -> None:
    leader.open()
    assert leader.end(coordinator_epoch=5) == 2
    assert leader.end(coordinator_epoch=4) == -ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert leader.end(coordinator_epoch=5) == 3


def test_marker_of_a_former_producer_epoch_is_refused(leader: Leader) -> None:
    leader.open()
    assert leader.end(epoch=3, commit=False) == 2
    assert leader.end(epoch=2) == -ErrorCode.INVALID_PRODUCER_EPOCH
    assert leader.append(transactional_batch(0, epoch=2), internal=True) == (
        -ErrorCode.INVALID_PRODUCER_EPOCH
    )


def test_refused_marker_leaves_the_transaction_open(leader: Leader) -> None:
    leader.end(epoch=1, coordinator_epoch=5)
    first = transactional_batch(0, epoch=1)
    assert leader.append(first, leader.guard(first)) > 0
    assert leader.end(epoch=1, coordinator_epoch=4) < 0
    assert leader.end(epoch=0, coordinator_epoch=6) < 0
    assert leader.append(transactional_batch(1, epoch=1)) > 0


def test_marker_is_appended_even_if_it_is_larger_than_the_topics_batches() -> None:
    leader = Leader()
    leader.open()
    leader.partition.max_message_bytes = 1
    assert leader.end() == 2
