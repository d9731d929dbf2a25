"""Administrators of a cluster in the leader-coordinated mode: what a broker does for them, held and killed at a step.

Nodes are read as raw bytes, below the root of the mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from support.brokers.leaders_cluster import LeadersCluster

from minikafka.base.config import TopicConfig
from minikafka.broker.capabilities import TopicPlan
from minikafka.client import NewTopic
from minikafka.client.administration.results import Outcome
from minikafka.simulation.loop import context_of, run_seeded

REQUESTS = "partitions_reassigned"
ID = b"i" * 16


def run_admin(
    scenario: Callable[[LeadersCluster], Awaitable[None]], brokers: int = 3, **config: object
) -> None:
    """Run a scenario with a new cluster without topics."""

    async def whole() -> None:
        async with LeadersCluster(brokers, **config) as cluster:
            await scenario(cluster)

    run_seeded(1, whole())


def below(cluster: LeadersCluster, path: str) -> dict[str, bytes]:
    """Return the data of the nodes below a path, by the rest of their path."""
    start = f"/leaders/brokers/{path}/"
    return {
        name.removeprefix(start): node.data
        for name, node in cluster.ensemble.nodes.items()
        if name.startswith(start)
    }


def put(cluster: LeadersCluster, path: str, data: bytes) -> None:
    """Write a node as another client of ZooKeeper."""
    cluster.ensemble.put(f"/leaders/brokers/{path}", data)


def directories(cluster: LeadersCluster, number: int, topic: str = "a") -> list[str]:
    """Return the directories of a topic's replicas in the storage of a broker, without those set aside."""
    names = cluster.storages[number].names("/data")
    return [name for name in names if name.rpartition("-")[0] == topic]


async def create(cluster: LeadersCluster, assignment: dict[int, tuple[int, ...]]) -> Outcome:
    """Create topic a."""
    async with cluster.client() as client:
        new = NewTopic("a", assignment=assignment)
        return (await client.admin.create_topics([new]))["a"]


async def delete(cluster: LeadersCluster) -> Outcome:
    """Delete topic a."""
    async with cluster.client() as client:
        return (await client.admin.delete_topics(["a"]))["a"]


def plan(assignment: dict[int, tuple[int, ...]], topic_id: bytes = ID) -> TopicPlan:
    """Return the plan of topic a."""
    return TopicPlan("a", topic_id, assignment, {}, TopicConfig())


def at(cluster: LeadersCluster, number: int, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Run work in the process of a broker: it ends when the broker is killed."""
    context = context_of(cluster.processes[number])
    return asyncio.get_running_loop().create_task(work, context=context)


async def until_held(cluster: LeadersCluster, number: int, step: str) -> None:
    """Wait until a broker is blocked at a step, which is held."""
    await cluster.until(lambda: cluster.brokers[number].gate.waiting == step)
