"""Reading of all znodes about one partition."""

from __future__ import annotations

import pytest
from support.brokers.controller_bench import create_topic, new_ensemble

from minikafka.base.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.tools.explain.evidence import Nodes
from minikafka.tools.explain.nodes import nodes_of, read_nodes
from minikafka.zookeeper.nodes import layout

TP = TopicPartition("t", 0)


@pytest.fixture
def ensemble() -> ZooKeeperInMemory:
    return new_ensemble()


async def read(ensemble: ZooKeeperInMemory) -> Nodes:
    zookeeper = InMemoryClient(ensemble)
    await zookeeper.attach()
    return await nodes_of(zookeeper, TP)


async def test_read_nodes_returns_the_contents_of_all_znodes_about_a_partition(
    ensemble: ZooKeeperInMemory,
) -> None:
    create_topic(ensemble, "t", [2, 3])
    ensemble.put(layout.CONTROLLER, layout.encode_controller(3, 0))
    ensemble.put(layout.broker_path(3), b"{}")
    state = LeaderAndIsr(2, 4, (2, 3), 1, 0)
    ensemble.put(layout.state_path(TP), layout.encode_state(state))
    ensemble.put(layout.delete_topic_path("t"), b"")
    ensemble.put(layout.REASSIGN_PARTITIONS, layout.encode_reassignments({TP: (3, 4)}))
    assert await read(ensemble) == Nodes(
        controller=3,
        brokers=(3,),
        assignment=ReplicaAssignment((2, 3)),
        state=state,
        is_marked=True,
        target=(3, 4),
    )


async def test_missing_znodes_of_a_partition_are_read_as_none(ensemble: ZooKeeperInMemory) -> None:
    assert await read(ensemble) == Nodes(None, (), None, None, False, None)


async def test_znodes_that_cannot_be_decoded_are_read_as_none(ensemble: ZooKeeperInMemory) -> None:
    for path in (layout.CONTROLLER, layout.topic_path("t"), layout.state_path(TP)):
        ensemble.put(path, b"nonsense")
    ensemble.put(layout.REASSIGN_PARTITIONS, b"nonsense")
    found = await read(ensemble)
    assert (found.controller, found.assignment, found.state, found.target) == (None,) * 4


async def test_read_nodes_returns_none_when_zookeeper_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("minikafka.tools.explain.nodes.TIMEOUT_MS", 200)
    assert await read_nodes("127.0.0.1:1", TP, SystemClock(), SystemRng()) is None
