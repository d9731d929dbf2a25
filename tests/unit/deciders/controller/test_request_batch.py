"""Batches of controller requests (R14, T1, T4)."""

from __future__ import annotations

from typing import Any

import pytest
from support.deciders.controller_world import broker, image, state

from minikafka.base.model import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.deciders.controller.commands import SendRequest
from minikafka.deciders.controller.context import Context
from minikafka.deciders.controller.request_batch import RequestBatch
from minikafka.deciders.controller.state_change_log import StateChangeLog
from minikafka.deciders.decider import Procedures

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def bench() -> tuple[RequestBatch, Procedures, Context]:
    context = Context(0, 4)
    for i in range(3):
        context.add_broker(broker(i, epoch=10 + i))
    context.add_topic("t", b"0123456789abcdef", image([0, 1], [1, 0]).assignment)
    context.set_leadership(T0, state(0, [0, 1], epoch=3))
    context.set_leadership(T1, state(1, [1, 0], epoch=8))
    procedures = Procedures()
    return RequestBatch(context, StateChangeLog(0, 4), procedures), procedures, context


def requests(commands: list[Any]) -> list[tuple[int, type]]:
    return [(e.broker_id, type(e.request)) for e in commands if isinstance(e, SendRequest)]


@pytest.mark.row("B8", "J4", "R14", "T4")
def test_request_batch_sends_one_request_of_each_kind_per_broker_in_order(bench) -> None:  # type: ignore[no-untyped-def]
    batch, procedures, _ = bench
    batch.new_batch()
    batch.add_stop_replica(2, T0, delete=False)
    for tp in (T0, T1):
        batch.add_leader_and_isr([0, 1], tp)
    batch.emit()
    commands = procedures.take()
    assert requests(commands) == [
        (0, LeaderAndIsrRequest),
        (1, LeaderAndIsrRequest),
        (0, UpdateMetadataRequest),
        (1, UpdateMetadataRequest),
        (2, UpdateMetadataRequest),
        (2, StopReplicaRequest),
    ]
    assert all(len(e.request.partitions) == 2 for e in commands[:5])


@pytest.mark.row("R5", "R15", "R17")
def test_controller_requests_contain_epochs_live_leaders_and_topic_ids(bench) -> None:  # type: ignore[no-untyped-def]
    batch, procedures, context = bench
    batch.add_leader_and_isr([1], T0)
    batch.emit()
    commands = procedures.take()
    request = commands[0].request
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (0, 4, 11)
    assert request.live_leaders == (context.brokers[0],)
    assert request.topic_ids == (("t", b"0123456789abcdef"),)
    assert commands[1].request.live_brokers == tuple(context.brokers.values())


@pytest.mark.row("R14", "T1")
@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_partition_added_twice_to_a_batch_has_each_flag_that_either_addition_sets(
    bench, order: tuple[bool, bool]
) -> None:  # type: ignore[no-untyped-def]
    batch, procedures, _ = bench
    for flag in order:
        batch.add_leader_and_isr([1], T0, is_new=flag)
        batch.add_stop_replica(2, T0, delete=flag)
    batch.emit()
    commands = procedures.take()
    assert commands[0].request.partitions[0].is_new
    assert commands[-1].request.partitions[0].delete
    assert len(commands[-1].request.partitions) == 1


@pytest.mark.row("R14", "R12")
def test_new_request_batch_raises_if_the_previous_batch_was_not_emitted(bench) -> None:  # type: ignore[no-untyped-def]
    batch, _, _ = bench
    batch.add_leader_and_isr([1], T0)
    with pytest.raises(RuntimeError, match="not emitted"):
        batch.new_batch()


def test_unregistered_brokers_get_no_requests(bench) -> None:  # type: ignore[no-untyped-def]
    batch, procedures, context = bench
    context.forget_broker(1)
    batch.add_leader_and_isr([0, 1], T0)
    batch.add_stop_replica(1, T0, delete=True)
    batch.emit()
    commands = procedures.take()
    assert {to for to, _ in requests(commands)} == {0, 2}


def test_metadata_has_offline_replicas_and_no_leader_for_a_topic_being_deleted(
    bench,
) -> None:  # type: ignore[no-untyped-def]
    batch, procedures, context = bench
    context.shutting_down.add(0)
    context.deletions = frozenset({"t"})
    batch.add_update_metadata([2], [T0, TopicPartition("unknown", 0)])
    batch.emit()
    commands = procedures.take()
    (shown,) = commands[0].request.partitions
    assert (shown.leader, shown.offline) == (-2, (0,))


@pytest.mark.row("R8")
def test_stop_replica_leader_epoch_is_minus_1_if_unknown_and_minus_2_for_a_deletion(bench) -> None:  # type: ignore[no-untyped-def]
    batch, procedures, context = bench
    context.add_topic("u", bytes(16), image([2]).assignment)
    batch.add_stop_replica(2, T0, delete=False)
    batch.add_stop_replica(2, TopicPartition("u", 0), delete=False)
    context.deletions = frozenset({"t"})
    batch.add_stop_replica(2, T1, delete=True)
    batch.emit()
    commands = procedures.take()
    assert [p.leader_epoch for p in commands[0].request.partitions] == [3, -1, -2]
