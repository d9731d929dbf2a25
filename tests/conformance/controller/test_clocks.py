"""Brokers whose wall clocks are wrong: nothing that the control plane does depends on them.

In memory, calls are signed and verified by the same code as over HTTP.
"""

from __future__ import annotations

import itertools

import pytest
from support.clusters.memory_stage import SEEDS, MemoryStage
from support.clusters.stage import KEYS
from support.clusters.zookeeper_brokers import NewCluster

from minikafka.base.model import TopicPartition
from minikafka.runtime.clock import SystemClock
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.tools.cli.foreground import broker_process

HOUR_MS = 3_600_000
OFFSETS = {1: 0, 2: 120_000, 3: -5 * HOUR_MS, 4: 5 * HOUR_MS}
T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_set_while_running", [False, True])
def test_cluster_of_brokers_with_different_clocks_passes_every_failover(
    seed: int, is_set_while_running: bool
) -> None:
    """Two brokers die and return, the second of them the controller; then a partition moves to broker 4."""

    async def scenario() -> None:
        offsets = None if is_set_while_running else OFFSETS
        keys = {key.replace(".", "_"): value for key, value in KEYS.items()}
        async with MemoryCluster(ids=range(1, 5), offsets_ms=offsets, **keys) as cluster:
            stage = MemoryStage(cluster)
            await stage.create("t", {0: (2, 3, 1), 1: (3, 1, 2)})
            for broker, offset in OFFSETS.items():
                cluster.clock_of(broker).offset_ms = offset
            async with stage.stream("t", 2) as stream:
                await die_and_return(stage, 2)
                await die_and_return(stage, stage.controller() or 0)
                async with stage.client() as client:
                    await client.admin.alter_reassignments({T0: (4, 1)})
                await stage.eventually(lambda: in_sync(stage, T0, 4, 1))
                await stream.check()

    run_seeded(seed, scenario())


async def die_and_return(stage: MemoryStage, broker: int) -> None:
    """Kill the broker; wait for other leaders. Start it again; wait until its replicas are in sync."""
    await stage.kill(broker)
    partitions = [TopicPartition("t", n) for n in (0, 1)]
    await stage.eventually(lambda: all(led_by_another(stage, tp, broker) for tp in partitions))
    await stage.start(broker)
    replicas = [(tp, stage.assignment(tp)) for tp in partitions]
    await stage.eventually(
        lambda: all(found and in_sync(stage, tp, *found.replicas) for tp, found in replicas)
    )


def led_by_another(stage: MemoryStage, tp: TopicPartition, broker: int) -> bool:
    state = stage.leadership(tp)
    return state is not None and state.leader not in (-1, broker)


def in_sync(stage: MemoryStage, tp: TopicPartition, *replicas: int) -> bool:
    state = stage.leadership(tp)
    return state is not None and set(state.isr) == set(replicas)


class WrongClock(SystemClock):
    """A clock whose wall time is wrong: the next of `OFFSETS` for each new clock."""

    offsets = itertools.cycle(OFFSETS.values())

    def __init__(self, advanced_ms: int = 0) -> None:
        super().__init__(advanced_ms)
        self._offset_ms = next(self.offsets)

    def wall_ms(self) -> int:
        return super().wall_ms() + self._offset_ms


async def test_brokers_with_different_clocks_replace_and_take_back_a_dead_leader(
    cluster: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_process, "SystemClock", WrongClock)
    async with cluster(3) as brokers:
        await brokers.create("t", {0: (3, 1, 2)})
        await brokers.die(3)
        await brokers.has_state(T0, 1, 1, 2)
        await brokers.start(3)
        await brokers.has_state(T0, 1, 1, 2, 3)
        await brokers.stop(1)
        await brokers.has_state(T0, 3, 2, 3)
