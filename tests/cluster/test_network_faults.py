"""A proxy breaks connections of a real cluster, and what must and must not happen then does, twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.clusters.running_cluster import eventually
from support.commands.commands import run

from minikafka.client import Client, NewTopic, Record
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.tools.cluster.local import BlockingCluster
from minikafka.tools.cluster.processes import is_alive, wait_until_gone
from minikafka.tools.cluster.proxy.addresses import source_of

KEYS = {"min.insync.replicas": 2, "auto.leader.rebalance.enable": False}
LATER_MS = 100


@pytest.fixture(scope="module")
def broken() -> Iterator[LocalCluster]:
    cluster = LocalCluster(3, faults=True, config=KEYS)
    asyncio.run(cluster.start())
    yield cluster
    asyncio.run(cluster.stop())


@pytest.fixture
async def cluster(broken: LocalCluster) -> AsyncIterator[LocalCluster]:
    yield broken
    if not broken.is_running():
        await broken.start()
    await broken.heal()
    await broken.wait_until_in_sync()


@pytest.fixture
async def client(cluster: LocalCluster) -> AsyncIterator[Client]:
    async with Client(cluster.bootstrap) as client:
        yield client


async def topic(client: Client, cluster: LocalCluster, name: str) -> str:
    """Create a topic whose only partition is led by broker 1, with a record."""
    await client.create_topics(NewTopic(name, assignment={0: (1, 2, 3)}))
    await cluster.wait_for_isr(name)
    await client.produce(name, [Record(value=b"first")])
    return name


async def values(client: Client, name: str) -> list[bytes | None]:
    return [row.value async for row in client.consume(name, until_end=True)]


@pytest.mark.key("minikafka.source.address")
@pytest.mark.parametrize("direction", ["both", "one"])
async def test_leader_cut_off_from_zookeeper_loses_its_leadership_and_no_record(
    cluster: LocalCluster, client: Client, direction: str
) -> None:
    name = await topic(client, cluster, f"session-{direction}")

    async with await cluster.cut(1, "zookeeper", direction=direction) as fault:
        write(cluster, name, b"during")
        await eventually(lambda: moved(cluster, name))
        write(cluster, name, b"after")

    assert fault.hits["bytes"] > 0
    await cluster.wait_for_isr(name)
    assert await values(client, name) == [b"first", b"during", b"after"]


def write(cluster: LocalCluster, name: str, value: bytes) -> None:
    """Write a record with acks=all, with the leader that brokers 2 and 3 know; wait until it is acknowledged."""
    servers = ",".join(map(cluster.record.address, (2, 3)))
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    producer.produce(name, value)
    assert producer.flush(60) == 0


async def moved(cluster: LocalCluster, name: str) -> bool:
    return await cluster.leader_of(name, 0) != 1


@pytest.mark.parametrize(
    ("ends", "direction"), [((1, 2), "both"), ((1, 2), "one"), ((2, 1), "one")]
)
async def test_acks_all_waits_while_a_follower_is_cut_off_and_goes_on_afterwards(
    cluster: LocalCluster, client: Client, ends: tuple[int, int], direction: str
) -> None:
    name = await topic(client, cluster, f"follower-{ends[0]}-{direction}")

    fault = await cluster.cut(*ends, direction=direction, link="fetch")
    written = asyncio.create_task(client.produce(name, [Record(value=b"late")]))
    await eventually(lambda: has_hit(fault))
    assert not written.done()
    assert (await cluster.state()).has_isr(name, (1, 2, 3))
    await fault.heal()
    await written

    assert fault.hits["connections"] >= 1
    assert await values(client, name) == [b"first", b"late"]


async def has_hit(fault) -> bool:
    await fault.count()
    return fault.has_hit


async def test_clients_that_are_cut_off_get_no_answer_until_it_is_healed_also_the_second_time(
    cluster: LocalCluster, client: Client
) -> None:
    name = await topic(client, cluster, "clients")

    for number in range(2):
        async with await cluster.cut_clients(1) as fault:
            written = asyncio.create_task(client.produce(name, [Record(value=b"%d" % number)]))
            await eventually(lambda fault=fault: has_hit(fault))
            await cluster.state()  # the tools of the cluster are not harmed
            assert not written.done()
        await written
        assert fault.hits["requests"] == 1

    assert await values(client, name) == [b"first", b"0", b"1"]
    assert await cluster.network_faults() == []


async def test_delay_is_seen_in_the_time_of_a_request(
    cluster: LocalCluster, client: Client
) -> None:
    name = await topic(client, cluster, "delay")
    loop = asyncio.get_running_loop()

    async with await cluster.delay("clients", 1, LATER_MS) as fault:
        begun = loop.time()
        await client.produce(name, [Record(value=b"v")])
        took = loop.time() - begun

    assert took * 1000 >= 2 * LATER_MS
    assert fault.hits["requests"] == 1


async def test_producer_recovers_from_a_reset_and_from_lost_bytes(
    cluster: LocalCluster, client: Client
) -> None:
    name = await topic(client, cluster, "reset")
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    producer.produce(name, b"a")
    assert producer.flush(20) == 0

    reset = await cluster.reset("clients", 1)
    assert reset.hits["connections"] >= 1
    producer.produce(name, b"b")
    assert producer.flush(20) == 0
    async with await cluster.drop("clients", 1) as dropped:
        producer.produce(name, b"c")
        producer.poll(0)
        await eventually(lambda: has_hit(dropped))
    assert producer.flush(20) == 0

    assert await values(client, name) == [b"first", b"a", b"b", b"c"]


async def test_request_after_the_awaited_ones_is_held_until_the_test_goes_on(
    cluster: LocalCluster, client: Client
) -> None:
    name = await topic(client, cluster, "after")

    async def write() -> None:
        for number in range(3):
            await client.produce(name, [Record(value=b"%d" % number)])

    waiting = asyncio.create_task(cluster.after("Produce", 2, broker=1, hold_ms=60_000))
    await eventually(lambda: counts(cluster))
    writing = asyncio.create_task(write())
    held = await waiting
    async with Client(
        cluster.bootstrap
    ) as other:  # what follows a held request on a connection waits too
        await eventually(lambda: has_records(other, name, 3))
    assert not writing.done()
    await held.heal()
    await writing

    assert held.hits == {"requests": 2}
    assert await values(client, name) == [b"first", b"0", b"1", b"2"]


async def counts(cluster: LocalCluster) -> bool:
    return bool(await cluster.network_faults())


async def has_records(client: Client, name: str, count: int) -> bool:
    return len(await values(client, name)) == count


async def test_wait_for_requests_that_do_not_come_says_how_many_came(cluster: LocalCluster) -> None:
    with pytest.raises(ClusterError, match="only 0 of 1 DeleteTopics requests were sent"):
        await cluster.after("DeleteTopics", timeout_ms=50)

    assert await cluster.network_faults() == []


async def test_death_of_the_proxy_is_told_by_the_next_verb_and_mended_by_a_start(
    cluster: LocalCluster, client: Client
) -> None:
    name = await topic(client, cluster, "proxy")
    process = cluster.record.proxy.process
    delay = await cluster.delay(2, 3, 1)

    os.kill(process.pid, signal.SIGKILL)
    await wait_until_gone(process, SystemClock(), 10_000)
    with pytest.raises(ClusterError, match=f"process {process.pid}, has ended"):
        await cluster.cut(1, 2)
    assert not cluster.is_running()
    await cluster.start()
    other = await cluster.delay(2, 3, 1)
    await delay.heal()  # it ended with its proxy: the new one has another fault of this number
    assert [fault.name for fault in await cluster.network_faults()] == [other.name]
    await client.produce(name, [Record(value=b"again")])

    assert await values(client, name) == [b"first", b"again"]
    assert source_of(1) == cluster.directory.broker_config(1).minikafka_source_address


def test_proxy_of_up_serves_later_commands_and_ends_with_down(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text("[cluster]\nport = 0\nbrokers = 1\n")
    cluster = LocalCluster(data=tmp_path / "data")
    try:
        assert run("up", "--faults", cwd=tmp_path).code == 0
        process = cluster.record.proxy.process
        with BlockingCluster(cluster).cut_clients(1) as fault:
            assert fault.count() == {"connections": 0, "bytes": 0, "requests": 0}
        assert run("down", cwd=tmp_path).code == 0
        assert not is_alive(process)

        assert run("up", cwd=tmp_path).code == 0
        assert cluster.record.proxy is None
        with pytest.raises(ClusterError, match="cluster was started without faults"):
            BlockingCluster(cluster).cut_clients(1)
        again = run("up", "--faults", cwd=tmp_path)
        assert "faults: takes effect after minikafka down and minikafka up" in again.err
    finally:
        run("down", cwd=tmp_path)
