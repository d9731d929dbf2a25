"""The IsrStore that writes the ISR to the partition's state znode."""

from __future__ import annotations

from support.memory_coordination import Ensemble, MemoryCoordination

from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.broker.coordinator import IsrOutcome
from minikafka.broker.zookeeper.isr_store import ZooKeeperIsrs
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.zk import layout

TP = TopicPartition("t", 0)
STATE = LeaderAndIsr(0, 3, (0, 1), 1, zk_version=0)


async def test_isr_change_is_abandoned_without_a_write_if_its_caller_no_longer_wants_it() -> None:
    ensemble, tasks = Ensemble(), TaskRegistry()
    ensemble.put(layout.state_path(TP), b"{}")
    session = MemoryCoordination(ensemble)
    session.attach()
    written = await ZooKeeperIsrs(session, SystemClock(), tasks).write(TP, STATE, lambda: False)
    assert written.outcome is IsrOutcome.ABANDONED
    assert ensemble.nodes[layout.state_path(TP)].data == b"{}"


async def test_isr_change_of_a_partition_without_a_state_node_is_abandoned() -> None:
    session = MemoryCoordination(Ensemble())
    session.attach()
    isrs = ZooKeeperIsrs(session, SystemClock(), TaskRegistry())
    assert (await isrs.write(TP, STATE, lambda: True)).outcome is IsrOutcome.ABANDONED
