"""The cache of consumers' fetch sessions: limits, eviction and updates (KIP-227)."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable

import pytest

from minikafka.base.fetch_rows import PartitionData, RequestRow
from minikafka.storage.replication import consumer_sessions
from minikafka.storage.replication.consumer_sessions import (
    EVICTION_MS,
    STEP_ROWS,
    ConsumerSession,
    FetchSessionCache,
)

pytestmark = pytest.mark.row("R50")

NOTHING = PartitionData(0, 0, -1, -1, 0, (), 0)
"""A response without records, with high watermark -1 and log start offset 0."""


def new_cache(slots: int) -> FetchSessionCache:
    ids = itertools.count(1)
    return FetchSessionCache(slots, lambda: next(ids))


def open_session(cache: FetchSessionCache, size: int, now: int = 0) -> ConsumerSession | None:
    session = cache.create(size, now)
    if session is not None:
        for row in rows(size):
            session.add(b"t", row).must_respond(NOTHING)
    return session


def rows(size: int) -> list[RequestRow]:
    return [(number, -1, 0, -1, -1, 1000) for number in range(size)]


def update(
    session: ConsumerSession,
    topics: Iterable[tuple[bytes, Iterable[RequestRow]]],
    forgotten: Iterable[tuple[bytes, Iterable[int]]],
) -> None:
    deque(session.update(topics, forgotten), maxlen=0)


def opened(cache: FetchSessionCache, size: int, now: int = 0) -> ConsumerSession:
    session = open_session(cache, size, now)
    assert session is not None
    return session


def test_sessions_are_created_while_there_are_slots() -> None:
    cache = new_cache(2)
    first, second = opened(cache, 3), opened(cache, 4)
    assert (len(cache), cache.partition_count()) == (2, 7)
    assert open_session(cache, 100) is None
    assert [cache.get(session.id) for session in (first, second)] == [first, second]
    assert cache.evictions == 0


def test_session_unused_for_two_minutes_is_evicted_for_any_new_session() -> None:
    cache = new_cache(2)
    first, second = opened(cache, 10), opened(cache, 10)
    cache.touch(first, 1)
    assert open_session(cache, 1, EVICTION_MS) is None
    third = opened(cache, 1, EVICTION_MS + 1)
    assert cache.get(second.id) is None
    assert (cache.get(first.id), cache.get(third.id)) == (first, third)
    assert cache.evictions == 1


@pytest.mark.parametrize(("size", "evicted"), [(2, None), (3, None), (4, 3), (6, 3)])
def test_larger_session_evicts_the_smallest_session_older_than_two_minutes(
    size: int, evicted: int | None
) -> None:
    cache = new_cache(3)
    sessions = {count: opened(cache, count) for count in (5, 3)}
    young = opened(cache, 1, EVICTION_MS)
    for session in (*sessions.values(), young):
        cache.touch(session, EVICTION_MS + 1)
    created = open_session(cache, size, EVICTION_MS + 1)
    assert (created is not None) == (evicted is not None)
    gone = [count for count, session in sessions.items() if cache.get(session.id) is None]
    assert gone == ([] if evicted is None else [evicted])
    assert cache.get(young.id) is young


def test_follower_session_evicts_the_smallest_consumer_session() -> None:
    cache = new_cache(2)
    large, small = opened(cache, 5), opened(cache, 2)
    cache.add_follower(0)
    assert (cache.get(large.id), cache.get(small.id)) == (large, None)
    cache.add_follower(0)
    assert len(cache) == 2
    assert open_session(cache, 1000, 10 * EVICTION_MS) is None
    cache.add_follower(0)  # a follower gets a session even without a free slot
    assert len(cache) == 3
    cache.remove_follower()
    cache.remove_follower()
    assert open_session(cache, 1) is not None


def test_no_session_is_created_without_slots() -> None:
    assert open_session(new_cache(0), 5) is None


def test_session_id_in_use_is_not_assigned_again() -> None:
    ids = iter([7, 7, 7, 9])
    cache = FetchSessionCache(5, lambda: next(ids))
    assert [opened(cache, 1).id, opened(cache, 1).id] == [7, 9]


def test_session_epoch_wraps_to_one() -> None:
    session = opened(new_cache(1), 1)
    session.epoch = 0x7FFFFFFF
    session.begin_fetch()
    assert session.epoch == 1


def test_fetch_request_adds_and_forgets_partitions_of_the_session() -> None:
    cache = new_cache(1)
    session = opened(cache, 3)
    update(session, [(b"u", [(0, -1, 5, -1, -1, 100)])], [(b"t", [0, 2, 9]), (b"none", [0])])
    assert list(session.items) == [(b"t", 1), (b"u", 0)]
    assert [item.row[2] for item in session.dirty] == [0, 5]
    assert cache.partition_count() == 2


def test_update_of_a_fetch_session_pauses_after_a_fixed_number_of_partitions() -> None:
    session = opened(new_cache(1), 0)
    assert len(list(session.update([(b"t", rows(10 * STEP_ROWS))], ()))) == 10
    assert len(list(session.update((), [(b"t", range(20 * STEP_ROWS))]))) == 20
    assert session.items == {}


def test_all_sessions_together_have_a_limited_number_of_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_sessions, "PARTITIONS_MAX", 10)
    cache = new_cache(100)
    old = opened(cache, 6)
    assert open_session(cache, 5) is None
    assert open_session(cache, 11, EVICTION_MS + 1) is None
    assert cache.get(old.id) is old
    new = opened(cache, 5, EVICTION_MS + 1)
    assert (cache.get(old.id), cache.get(new.id)) == (None, new)
    update(new, [(b"u", rows(6))], ())
    assert not cache.has_room()


def test_closed_session_does_not_subscribe_to_changes_of_its_partition() -> None:
    cache = new_cache(1)
    session = opened(cache, 1)
    (item,) = session.items.values()
    cache.remove(session.id)
    session.watch(item, lambda topic, number: pytest.fail("the partition is looked up"))


def test_partition_that_sent_records_moves_to_the_end_of_the_session() -> None:
    session = opened(new_cache(1), 3)
    first, second, third = session.items.values()
    session.read(first, None, has_records=True)
    session.read(second, None, has_records=False)
    assert list(session.dirty) == [second, third, first]


@pytest.mark.parametrize(
    ("change", "is_sent"),
    [
        ({}, False),
        ({2: 7}, True),
        ({4: 1}, True),
        ({6: 10}, True),
        ({1: 3}, True),
        ({7: (1, 2)}, True),
        ({9: 2}, True),
        ({3: 5}, False),
    ],
    ids=["nothing", "hw", "log start", "records", "error", "diverging", "preferred", "stable"],
)
def test_session_response_contains_only_partitions_with_records_or_changes(
    change: dict[int, object], is_sent: bool
) -> None:
    (item,) = opened(new_cache(1), 1).items.values()
    response = tuple(change.get(at, value) for at, value in enumerate(NOTHING))
    assert item.must_respond(response) == is_sent


def test_partition_is_sent_again_when_its_error_has_ended() -> None:
    (item,) = opened(new_cache(1), 1).items.values()
    fine = PartitionData(0, 0, 5, 5, 0, (), 0)
    assert item.must_respond(fine)
    assert not item.must_respond(fine)
    assert item.must_respond(PartitionData(0, 6, -1, -1, -1, (), 0))
    assert item.must_respond(fine)
