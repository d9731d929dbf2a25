"""Every client library runs the same scenarios: writing, sharing a consumer group, transactions, deaths of brokers.

The outcomes are the table of docs/clients.md (`pytest --record-rows`).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from support.clients.client_drivers import CLIENTS, Driver, MatrixClient, Running
from support.clusters.running_cluster import create_topic, heal, kill

from minikafka.base.coordinators import partition_of
from minikafka.base.names import GROUP_TOPIC
from minikafka.tools.cluster import LocalCluster

PARTITIONS = 4
BATCH = 40


@pytest.fixture(params=CLIENTS, ids=[client.name for client in CLIENTS])
def client(request: pytest.FixtureRequest) -> MatrixClient:
    chosen: MatrixClient = request.param
    return chosen


@pytest.fixture(scope="module")
def commands(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[list[str]]]]:
    """Driver commands by client name. The drivers are built concurrently while the first clients are tested."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    params = [call.params.get("client") for call in calls if call is not None]
    chosen = {client for client in params if isinstance(client, MatrixClient)}
    folder = tmp_path_factory.mktemp("drivers")
    with ThreadPoolExecutor() as pool:
        yield {client.name: pool.submit(client.build, folder / client.name) for client in chosen}


@pytest.fixture
async def driver(
    client: MatrixClient,
    commands: dict[str, Future[list[str]]],
    cluster: LocalCluster,
) -> AsyncIterator[Driver]:
    driver = Driver(await asyncio.wrap_future(commands[client.name]), cluster.bootstrap)
    try:
        yield driver
    finally:
        await driver.close()


@pytest.fixture
async def reference(cluster: LocalCluster) -> AsyncIterator[Driver]:
    """The driver of confluent-kafka, which prepares and checks what the tested client reads and writes."""
    driver = Driver(CLIENTS[0].build(Path()), cluster.bootstrap)
    try:
        yield driver
    finally:
        await driver.close()


def assigned_to(member: Running) -> set[int]:
    """Return the partitions that a member consumes, from the changes it printed."""
    current: set[int] = set()
    for change in member.changes():
        if "assigned" in change:
            current |= set(change["assigned"])
        elif change["revoked"] is None:
            current.clear()
        else:
            current -= set(change["revoked"])
    return current


async def share(*members: Running) -> None:
    """Wait until all partitions are assigned to the members, the same number to each member."""
    each = PARTITIONS // len(members)
    for member in members:
        await member.until(lambda member=member: len(assigned_to(member)) == each)  # type: ignore[misc]


