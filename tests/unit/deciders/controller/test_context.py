"""The invariants that the controller's context asserts at each change."""

from __future__ import annotations

import pytest
from support.deciders.controller_world import broker, image, state

from minikafka.base.model import TopicPartition
from minikafka.deciders.controller.context import Context
from minikafka.deciders.controller.states import PartitionStatus, ReplicaStatus

T0, UNKNOWN = TopicPartition("t", 0), TopicPartition("u", 0)


def test_context_refuses_a_leader_or_status_of_an_unknown_partition() -> None:
    context = Context(0, 1)
    with pytest.raises(AssertionError, match="u-0"):
        context.set_leadership(UNKNOWN, state(0, [0]))
    with pytest.raises(AssertionError, match="u-0"):
        context.set_partition_status(UNKNOWN, PartitionStatus.OFFLINE)
    with pytest.raises(AssertionError, match="u-0"):
        context.set_replica_status(UNKNOWN, 0, ReplicaStatus.ONLINE)


def test_context_refuses_an_online_partition_without_a_leader_and_isr() -> None:
    context = Context(0, 1)
    context.add_topic("t", None, image([0, 1]).assignment)
    with pytest.raises(AssertionError, match="t-0"):
        context.set_partition_status(T0, PartitionStatus.ONLINE)
    context.set_leadership(T0, state(0, [0, 1]))
    context.set_partition_status(T0, PartitionStatus.ONLINE)
    assert context.partition_status(T0) is PartitionStatus.ONLINE


def test_suspicion_ends_with_the_registration_that_it_names() -> None:
    context = Context(0, 1)
    context.add_topic("t", None, image([0, 1]).assignment)
    context.add_broker(broker(1))
    context.suspects[1] = 1
    assert context.is_online(T0, 1)
    assert not context.may_lead(T0, 1)
    context.add_broker(broker(1))
    assert not context.may_lead(T0, 1)
    context.add_broker(broker(1, epoch=2))
    assert context.may_lead(T0, 1)
    context.suspects[1] = 2
    context.forget_broker(1)
    assert not context.suspects
