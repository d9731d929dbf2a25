"""Changes that an elected controller handles: their order, and the writes, requests and gauges that they cause."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.brokers.controller_bench import (
    T0,
    Candidate,
    ControllerBench,
    create_topic,
    partitions_of,
    until,
)
from support.brokers.endpoints import endpoints

from minikafka.base.model import (
    Broker,
    LeaderAndIsr,
    LeaderAndIsrRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.ports import Check, Create, Set, WatchKind
from minikafka.broker.ledger.record import EVENT
from minikafka.zookeeper.nodes import layout


@pytest.mark.row("D14", "R13")
async def test_controller_handles_events_one_by_one_in_order_of_arrival(
    bench: ControllerBench,
) -> None:
    gate = bench.gate
    gate.hold("creation.partitions-new")
    create_topic(bench.ensemble, "t", [2, 3])
    await until(lambda: gate.waiting)
    lines = bench.ledger.lines
    before = sum(kind == EVENT for kind, _, _ in lines)
    assert bench.shown()["state"] == "TopicChange"
    bench.ensemble.put(layout.delete_topic_path("none"))
    bench.ensemble.delete(layout.broker_path(3))
    await until(lambda: bench.shown()["queue_size"] == 2)
    service = bench.service
    waiting = asyncio.gather(
        service.elect_leaders(unclean=False, partitions=[T0]),
        service.alter_reassignments({T0: (3, 9)}),
    )
    await until(lambda: bench.shown()["queue_size"] == 4)
    assert sum(kind == EVENT for kind, _, _ in lines) == before, "one at a time"
    gate.release("creation.partitions-new")
    await waiting
    await bench.idle()
    events = [fields["event"] for kind, _, fields in lines if kind == EVENT][before:]
    assert events[:4] == [
        "DeletionsChanged",
        "BrokersChanged",
        "ElectionRequested",
        "ReassignmentsRequested",
    ]
    causes = [cause for kind, cause, _ in lines if kind == EVENT]
    assert causes == [f"1-{number + 1}" for number in range(len(causes))]


@pytest.mark.row("I1", "E2", "E3")
async def test_controller_creates_partitions_of_a_new_and_of_a_grown_topic(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    assert (WatchKind.DATA, layout.topic_path("t")) in bench.zookeeper.watched()
    create_topic(bench.ensemble, "t", [2, 3], [3, 2])
    await bench.led(3, TopicPartition("t", 1))
    assert (WatchKind.DATA, layout.topic_path("t")) in bench.zookeeper.watched()


@pytest.mark.row("X10", "R22")
async def test_controller_sends_the_new_address_of_a_live_broker_to_other_brokers(
    bench: ControllerBench,
) -> None:
    assert (WatchKind.DATA, layout.broker_path(2)) in bench.zookeeper.watched()
    assert (WatchKind.CHILDREN, layout.LOG_DIR_EVENTS) in bench.zookeeper.watched()
    moved = Broker(2, endpoints("elsewhere", 1, "elsewhere", 2))
    bench.ensemble.put(layout.broker_path(2), layout.encode_broker(moved))
    await until(
        lambda: any(
            moved.endpoints in [b.endpoints for b in request.live_brokers]
            for request in bench.channels.to(3, UpdateMetadataRequest)
        )
    )


@pytest.mark.row("D11", "F10", "D1")
async def test_controller_gauges_are_0_at_other_brokers(
    bench: ControllerBench,
) -> None:
    other = await Candidate(bench.ensemble, 4).start()
    await until(lambda: other.service.controller_id == 1)
    create_topic(bench.ensemble, "t", [2], [3, 2])
    await bench.led(2)
    bench.ensemble.delete(layout.broker_path(3))
    await bench.led(2, TopicPartition("t", 1))
    bench.ensemble.delete(layout.broker_path(2))
    await bench.led(-1)
    names = ("offline_partition_count", "preferred_replica_imbalance_count", "partition_count")
    assert [bench.shown()[name] for name in names] == [2, 2, 2]
    assert [other.service.summary()[name] for name in names] == [0, 0, 0]
    assert partitions_of(other.service) == []
    bench.ensemble.put(layout.CONTROLLER, layout.encode_controller(7, 0))
    await until(lambda: not bench.service.is_active)
    assert [bench.shown()[name] for name in names] == [0, 0, 0]
    await other.close()


@pytest.mark.row("A10", "X21", "X22")
async def test_partition_state_node_has_kafkas_fields_and_a_leader_epoch_per_partition(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3], [3, 2])
    await bench.led(3, TopicPartition("t", 1))
    bench.ensemble.delete(layout.broker_path(2))
    await bench.led(3)
    await until(lambda: bench.state(TopicPartition("t", 1)).isr == (3,))  # type: ignore[union-attr]
    create_topic(bench.ensemble, "u", [3])
    await bench.led(3, TopicPartition("u", 0))
    found = json.loads(bench.ensemble.nodes[layout.state_path(T0)].data)
    assert set(found) == {"controller_epoch", "leader", "leader_epoch", "isr", "version"}
    assert bench.ensemble.nodes[layout.state_path(T0)].version == 1
    epochs = [bench.state(TopicPartition(*tp)).leader_epoch for tp in (("t", 0), ("u", 0))]  # type: ignore[union-attr]
    assert epochs == [1, 0]


@pytest.mark.row("D12", "R4")
async def test_controller_never_overwrites_a_partition_state_of_a_higher_controller_epoch(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    newer = layout.encode_state(LeaderAndIsr(2, 5, (2, 3), 99, 0))
    bench.ensemble.put(layout.state_path(T0), newer)
    bench.ensemble.delete(layout.broker_path(2))
    await until(lambda: "2" not in bench.shown()["brokers"])
    await bench.idle()
    assert bench.ensemble.nodes[layout.state_path(T0)].data == newer


@pytest.mark.row("D13", "R3")
async def test_controller_repeats_an_election_after_a_concurrent_isr_write(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3, 1])
    await bench.led(2)

    def overtake(ops: Any) -> None:
        if any(isinstance(op, Set) and op.path == layout.state_path(T0) for op in ops):
            bench.zookeeper.before_multi = lambda ops: None
            bench.join(2, 1)

    bench.zookeeper.before_multi = overtake
    bench.ensemble.delete(layout.broker_path(2))
    state = await bench.led(1)
    assert state.isr == (1,), "broker 3 had left the ISR meanwhile"


@pytest.mark.row("J1", "T4", "J4")
async def test_broker_gets_one_request_of_each_kind_for_many_partitions(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", *([2, 3] for _ in range(30)))
    await bench.led(2, TopicPartition("t", 29))
    assert len(bench.channels.to(2, LeaderAndIsrRequest)) == 1
    sent = [type(r) for to, r in bench.channels.sent if to == 3]
    assert sent[-2:] == [LeaderAndIsrRequest, UpdateMetadataRequest]
    assert all(isinstance(op, Check | Create) for op in bench.zookeeper.multis[-1])
