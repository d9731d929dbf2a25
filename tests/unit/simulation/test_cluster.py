"""The faults of a `MemoryCluster`: deaths, pauses, lost sessions and lost power, in both coordination modes."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Awaitable, Callable

import pytest

from minikafka.base.coordination import CONTROLLER, LEADERS
from minikafka.client import Client, NewTopic, Record
from minikafka.simulation import MemoryCluster, run_seeded

SESSION_MS = 6_000


@pytest.fixture(params=[CONTROLLER, LEADERS])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(
    mode: str, scenario: Callable[[MemoryCluster, Client], Awaitable[None]], **config: object
) -> None:
    """Run a scenario with topic t on three brokers."""

    async def whole() -> None:
        async with (
            MemoryCluster(3, coordination=mode, **config) as cluster,
            cluster.client() as client,
        ):
            await client.create_topics(NewTopic("t", 1, 3))
            await client.produce("t", [Record(value=b"a")])
            await cluster.until_all_are_in_sync()
            await scenario(cluster, client)

    run_seeded(1, whole())


async def until_broker_is_missing(cluster: MemoryCluster, number: int) -> int:
    """Wait until no running broker knows the broker; return the milliseconds that this took."""
    begun = cluster.clock.now()
    others = [broker for id_, broker in cluster.brokers.items() if id_ != number]
    while any(number in broker.metadata.brokers for broker in others):
        await cluster.clock.sleep(10)
    return cluster.clock.now() - begun


def test_session_of_a_killed_broker_expires_later(mode: str):
    async def scenario(cluster: MemoryCluster, client: Client) -> None:
        cluster.kill(2)
        assert await until_broker_is_missing(cluster, 2) >= SESSION_MS - 2_000

    run(mode, scenario, zookeeper_session_timeout_ms=SESSION_MS)


def test_session_of_a_broker_killed_with_it_ends_at_once(mode: str):
    async def scenario(cluster: MemoryCluster, client: Client) -> None:
        cluster.kill_with_session(2)
        assert await until_broker_is_missing(cluster, 2) < 1_000

    run(mode, scenario, zookeeper_session_timeout_ms=SESSION_MS)


def test_paused_broker_joins_again_after_its_session_has_ended(mode: str):
    async def scenario(cluster: MemoryCluster, client: Client) -> None:
        cluster.pause(2)
        cluster.end_session(2)
        await until_broker_is_missing(cluster, 2)
        cluster.resume(2)
        await cluster.until_all_are_known()
        await cluster.until_all_are_in_sync()

    run(mode, scenario)


@pytest.mark.parametrize(("flushed", "kept"), [(True, 1), (False, 0)])
def test_power_loss_leaves_only_fsynced_records(mode: str, flushed: bool, kept: int):
    async def scenario(cluster: MemoryCluster, client: Client) -> None:
        for number in list(cluster.brokers):
            cluster.lose_power(number)
            cluster.end_session(number)
        for number in cluster.storages:
            await cluster.start(number)
        assert (await client.list_offsets("t", "latest"))[0] == kept

    run(mode, scenario, **({"log_flush_interval_messages": 1} if flushed else {}))


def test_cluster_reports_the_crash_of_a_task(mode: str):
    async def crash() -> None:
        raise RuntimeError("a defect")

    async def scenario(cluster: MemoryCluster, client: Client) -> None:
        await cluster.ports[0].tasks.spawn(crash(), "defective")

    with pytest.raises(AssertionError, match="a defect"):
        run(mode, scenario)


def test_error_of_a_scenario_is_shown_although_a_broker_is_paused():
    async def scenario(cluster: MemoryCluster, client: Client) -> None:
        cluster.pause(2)
        raise ValueError("the scenario has failed")

    with pytest.raises(ValueError, match="the scenario has failed"):
        run(CONTROLLER, scenario)


def test_cluster_of_an_ended_run_is_freed(mode: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level(
        logging.CRITICAL
    )  # pytest keeps log records, whose arguments refer to the cluster
    ended: list[weakref.ref[MemoryCluster]] = []

    async def scenario(cluster: MemoryCluster, client: Client) -> None:
        ended.append(weakref.ref(cluster))

    run(mode, scenario)
    gc.collect()
    assert ended[0]() is None
