"""`MemoryStage`: the in-memory cluster on which crash scenarios run, in virtual time under a seeded schedule."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from support.clusters.stage import BROKERS, KEYS, Stage
from support.ledger.invariants import violations

from minikafka.base.ports import Create
from minikafka.client import Client
from minikafka.simulation.cluster import LOG_DIR, MemoryCluster
from minikafka.simulation.loop import run_seeded, start_in
from minikafka.simulation.storage import MemoryStorage


class MemoryStage(Stage):
    """A `Stage` whose brokers run in a `MemoryCluster`. All calls must be made in the running `SeededLoop`."""

    poll_seconds = 0.1

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self._ended: dict[int, asyncio.Event] = {}

    def client(self) -> Client:
        return self.cluster.client()

    async def hold(self, step: str, brokers: Sequence[int] | None = None) -> None:
        for broker in self._chosen(brokers):
            self.cluster.brokers[broker].gate.hold(step)

    async def held(self, step: str) -> int:
        found: list[int] = []

        def look() -> bool:
            running = self.cluster.brokers.items()
            found[:] = [id_ for id_, broker in running if broker.gate.waiting == step]
            return bool(found)

        await self.eventually(look, lambda: f"nobody reached {step}")
        return found[0]

    async def release(self, step: str, brokers: Sequence[int] | None = None) -> None:
        for broker in self._chosen(brokers):
            self.cluster.brokers[broker].gate.release(step)

    def _chosen(self, brokers: Sequence[int] | None) -> list[int]:
        return [id_ for id_ in self.cluster.brokers if brokers is None or id_ in brokers]

    async def kill(self, broker: int) -> None:
        session = self.cluster.sessions[broker].session_id
        self.cluster.kill(broker)
        self._event(broker).set()
        await asyncio.sleep(0)
        self.cluster.ensemble.end_session(session)

    async def stop(self, broker: int) -> None:
        running = self.cluster.brokers[broker]
        shutdown = start_in(self.cluster.processes[broker], running.shutdown(controlled=True))
        killed = asyncio.create_task(self._event(broker).wait())
        await asyncio.wait({shutdown, killed}, return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        self.cluster.brokers.pop(broker, None)

    def _event(self, broker: int) -> asyncio.Event:
        """Return the event that is set when the broker is killed."""
        return self._ended.setdefault(broker, asyncio.Event())

    async def start(self, broker: int | None = None) -> None:
        wanted = BROKERS if broker is None else (broker,)
        missing = [id_ for id_ in wanted if id_ not in self.cluster.brokers]
        for id_ in missing:
            self._ended.pop(id_, None)
        await asyncio.gather(*(self.cluster.start(id_) for id_ in missing))

    def is_running(self, broker: int) -> bool:
        return broker in self.cluster.brokers

    async def write(self, path: str, data: bytes) -> None:
        self.cluster.ensemble.apply(Create(path, data))

    def node(self, path: str) -> tuple[bytes, int] | None:
        node = self.cluster.ensemble.nodes.get(path)
        return None if node is None else (node.data, node.version)

    def children(self, path: str) -> list[str]:
        there = path in self.cluster.ensemble.nodes
        return self.cluster.ensemble.children(path) if there else []

    def directories(self, broker: int, topic: str = "") -> list[str]:
        storage = self.cluster.storages[broker]
        found = storage.names(LOG_DIR) if storage.exists(LOG_DIR) else []
        return sorted(
            name for name in found if name.startswith(topic) and _is_replica(storage, name)
        )


def _is_replica(storage: MemoryStorage, name: str) -> bool:
    return "-" in name and storage.is_directory(f"{LOG_DIR}/{name}")


SEEDS = range(3)
Scenario = Callable[..., Coroutine[Any, Any, None]]


def on_memory_stage(scenario: Scenario) -> Callable[..., None]:
    """Turn a scenario into a test that runs once for each seed in `SEEDS`, each time on a new cluster.

    The scenario's first parameter is the stage. The test's parameters are `seed` and the scenario's other parameters.
    """

    @pytest.mark.parametrize("seed", SEEDS)
    @functools.wraps(scenario)
    def test(seed: int, **arguments: object) -> None:
        run_on_stage(seed, lambda stage: scenario(stage, **arguments))

    _, *rest = inspect.signature(scenario).parameters.values()
    seed = inspect.Parameter("seed", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    test.__signature__ = inspect.Signature([seed, *rest])  # type: ignore[attr-defined]
    del test.__wrapped__  # type: ignore[attr-defined]
    return test


def run_on_stage(seed: int, scenario: Callable[[MemoryStage], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario on a new cluster under the seed's schedule, and check the invariants of the cluster's ledgers."""

    async def run() -> None:
        cluster = MemoryCluster(ids=range(BROKERS[0], BROKERS[-1] + 1), **KEYS)
        stage = MemoryStage(cluster)
        await stage.start()
        await scenario(stage)
        for broker in tuple(cluster.brokers):
            await cluster.stop(broker, controlled=False)
        assert cluster.crashes == []
        found = violations(cluster.history())
        assert not found, "\n".join(found)

    run_seeded(seed, run())
