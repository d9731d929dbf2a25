"""Administrators' requests in the leader-coordinated mode are answered when they are carried out; idle brokers rest.

The broker that is asked hosts none of the partitions: it learns of them only by reads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.brokers.leaders_admin import at, directories, put, run_admin
from support.brokers.leaders_cluster import LeadersCluster, run_leaders

from minikafka.base.model import TopicPartition
from minikafka.base.ports import Create, Delete, Set
from minikafka.client import Client, NewTopic

ASKED = 0
SOON_S = 0.3
"""Longest time for an answer. Without a read of its own, a request waits for the background, up to a second."""
TIMES = 8
"""Requests of a test, at moments that differ relative to the reads of the background."""

PER_SECOND = 8
"""Requests to ZooKeeper of an idle broker: 4 or 5 for the registered brokers, 2 for the queues."""


def client(cluster: LeadersCluster) -> Client:
    """Return a client of the broker that is asked."""
    return Client(
        f"127.0.0.1:{9092 + ASKED}", transport=cluster.transport, clock=cluster.clock_of(ASKED)
    )


async def create(cluster: LeadersCluster, topic: str, *replicas: int) -> None:
    async with client(cluster) as asking:
        await asking.create_topics(NewTopic(topic, assignment={0: replicas}))


async def at_many_moments(ask: Callable[[str], Awaitable[object]]) -> None:
    """Ask `TIMES` times, each time about another topic, and check that each answer comes soon."""
    loop = asyncio.get_running_loop()
    for number in range(TIMES):
        await asyncio.sleep(1.13)
        began = loop.time()
        await ask(f"t{number}")
        assert loop.time() - began < SOON_S, number


@pytest.mark.row("C20")
def test_creation_is_answered_when_the_leaders_have_opened() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await at_many_moments(lambda topic: create(cluster, topic, 1))

    run_admin(scenario)


@pytest.mark.row("C24")
def test_extension_is_answered_when_the_leaders_have_opened() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        async def extend(topic: str) -> None:
            async with client(cluster) as asking:
                outcomes = await asking.admin.create_partitions({topic: 2}, {topic: [[2]]})
            assert outcomes[topic].ok, outcomes

        for number in range(TIMES):
            await create(cluster, f"t{number}", 1)
        await at_many_moments(extend)

    run_admin(scenario)


@pytest.mark.row("C23", "C25")
def test_deletion_is_answered_when_the_replicas_are_deleted() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        async def delete(topic: str) -> None:
            async with client(cluster) as asking:
                await asking.delete_topics(topic)
            assert directories(cluster, 1, topic) == []

        for number in range(TIMES):
            await create(cluster, f"t{number}", 1, 2)
        await at_many_moments(delete)

    run_admin(scenario)


def test_election_is_answered_when_the_preferred_replica_leads() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        async def elect(topic: str) -> None:
            tp = TopicPartition(topic, 0)
            async with client(cluster) as asking:
                outcomes = await asking.admin.elect_leaders([tp])
            assert outcomes[tp].ok, outcomes

        for number in range(TIMES):
            await create(cluster, f"t{number}", 1, 2)
        await cluster.until(
            lambda: all(cluster.node(f"topics/t{n}/0/ISR") == b"1,2;1" for n in range(TIMES))
        )
        await cluster.stop(1)
        await cluster.start(1)
        await cluster.until(
            lambda: all(cluster.node(f"topics/t{n}/0/ISR") == b"2,1;2" for n in range(TIMES))
        )
        await at_many_moments(elect)

    run_admin(scenario, auto_leader_rebalance_enable=False)


def test_requests_wait_for_no_change_after_their_answers() -> None:
    """The second wait begins its own reads, and an idle broker reads for none of them."""

    async def scenario(cluster: LeadersCluster) -> None:
        for topic in ("a", "b"):
            await create(cluster, topic, 1)
            await asyncio.sleep(3)
            cluster.notes.clear()
            await asyncio.sleep(10)
            assert len(cluster.notes) < 10 * PER_SECOND * len(cluster.brokers)

    run_admin(scenario)


@pytest.mark.parametrize("partitions", [0, 40])
def test_idle_broker_reads_no_partitions(partitions: int) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        if partitions:
            async with client(cluster) as asking:
                every = {n: (n % 3, (n + 1) % 3) for n in range(partitions)}
                await asking.create_topics(NewTopic("a", assignment=every))
        await asyncio.sleep(20)
        cluster.notes.clear()
        await asyncio.sleep(20)
        paths = Counter(path for _, path in cluster.notes)
        assert not [path for path in paths if "topics" in path or "reassigned" in path], paths
        assert len(cluster.notes) < 20 * PER_SECOND * len(cluster.brokers)

    run_admin(scenario)


def test_change_by_another_program_is_shown_within_two_seconds() -> None:
    """A node that another program writes wakes no watch of a broker without a replica."""

    async def scenario(cluster: LeadersCluster) -> None:
        await create(cluster, "a", 1, 2)
        await cluster.until(lambda: cluster.node("topics/a/0/ISR") == b"1,2;1")
        for isr in (b"1;1", b"1,2;1"):
            await asyncio.sleep(5)
            put(cluster, "topics/a/0/ISR", isr)
            await asyncio.sleep(2)
            [state] = cluster.brokers[ASKED].metadata.topics["a"].values()
            assert state.isr == tuple(map(int, isr.partition(b";")[0].split(b",")))

    run_admin(scenario)


def test_brokers_stop_looking_for_a_leader_that_died_before_it_registered() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await create(cluster, "a", 1, 2)
        await cluster.until(lambda: cluster.node("topics/a/0/ISR") == b"1,2;1")
        nodes, path = cluster.ensemble, "/leaders/brokers/topics/a/0"
        session = nodes.open_session()
        nodes.write(
            [
                Delete(f"{path}/leader", -1),
                Create(f"{path}/leader", b"9;2", ephemeral=True),
                Set(f"{path}/ISR", b"9,1,2;2", -1),
            ],
            session,
        )
        await asyncio.sleep(5)
        cluster.notes.clear()
        await asyncio.sleep(5)
        assert len(cluster.notes) > 5 * PER_SECOND * len(cluster.brokers), "they look for broker 9"
        nodes.end_session(session)
        await cluster.until(
            lambda: (cluster.node("topics/a/0/leader") or b"")[:2] in (b"1;", b"2;")
        )
        await asyncio.sleep(5)
        cluster.notes.clear()
        await asyncio.sleep(10)
        assert len(cluster.notes) < 10 * PER_SECOND * len(cluster.brokers)

    run_admin(scenario)


def test_metadata_count_as_fresh_since_their_read_began() -> None:
    """A change during a slow read is read by the next request, however short ago the read has ended."""

    async def scenario(cluster: LeadersCluster) -> None:
        await create(cluster, "a", 1, 2)
        await cluster.until(lambda: cluster.node("topics/a/0/ISR") == b"1,2;1")
        await asyncio.sleep(5)
        session, get_many = cluster.sessions[ASKED], cluster.sessions[ASKED].get_many

        async def slow(paths: Any) -> Any:
            found = await get_many(paths)
            await asyncio.sleep(3)
            return found

        session.get_many = slow  # type: ignore[method-assign]
        put(cluster, "topics/a/0/ISR", b"1;1")
        source = cluster.brokers[ASKED].metadata.source
        assert source is not None
        for isr in (b"1,2;1", b"1;1"):  # the second time as the first
            await cluster.until(lambda: source.asked(["a"], is_missing=False))
            reading = source.asked(["a"], is_missing=False)
            assert reading is not None
            await asyncio.sleep(2)
            put(cluster, "topics/a/0/ISR", isr)
            await reading
            assert source.asked(["a"], is_missing=False) is not None
            await asyncio.sleep(20)

    run_admin(scenario)


def test_slow_read_of_a_topic_does_not_show_its_former_leader_again() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await create(cluster, "other", 1)
        metadata, session = cluster.brokers[2].metadata, cluster.sessions[2]
        get_many, slow_reads = session.get_many, []

        async def slow(paths: Any) -> Any:
            found = await get_many(paths)
            if not slow_reads and not any("other" in path for path in paths):
                slow_reads.append(paths)
                await asyncio.sleep(5)
            return found

        await asyncio.sleep(5)
        session.get_many = slow  # type: ignore[method-assign]
        cluster.ensemble.put("/written")
        source: Any = metadata.source
        reading = at(cluster, 2, source.refresh_topics(["t"]))
        await asyncio.sleep(0.1)
        assert slow_reads
        cluster.kill_with_session(0)
        await cluster.until(lambda: metadata.topics["t"][0].leader_epoch == 2)
        assert not reading.done()
        await reading
        assert metadata.topics["t"][0].leader_epoch == 2

    run_leaders(1, scenario, topic_replicas=(0, 1, 2))


def test_client_that_asks_sees_each_change_at_once() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await create(cluster, "a", 1, 2)
        await cluster.until(lambda: cluster.node("topics/a/0/ISR") == b"1,2;1")
        async with client(cluster) as asking:
            for isr in ([1], [1, 2], [1]):
                await asyncio.sleep(5)
                put(cluster, "topics/a/0/ISR", b"%s;1" % b",".join(b"%d" % one for one in isr))
                await asyncio.sleep(0.11)  # what was read 100 ms ago counts as fresh
                found = await asking.admin.describe_topics(["a"])
                assert list(found["a"].partitions[0].isr) == isr

    run_admin(scenario)
