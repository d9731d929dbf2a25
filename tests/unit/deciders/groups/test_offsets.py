"""The committed offsets of a group: fetches, overlapping commits, removal and expiry."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minikafka.base.model import TopicPartition
from minikafka.deciders.groups.offsets import ExpiryRule, GroupOffsets, expiry_rule
from minikafka.deciders.groups.records import (
    NO_TIMESTAMP,
    OffsetAndMetadata,
    OffsetKey,
    read_key,
    read_offset,
)
from minikafka.deciders.groups.states import COMPLETING, EMPTY, PREPARING, STABLE

A = TopicPartition("a", 0)
B = TopicPartition("b", 1)
DAY_MS = 86_400_000
NOW = 1_700_000_000_000


def value(offset: int, committed: int = NOW, **fields: Any) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, commit_timestamp=committed, **fields)


def removed(records: list[tuple[bytes, bytes | None]]) -> list[TopicPartition]:
    """Return the partitions of these tombstones, sorted."""
    found = []
    for key, tombstone in records:
        parsed = read_key(key)
        assert isinstance(parsed, OffsetKey)
        assert parsed.group == "g"
        assert tombstone is None
        found.append(parsed.tp)
    return sorted(found)


def committed(*offsets: tuple[TopicPartition, OffsetAndMetadata]) -> GroupOffsets:
    group = GroupOffsets("g")
    for tp, each in offsets:
        group.load(tp, each)
    return group


def test_commit_can_be_fetched_once_it_is_complete():
    group = GroupOffsets("g")
    wanted = value(5, leader_epoch=3, metadata="käse", expire_timestamp=9)

    [(key, record)] = group.prepare(1, {A: wanted})

    assert read_key(key) == OffsetKey("g", A)
    assert record is not None
    assert read_offset(record) == wanted._replace(leader_epoch=-1)
    assert group.fetch(A) is None
    assert group.is_pending(A)
    assert not group.is_unused()
    group.complete(1)
    assert group.fetch(A) == wanted
    assert not group.is_pending(A)
    assert list(group.partitions()) == [A]
    assert len(group) == 1


def test_failed_commit_keeps_the_earlier_offset():
    group = committed((A, value(1)))
    group.prepare(1, {A: value(2)})

    group.fail(1)

    assert group.fetch(A) == value(1)
    assert not group.is_pending(A)


def test_later_commit_is_kept_when_an_earlier_commit_completes_after_it():
    group = GroupOffsets("g")
    group.prepare(1, {A: value(1)})
    group.prepare(2, {A: value(2)})

    group.complete(2)
    group.complete(1)

    assert group.fetch(A) == value(2)


def test_earlier_commit_is_kept_when_a_later_commit_fails_first():
    group = GroupOffsets("g")
    group.prepare(1, {A: value(1)})
    group.prepare(2, {A: value(2)})

    group.fail(2)
    assert group.is_pending(A)
    group.complete(1)

    assert group.fetch(A) == value(1)
    assert not group.is_pending(A)


def test_commit_with_too_long_a_group_id_is_refused():
    group = GroupOffsets("g" * 40_000)

    with pytest.raises(ValueError, match="40000 bytes"):
        group.prepare(1, {A: value(1)})

    assert group.is_unused()


def test_removal_of_offsets_returns_tombstones_for_committed_and_pending_offsets():
    group = committed((A, value(1)))
    group.prepare(1, {B: value(2)})

    tombstones = group.remove([A, B, TopicPartition("c", 0)])
    group.complete(1)

    assert removed(tombstones) == [A, B]
    assert group.fetch(A) is group.fetch(B) is None
    assert group.is_unused()


def test_removal_of_topics_keeps_the_offsets_of_other_topics():
    group = committed((A, value(1)), (A._replace(partition=7), value(1)), (B, value(2)))

    assert removed(group.remove_topics({"a", "unused"})) == [A, A._replace(partition=7)]
    assert list(group.partitions()) == [B]
    assert removed(group.remove_all()) == [B]
    assert group.is_unused()


def test_loaded_tombstone_removes_the_offset():
    group = committed((A, value(1)), (B, value(2)))

    group.load(A, None)
    group.load(TopicPartition("never", 0), None)

    assert list(group.partitions()) == [B]


@pytest.mark.parametrize(
    ("state", "protocol_type", "subscribed", "expected"),
    [
        (EMPTY, None, None, ExpiryRule()),
        (STABLE, "", None, ExpiryRule()),
        (EMPTY, "consumer", frozenset(), ExpiryRule(since=NOW)),
        (EMPTY, "connect", None, ExpiryRule(since=NOW)),
        (STABLE, "consumer", frozenset("a"), ExpiryRule(kept_topics=frozenset("a"))),
        (STABLE, "consumer", None, None),
        (STABLE, "connect", None, None),
        (PREPARING, "consumer", frozenset("a"), None),
        (COMPLETING, "consumer", frozenset("a"), None),
    ],
)
def test_expiry_rule_depends_on_group_state_and_protocol_type(
    state, protocol_type, subscribed, expected
):
    assert expiry_rule(state, protocol_type, NOW, subscribed) == expected


def test_offsets_of_a_group_empty_since_an_unknown_time_expire_by_commit_time():
    assert expiry_rule(EMPTY, "consumer", NO_TIMESTAMP, frozenset()) == ExpiryRule()


def test_offsets_expire_after_the_retention_since_their_commit():
    group = committed((A, value(1, NOW)), (B, value(2, NOW + 1)))

    assert group.expire(ExpiryRule(), NOW + DAY_MS - 1, DAY_MS) == []
    assert removed(group.expire(ExpiryRule(), NOW + DAY_MS, DAY_MS)) == [A]
    assert removed(group.expire(ExpiryRule(), NOW + DAY_MS + 1, DAY_MS)) == [B]


def test_offsets_of_an_empty_group_expire_after_the_retention_since_it_was_empty():
    group = committed((A, value(1, 0)), (B, value(2, NOW + DAY_MS)))
    since = ExpiryRule(since=NOW)

    assert group.expire(since, NOW + DAY_MS - 1, DAY_MS) == []
    assert removed(group.expire(since, NOW + DAY_MS, DAY_MS)) == [A, B]


def test_offsets_of_subscribed_topics_do_not_expire():
    group = committed((A, value(1, 0)), (B, value(2, 0)))

    assert removed(group.expire(ExpiryRule(kept_topics={"a"}), NOW, DAY_MS)) == [B]
    assert removed(group.expire(ExpiryRule(), NOW, DAY_MS)) == [A]


def test_expire_timestamp_replaces_the_retention():
    group = committed(
        (A, value(1, 0, expire_timestamp=NOW)), (B, value(2, NOW, expire_timestamp=NOW + 1))
    )

    for each in (ExpiryRule(since=0), ExpiryRule()):
        assert group.expire(each, NOW - 1, DAY_MS) == []
    assert removed(group.expire(ExpiryRule(since=NOW), NOW, DAY_MS)) == [A]
    assert removed(group.expire(ExpiryRule(), NOW + 1, DAY_MS)) == [B]


def test_offset_with_a_pending_commit_does_not_expire():
    group = committed((A, value(1, 0)))
    group.prepare(1, {A: value(2, NOW)})

    assert group.expire(ExpiryRule(), NOW, DAY_MS) == []
    group.fail(1)

    assert removed(group.expire(ExpiryRule(), NOW, DAY_MS)) == [A]


@pytest.mark.parametrize("partitions", [10, 1_000])
def test_committed_offset_takes_at_most_180_bytes(partitions):
    groups = 5_000 // partitions
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        kept = []
        for number in range(groups):
            group = GroupOffsets(f"group-{number}")
            for partition in range(partitions):
                tp = TopicPartition("topic", partition)  # a new object, as after decoding a request
                group.load(tp, value(10**6 + number, leader_epoch=7))
            kept.append(group)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(kept) == groups
    assert used / (groups * partitions) < 180


class Commits(RuleBasedStateMachine):
    """Commits that complete in any order: the resulting offsets equal those of a reader of the log's commit records."""

    partitions = st.sets(st.sampled_from([A, B, TopicPartition("a", 1)]), min_size=1)

    @initialize()
    def begin(self) -> None:
        self.group = GroupOffsets("g")
        self.tokens = 0
        self.open: list[int] = []
        self.commits: dict[int, dict[TopicPartition, OffsetAndMetadata]] = {}
        self.known: dict[TopicPartition, tuple[int, OffsetAndMetadata]] = {}
        """Partition -> token and offset of the last completed commit behind the last removal."""
        self.removed: dict[TopicPartition, int] = {}

    @rule(partitions=partitions)
    def prepare(self, partitions: set[TopicPartition]) -> None:
        self.tokens += 1
        self.commits[self.tokens] = {tp: value(self.tokens) for tp in partitions}
        self.group.prepare(self.tokens, self.commits[self.tokens])
        self.open.append(self.tokens)

    @rule(data=st.data(), succeeds=st.booleans())
    def end(self, data: st.DataObject, succeeds: bool) -> None:
        if not self.open:
            return
        token = data.draw(st.sampled_from(self.open))
        self.open.remove(token)
        if not succeeds:
            self.group.fail(token)
            return
        self.group.complete(token)
        for tp, each in self.commits[token].items():
            if token > max(self.removed.get(tp, 0), self.known.get(tp, (0, each))[0]):
                self.known[tp] = (token, each)

    @rule(partitions=partitions)
    def remove(self, partitions: set[TopicPartition]) -> None:
        self.group.remove(partitions)
        for tp in partitions:
            self.removed[tp] = self.tokens
            self.known.pop(tp, None)

    @invariant()
    def fetches_the_last_commit(self) -> None:
        if not hasattr(self, "group"):
            return
        assert {tp: self.group.fetch(tp) for tp in self.group.partitions()} == {
            tp: each for tp, (_, each) in self.known.items()
        }
        assert len(self.group) == len(self.known)


TestCommits = Commits.TestCase
TestCommits.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