async def read_all(members: tuple[Running, ...], expected: set[int]) -> None:
    """Wait until each of these records was read or copied by some member."""

    def is_complete() -> bool:
        return expected <= {v for member in members for v in (*member.values, *member.copied)}

    async with asyncio.timeout(60):
        while True:
            # Count before the check, so that a fact that arrives during the check ends the wait below.
            known = [len(member.facts) for member in members]
            if is_complete():
                return
            waits = [
                asyncio.ensure_future(member.until(lambda m=member, k=count: len(m.facts) > k))
                for member, count in zip(members, known, strict=True)
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()


async def only(driver: Driver, topic: str, expected: set[int]) -> None:
    """Check that a topic has exactly these committed records, each of them once."""
    reader = await driver.start("consume", topic, topic, "eager", "", "read_committed")
    await read_all((reader,), expected)
    assert sorted(reader.values) == sorted(expected)


async def test_group_reads_every_codec_through_a_rebalance_and_resumes(
    client: MatrixClient, driver: Driver, cluster: LocalCluster
) -> None:
    topic = f"codecs-{client.name}"
    await create_topic(cluster, topic, PARTITIONS)
    for number, codec in enumerate(client.codecs):
        await driver.run("produce", topic, codec, number * BATCH, BATCH)
    count = len(client.codecs) * BATCH
    first = await driver.start("consume", topic, topic, "eager", "")
    await read_all((first,), set(range(count)))
    second = await driver.start("consume", topic, topic, "eager", "")
    await share(first, second)
    await driver.run("produce", topic, "none", count, BATCH)
    await read_all((first, second), set(range(count + BATCH)))
    await second.stop()
    await share(first)
    await first.stop()
    read = first.values + second.values
    assert len(read) == len(set(read)), "a record was read twice although it was committed"
    await driver.run("produce", topic, "none", count + BATCH, BATCH)
    third = await driver.start("consume", topic, topic, "eager", "")
    new = set(range(count + BATCH, count + 2 * BATCH))
    await third.until(lambda: new <= set(third.values))
    await third.stop()
    assert set(third.values) == new


async def test_static_member_returns_to_its_partitions_without_a_rebalance(
    client: MatrixClient, driver: Driver, cluster: LocalCluster
) -> None:
    if not client.is_static:
        pytest.skip(f"{client.name} has no static members")
    topic = f"static-{client.name}"
    await create_topic(cluster, topic, PARTITIONS)
    killed = await driver.start("consume", topic, topic, "eager", "one")
    await share(killed)
    other = await driver.start("consume", topic, topic, "eager", "two")
    await share(killed, other)
    had, seen = assigned_to(killed), len(other.changes())
    await killed.kill()
    returned = await driver.start("consume", topic, topic, "eager", "one")
    await returned.until(lambda: assigned_to(returned) == had)
    await driver.run("produce", topic, "none", 0, BATCH)
    await read_all((returned, other), set(range(BATCH)))
    assert len(other.changes()) == seen


async def test_cooperative_member_keeps_partitions_during_a_rebalance(
    client: MatrixClient, driver: Driver, cluster: LocalCluster
) -> None:
    if not client.is_cooperative:
        pytest.skip(f"{client.name} has no cooperative assignor")
    topic = f"cooperative-{client.name}"
    await create_topic(cluster, topic, PARTITIONS)
    first = await driver.start("consume", topic, topic, "cooperative", "")
    await share(first)
    second = await driver.start("consume", topic, topic, "cooperative", "")
    await share(first, second)
    revoked = [fact["revoked"] for fact in first.changes() if "revoked" in fact]
    assert sorted(itertools.chain(*revoked)) == sorted(assigned_to(second))
    await driver.run("produce", topic, "none", 0, BATCH)
    await read_all((first, second), set(range(BATCH)))


async def test_offsets_are_found_by_time(
    client: MatrixClient, driver: Driver, cluster: LocalCluster
) -> None:
    topic = f"time-{client.name}"
    await create_topic(cluster, topic, 1)
    await driver.run("produce", topic, "none", 0, BATCH)
    middle = int(time.time() * 1000) + 2
    await asyncio.sleep(0.005)
    await driver.run("produce", topic, "gzip", BATCH, BATCH)
    late = int(time.time() * 1000) + 60_000
    found = [
        (await driver.run("time", topic, 1, timestamp))[0]["offsets"]["0"]
        for timestamp in (1, middle, late)
    ]
    assert found == [0, BATCH, -1]


async def test_topics_are_created_described_and_deleted(
    client: MatrixClient, driver: Driver
) -> None:
    assert await driver.run("admin", f"admin-{client.name}", 3) == [{"partitions": 3}]


async def test_no_acknowledged_record_is_lost_when_leader_and_coordinator_die(
    client: MatrixClient, driver: Driver, cluster: LocalCluster
) -> None:
    topic = f"deaths-{client.name}"
    await create_topic(cluster, topic, PARTITIONS)
    producer = await driver.start("stream", topic)
    consumer = await driver.start("consume", topic, topic, "eager", "")
    await consumer.until(lambda: len(consumer.values) > BATCH)
    # Every broker leads a partition of the topic, because the topic has more partitions than there are brokers.
    offsets = [tp for tp in (await cluster.state()).partitions if tp.topic == GROUP_TOPIC]
    victim = await cluster.leader_of(GROUP_TOPIC, partition_of(topic, len(offsets)))
    await kill(cluster, victim)
    acked = len(producer.acked)
    await producer.until(lambda: len(producer.acked) > acked + 2 * BATCH)
    await heal(cluster)
    await producer.stop()
    await consumer.until(lambda: set(producer.acked) <= set(consumer.values))


async def test_transaction_is_visible_as_a_whole_or_never(
    client: MatrixClient, driver: Driver, cluster: LocalCluster
) -> None:
    topic = f"whole-{client.name}"
    await create_topic(cluster, topic, PARTITIONS)
    ends = "commit,abort,commit,hold"
    producer = await driver.start("transact", topic, topic, 0, BATCH, ends)
    await producer.until(lambda: {"open": True} in producer.facts)
    dirty = await driver.start("consume", topic, f"{topic}-all", "eager", "", "read_uncommitted")
    reader = await driver.start("consume", topic, topic, "eager", "", "read_committed")
    visible = {*range(BATCH), *range(2 * BATCH, 3 * BATCH)}
    await read_all((reader,), visible)
    await read_all((dirty,), set(range(4 * BATCH)))
    assert set(reader.values) == visible, "records of an open or aborted transaction were read"
    await producer.stop()
    assert [fact["ended"] for fact in producer.facts if "ended" in fact] == ends.split(",")
    visible |= set(range(3 * BATCH, 4 * BATCH))
    await read_all((reader,), visible)
    assert sorted(reader.values) == sorted(visible)


async def test_producer_is_fenced_by_a_newer_one_of_its_transactional_id(
    client: MatrixClient, driver: Driver, cluster: LocalCluster, reference: Driver
) -> None:
    topic = f"zombie-{client.name}"
    await create_topic(cluster, topic, PARTITIONS)
    zombie = await driver.start("transact", topic, topic, 0, BATCH, "hold")
    await zombie.until(lambda: zombie.facts == [{"open": True}])
    newer = await driver.run("transact", topic, topic, BATCH, BATCH, "commit")
    assert newer == [{"ended": "commit"}]
    await zombie.stop()
    assert [list(fact) for fact in zombie.facts] == [["open"], ["fenced"]]
    await reference.run("transact", topic, f"{topic}-2", 2 * BATCH, BATCH, "commit")
    await only(reference, topic, set(range(BATCH, 3 * BATCH)))


async def test_records_and_offsets_of_a_copy_are_committed_together(
    client: MatrixClient, driver: Driver, cluster: LocalCluster, reference: Driver
) -> None:
    source, target = f"source-{client.name}", f"target-{client.name}"
    await create_topic(cluster, source, PARTITIONS)
    await create_topic(cluster, target, PARTITIONS)
    await reference.run("transact", source, source, 0, BATCH, "commit,abort,commit")
    copied = {*range(BATCH), *range(2 * BATCH, 3 * BATCH)}
    first = await driver.start("copy", source, target, source, "one")
    await first.until(lambda: copied <= set(first.copied))
    if client.has_group_metadata:
        # The second member makes the group rebalance while the first one copies.
        second = await driver.start("copy", source, target, source, "two")
    else:
        await first.stop()
        second = await driver.start("copy", source, target, source, "one")
    await reference.run("produce", source, "none", 3 * BATCH, BATCH)
    copied |= set(range(3 * BATCH, 4 * BATCH))
    await read_all((first, second), copied)
    await only(reference, target, copied)
