"""The topics that are rebuilt from replicas: which replicas are in sync, and what contradicts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.model import TopicPartition
from minikafka.tools.cluster import ClusterError
from minikafka.tools.cluster.recovery.plan import (
    EPOCH_STEP,
    FoundReplica,
    RecoveredPartition,
    next_producer_ids,
    recovered_topics,
)

ID, OTHER_ID = b"i" * 16, b"o" * 16


def replica(
    broker: int,
    partition: int = 0,
    last_epoch: int = 0,
    end: int = 0,
    epoch: int = 0,
    **more: object,
) -> FoundReplica:
    found = FoundReplica(broker, TopicPartition("t", partition), ID, last_epoch, end, epoch)
    return found._replace(**more)


def partitions(
    *replicas: FoundReplica, is_complete: bool = True
) -> Mapping[int, RecoveredPartition]:
    [topic] = recovered_topics(replicas, [1, 2, 3], {}, OTHER_ID, is_complete=is_complete)
    assert topic.topic_id == ID
    return topic.partitions


@pytest.mark.parametrize(
    ("logs", "isr"),
    [
        ({1: (0, 5), 2: (0, 5), 3: (0, 5)}, {1, 2, 3}),
        ({1: (0, 5), 2: (0, 4), 3: (0, 5)}, {1, 3}),
        (
            {1: (0, 9), 2: (1, 4), 3: (0, 4)},
            {2},
        ),  # broker 1 was a leader whose tail was never committed
        ({1: (1, 7), 2: (1, 7), 3: (0, 9)}, {1, 2}),
        ({1: (-1, 0), 2: (-1, 0), 3: (0, 0)}, {3}),
        ({1: (-1, 0), 2: (-1, 0)}, {1, 2}),
    ],
)
def test_isr_has_only_the_replicas_with_the_longest_log(
    logs: Mapping[int, tuple[int, int]], isr: set[int]
) -> None:
    found = partitions(*(replica(id_, 0, *log) for id_, log in logs.items()))
    assert set(found[0].isr) == isr
    assert set(found[0].replicas) == set(logs)


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 5)), min_size=1, max_size=5))
def test_no_replica_outside_the_isr_has_a_later_record(logs: list[tuple[int, int]]) -> None:
    found = partitions(*(replica(id_, 0, *log) for id_, log in enumerate(logs)))[0]
    best = max(logs)
    assert {logs[id_] for id_ in found.isr} == {best}
    assert all(logs[id_] < best for id_ in set(found.replicas) - set(found.isr))


def test_leader_epoch_is_above_each_epoch_in_any_file() -> None:
    found = partitions(replica(1, epoch=7, last_epoch=3), replica(2, epoch=9, last_epoch=3))
    assert found[0].epoch == 9 + EPOCH_STEP


def test_preferred_leaders_of_a_topic_are_spread() -> None:
    found = partitions(*(replica(id_, number) for number in range(3) for id_ in (1, 2, 3)))
    assert [one.replicas[0] for one in found.values()] == [1, 2, 3]


def test_missing_partition_is_refused_unless_a_broker_is_left_out() -> None:
    replicas = [replica(1, 0, end=5), replica(2, 0, end=5), replica(1, 2)]
    with pytest.raises(ClusterError, match=r"no broker has t-1, although t-2 exists: .*--without"):
        partitions(*replicas)
    found = partitions(*replicas, is_complete=False)
    assert [len(found[number].replicas) for number in (0, 1, 2)] == [2, 2, 1]
    assert set(found[1].isr) == set(found[1].replicas)


def test_replicas_of_two_topics_of_one_name_are_refused() -> None:
    with pytest.raises(ClusterError, match="deleted and created again: t-0 of broker 1 and t-0 of"):
        partitions(replica(1), replica(2, topic_id=OTHER_ID))
    assert len(partitions(replica(1), replica(2, topic_id=None))) == 1


def test_topics_without_an_id_get_different_ones() -> None:
    replicas = [
        replica(1, topic_id=None, tp=TopicPartition(name, 0)) for name in ("a", "b", "a-long-name")
    ]
    topics = recovered_topics(replicas, [1], {}, ID, is_complete=True)
    assert len({topic.topic_id for topic in topics} | {ID}) == 4
    assert {len(topic.topic_id) for topic in topics} == {16}


def test_records_of_a_topic_are_kept_until_its_settings_are_set() -> None:
    internal = TopicPartition("__consumer_offsets", 0)
    replicas = [replica(1), replica(1, tp=internal), replica(1, 1, is_compacted=True)]
    settings = {"__consumer_offsets": {"cleanup.policy": "compact", "segment.bytes": "100"}}
    offsets, topic = recovered_topics(replicas, [1], settings, ID, is_complete=True)
    assert offsets.settings == settings["__consumer_offsets"]
    keep_all = {"retention.ms": "-1", "retention.bytes": "-1"}
    assert topic.settings == {**keep_all, "cleanup.policy": "compact"}


@pytest.mark.parametrize("highest", [-1, 0, 999, 5_000_000, 2**40])
def test_producer_ids_are_not_given_out_again(highest: int) -> None:
    first, last = next_producer_ids(highest)
    assert first > highest + 900_000
    assert last - first == 999
