"""Two brokers fail at once while static members restart: no commit is lost, and each member gets its own assignment.

`Life` checks the invariants: an acknowledged commit is fetched back, generations never fall, and each member gets
the bytes that the group leader of its generation sent for it.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from support.clusters.group_life import Faults, Life
from support.forms import seeds

from minikafka.base.model import TopicPartition
from minikafka.base.names import GROUP_TOPIC
from minikafka.client import NewTopic
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")
KEYS = {
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 1_000,
    "offsets_topic_num_partitions": 1,
    "min_insync_replicas": 2,
    "replica_fetch_wait_max_ms": 200,
    "replica_fetch_backoff_ms": 50,
    "replica_lag_time_max_ms": 1_000,
    "auto_leader_rebalance_enable": False,
}
MEMBERS = 3
STATIC = 2
ROUNDS = 4
APART_MS = 600
"""Maximum time between the faults of one round."""


async def live_through(seed: int) -> None:
    """Run a group through rounds of faults: two broker faults and the restart of a static member, in random order."""
    rng = Random(seed)
    async with MemoryCluster(3, **KEYS) as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", MEMBERS, 3))
        life = Life(cluster, "g", MEMBERS, static=STATIC)
        life.start()
        await life.progress(1)
        for _ in range(ROUNDS):
            await suffer(cluster, life, rng)
            await life.progress()
        await life.stop()


async def suffer(cluster: MemoryCluster, life: Life, rng: Random) -> None:
    """Kill or pause the coordinator and another broker, and restart a static member, all within `APART_MS`."""
    faults = Faults(cluster, away_ms=rng.choice((300, 1_500, 4_000)))
    coordinator = leader(cluster)
    other = rng.choice([number for number in cluster.storages if number != coordinator])

    async def fault(broker: int) -> None:
        await cluster.clock.sleep(rng.randrange(APART_MS))
        await faults.begin(rng.choice(("kill", "pause")), broker)()

    async def restart() -> None:
        await cluster.clock.sleep(rng.randrange(APART_MS))
        life.restart(rng.randrange(STATIC))

    await asyncio.gather(fault(coordinator), fault(other), restart())


def leader(cluster: MemoryCluster) -> int:
    """Return the id of the broker that coordinates the group."""
    tp = TopicPartition(GROUP_TOPIC, 0)
    led = {
        number: partition.leader_epoch
        for number, broker in cluster.brokers.items()
        if (partition := broker.replicas.partition(tp)) is not None and partition.is_leader
    }
    return max(led, key=lambda number: led[number])


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_no_commit_is_lost_when_two_brokers_fail_while_a_static_member_restarts(seed: int) -> None:
    run_seeded(seed, live_through(seed))
