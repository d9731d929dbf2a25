"""What a client knows of a cluster after the responses of several brokers, in any order."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from minikafka.base.known_cluster import KnownCluster
from minikafka.base.model import TopicPartition

BROKERS = {1: ("a", 1), 2: ("b", 2)}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Led(NamedTuple):
    leader: int
    leader_epoch: int


@pytest.fixture
def known() -> KnownCluster[Led]:
    cluster: KnownCluster[Led] = KnownCluster()
    cluster.learn_brokers(BROKERS, BROKERS[1])
    cluster.learn_topic("t", "id", {0: Led(1, 5), 1: Led(2, 5)})
    return cluster


def test_older_leader_epoch_does_not_replace_a_known_leader(known: KnownCluster[Led]) -> None:
    assert known.learn_topic("t", "id", {0: Led(2, 4), 1: Led(1, 6)}) == {
        0: Led(1, 5),
        1: Led(1, 6),
    }
    assert (known.address(T0), known.address(T1)) == (BROKERS[1], BROKERS[1])


def test_older_leader_epoch_replaces_a_partition_without_leader(known: KnownCluster[Led]) -> None:
    known.learn_topic("t", "id", {0: Led(-1, 6)})
    assert known.address(T0) is None

    known.learn_topic("t", "id", {0: Led(2, 5)})
    assert known.address(T0) == BROKERS[2]


@pytest.mark.parametrize("topic_id", ["id", "", bytes(16)], ids=["same", "none", "zeros"])
def test_partition_that_an_outdated_response_lacks_stays_known(
    known: KnownCluster[Led], topic_id: str | bytes
) -> None:
    known.learn_topic("t", topic_id, {0: Led(1, 5)})

    assert known.partitions(["t", "other"]) == [T0, T1]


def test_topic_with_another_id_replaces_the_known_one(known: KnownCluster[Led]) -> None:
    assert known.learn_topic("t", "again", {0: Led(2, 0)}) == {0: Led(2, 0)}
    assert known.topic_id("t") == "again"
    assert known.partitions(["t"]) == [T0]


def test_leader_that_is_no_live_broker_has_no_address(known: KnownCluster[Led]) -> None:
    known.learn_brokers({2: BROKERS[2]}, None)

    assert known.address(T0) is None
    assert known.address(T1) == BROKERS[2]


def test_forgotten_topic_is_learned_again_with_lower_epochs(known: KnownCluster[Led]) -> None:
    known.forget_topic("t")
    assert (known.partition(T0), known.topic_id("t")) == (None, "")

    assert known.learn_topic("t", "id", {0: Led(2, 1)}) == {0: Led(2, 1)}
    known.forget_topics()
    assert known.partitions(["t"]) == []
