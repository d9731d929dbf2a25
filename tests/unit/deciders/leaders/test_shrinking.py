"""What a full queue of state-change requests keeps."""

from __future__ import annotations

import pytest

from minikafka.base.model import TopicPartition
from minikafka.deciders.leaders.model import Operation, StateChange
from minikafka.deciders.leaders.shrinking import Shrinking, is_replaced_by, rescan, shrink

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = bytes(16), bytes(range(16))
RESCAN = rescan(5)


def start(tp: TopicPartition = TP, epoch: int = 1) -> StateChange:
    return StateChange(Operation.START, tp, NEW, epoch, 0)


def close(tp: TopicPartition = TP, epoch: int = 1, topic_id: bytes | None = NEW) -> StateChange:
    return StateChange(Operation.CLOSE, tp, topic_id, epoch, 0)


def shrunk(*requests: StateChange | None) -> Shrinking:
    """Shrink a queue with the entries "0", "1", …"""
    return shrink({str(at): request for at, request in enumerate(requests)}, sender=5)


@pytest.mark.row("C12")
def test_only_the_close_with_the_latest_epoch_stays_per_partition_and_topic_id() -> None:
    kept = shrunk(close(epoch=1), close(OTHER), close(epoch=2), close(topic_id=OLD), close(epoch=3))
    assert kept == Shrinking(("0", "2"), ())


def test_close_with_the_latest_epoch_is_appended_again_if_another_close_follows_it() -> None:
    """The broker may already have decided about an entry, and not about those behind it."""
    assert shrunk(close(epoch=9), close(epoch=-1)) == Shrinking(("0", "1"), (close(epoch=9),))


@pytest.mark.row("C12")
def test_all_starts_are_replaced_by_one_rescan() -> None:
    assert shrunk(start(), close(), start(OTHER)) == Shrinking(("0", "2"), (RESCAN,))


def test_start_is_replaced_by_a_new_rescan_if_the_queue_has_one() -> None:
    """The broker may be reading the replica lists for the first rescan, before the replica was assigned."""
    assert shrunk(RESCAN, start()) == Shrinking(("1", "0"), (RESCAN,))


def test_last_rescan_stays_and_unreadable_requests_are_removed() -> None:
    assert shrunk(RESCAN, None, RESCAN) == Shrinking(("1", "0"), ())


def test_queue_of_closes_of_distinct_partitions_stays_as_it_is() -> None:
    assert shrunk(close(), close(OTHER)) == shrunk() == Shrinking((), ())


def test_removed_request_is_carried_out_with_the_request_that_stands_for_it() -> None:
    assert is_replaced_by(start(), RESCAN)
    assert is_replaced_by(RESCAN, RESCAN)
    assert is_replaced_by(close(epoch=1), close(epoch=2))
    assert not is_replaced_by(close(), RESCAN)
    assert not is_replaced_by(close(), close(OTHER))
    assert not is_replaced_by(close(), close(topic_id=OLD))
    assert not is_replaced_by(start(), start())
    assert not is_replaced_by(start(), close())
    assert not is_replaced_by(start(), None)
