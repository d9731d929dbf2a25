"""Topics in the leader-coordinated mode, on whole brokers in memory: creation, extension and deletion by any broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from support.brokers.leaders_admin import (
    ID,
    REQUESTS,
    at,
    below,
    create,
    delete,
    directories,
    plan,
    put,
    run_admin,
    until_held,
)
from support.brokers.leaders_cluster import LeadersCluster

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition, topic_id_text
from minikafka.broker.admin.partitions import MorePartitions
from minikafka.client import NewTopic
from minikafka.client.administration.results import Outcome
from minikafka.deciders.leaders.steps import CREATION, DELETION, STEPS
from minikafka.kafka.records.batch import Record


async def extend(cluster: LeadersCluster, total: int, added: Sequence[Sequence[int]]) -> Outcome:
    """Increase topic a to this number of partitions. `added`: the replicas of each new partition."""
    async with cluster.client() as client:
        return (await client.admin.create_partitions({"a": total}, {"a": added}))["a"]


CREATED = tuple(step for step in STEPS[CREATION] if step != "cleanup")
DELETED = tuple(step for step in STEPS[DELETION] if step != "replica")


@pytest.mark.row("C20", "C24")
def test_topic_is_created_partition_by_partition() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1), 1: (1, 2), 2: (2, 0)})).ok
        nodes = below(cluster, "topics/a")
        assert [nodes[f"{p}/replicas"] for p in range(3)] == [b"0,1", b"1,2", b"2,0"]
        assert [nodes[f"{p}/leader"] for p in range(3)] == [b"0;1", b"1;1", b"2;1"]
        assert below(cluster, f"{REQUESTS}/a") == {}
        assert below(cluster, "state").keys() == {"0", "1", "2"}
        async with cluster.client() as client:
            found = await client.admin.describe_topics(["a"])
        assert topic_id_text(found["a"].topic_id).encode() == cluster.node("topics/a")
        assert (await create(cluster, {0: (0,)})).code is ErrorCode.TOPIC_ALREADY_EXISTS

    run_admin(scenario)


@pytest.mark.row("C24")
def test_partition_gets_request_starts_and_replica_list_in_this_order() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        broker = cluster.brokers[0]
        seen = []
        for step in ("request", "start", "wait", "replicas"):
            broker.gate.hold(f"creation.{step}")
        task = at(cluster, 0, broker.capabilities.topics.create([plan({0: (1, 2)})]))
        for step in ("request", "start", "wait", "replicas"):
            await until_held(cluster, 0, f"creation.{step}")
            await asyncio.sleep(1)
            requests = below(cluster, f"{REQUESTS}/a")
            hosted = (
                cluster.brokers[1].capabilities.diagnostics.view(TopicPartition("a", 0)) is not None
            )
            seen.append((requests, hosted, cluster.node("topics/a/0/replicas")))
            broker.gate.release(f"creation.{step}")
        assert await task == {}
        assert seen == [
            ({}, False, None),
            ({"0": b"1,2"}, False, None),
            ({"0": b"1,2"}, True, None),
            ({"0": b"1,2"}, True, None),
        ]
        assert cluster.node("topics/a/0/replicas") == b"1,2"
        assert below(cluster, f"{REQUESTS}/a") == {}

    run_admin(scenario)


@pytest.mark.row("C20")
def test_creation_on_a_broker_without_a_queue_writes_nothing() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        errors = await at(
            cluster,
            0,
            cluster.brokers[0].capabilities.topics.create([plan({0: (0, 1), 1: (1, 9)})]),
        )
        assert errors["a"].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "brokers without a queue of state-change requests: 9" in str(errors["a"])
        assert below(cluster, "topics") == below(cluster, REQUESTS) == {}
        assert "/config/topics/a" not in cluster.ensemble.nodes

    run_admin(scenario)


@pytest.mark.row("C20", "C21")
@pytest.mark.parametrize("step", CREATED)
def test_creation_whose_broker_dies_at_a_step_is_repeated_by_another(step: str) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        acting = cluster.brokers[0]
        acting.gate.hold(f"creation.{step}")
        at(cluster, 0, acting.capabilities.topics.create([plan({0: (0, 1), 1: (1, 2)})]))
        await until_held(cluster, 0, f"creation.{step}")
        cluster.kill_with_session(0)
        assert (await create(cluster, {0: (2, 1)})).ok
        assert cluster.node("topics/a/0/leader") == b"2;1"
        assert below(cluster, f"{REQUESTS}/a") == {}
        await cluster.until(lambda: directories(cluster, 1) == directories(cluster, 2) == ["a-0"])
        await cluster.start(0)
        assert directories(cluster, 0) == []
        assert below(cluster, "state").keys() == {"0", "1", "2"}

    run_admin(scenario)


@pytest.mark.row("C21")
def test_topic_with_a_live_partition_is_no_failed_attempt() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        put(cluster, "topics/a", topic_id_text(ID).encode())
        put(cluster, "topics/a/0", b"")
        put(cluster, "topics/a/0/replicas", b"0,1")
        put(cluster, f"{REQUESTS}/a", b"")
        put(cluster, f"{REQUESTS}/a/1", b"1,2")
        before = below(cluster, "topics")
        assert (await create(cluster, {0: (1,)})).code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert below(cluster, "topics") == before
        assert below(cluster, f"{REQUESTS}/a") == {"1": b"1,2"}
        assert (await delete(cluster)).ok
        assert "a" not in below(cluster, "topics")

    run_admin(scenario)


@pytest.mark.row("C20")
def test_creation_in_progress_at_another_broker_is_not_taken_for_a_failed_one() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        cluster.brokers[0].gate.hold("creation.wait")
        store = cluster.brokers[0].capabilities.topics
        first = at(cluster, 0, store.create([plan({0: (0, 1)})]))
        await until_held(cluster, 0, "creation.wait")
        second = cluster.brokers[1].capabilities.topics
        errors = await second.create([plan({0: (2,)}, b"j" * 16)])
        assert errors["a"].code is ErrorCode.TOPIC_ALREADY_EXISTS  # type: ignore[attr-defined]
        cluster.brokers[0].gate.open()
        assert await first == {}
        assert cluster.node("topics/a/0/replicas") == b"0,1"

    run_admin(scenario)


@pytest.mark.row("C21")
def test_creation_that_was_taken_over_writes_nothing_more() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        cluster.brokers[0].gate.hold("creation.replicas")
        store = cluster.brokers[0].capabilities.topics
        first = at(cluster, 0, store.create([plan({0: (0, 1)})]))
        await until_held(cluster, 0, "creation.replicas")
        assert await cluster.brokers[1].capabilities.topics.mark_for_deletion("a")
        await cluster.until(lambda: "a" not in below(cluster, "topics"))
        cluster.brokers[0].gate.open()
        errors = await first
        assert errors["a"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "a" not in below(cluster, "topics")
        assert directories(cluster, 0) == []

    run_admin(scenario)


@pytest.mark.row("C21")
def test_paused_creation_writes_nothing_into_a_topic_that_was_created_again() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        first, second = cluster.brokers[0], cluster.brokers[1]
        first.gate.hold("creation.replicas")
        paused = at(cluster, 0, first.capabilities.topics.create([plan({0: (1, 2)})]))
        await until_held(cluster, 0, "creation.replicas")
        cluster.pause(0)
        second.gate.hold("creation.start")
        other = plan({0: (2, 1)}, b"j" * 16)
        repeated = at(cluster, 1, second.capabilities.topics.create([other]))
        await until_held(cluster, 1, "creation.start")
        first.gate.open()
        cluster.resume(0)
        assert (await paused)["a"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        second.gate.open()
        assert await repeated == {}
        assert cluster.node("topics/a/0/replicas") == b"2,1"

    run_admin(scenario)


@pytest.mark.row("C24")
def test_topic_gets_more_partitions_after_an_extension_that_failed() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1)})).ok
        put(cluster, f"{REQUESTS}/a/1", b"2,0")
        async with cluster.client() as client:
            outcome = await client.admin.create_partitions({"a": 4})
            assert outcome["a"].ok
            found = await client.admin.describe_topics(["a"])
        assert sorted(found["a"].partitions) == [0, 1, 2, 3]
        assert below(cluster, f"{REQUESTS}/a") == {}

    run_admin(scenario)


@pytest.mark.row("C23", "C25")
def test_topic_is_deleted_with_its_files_nodes_and_settings() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1, 2), 1: (1, 2, 0)})).ok
        await cluster.until(lambda: all(len(directories(cluster, n)) == 2 for n in range(3)))
        assert (await delete(cluster)).ok
        assert [directories(cluster, number) for number in range(3)] == [[]] * 3
        assert below(cluster, "topics") == below(cluster, REQUESTS) == {}
        assert "/config/topics/a" not in cluster.ensemble.nodes
        assert below(cluster, "state").keys() == {"0", "1", "2"}
        assert (await delete(cluster)).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run_admin(scenario)


@pytest.mark.row("C22", "C25")
def test_topic_is_deleted_on_a_broker_that_was_down_when_the_broker_returns() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (2, 0), 1: (0, 2)})).ok
        await cluster.until(lambda: directories(cluster, 2) == ["a-0", "a-1"])
        cluster.kill_with_session(2)
        assert (await delete(cluster)).ok
        assert below(cluster, "topics") == {}
        assert directories(cluster, 2) == ["a-0", "a-1"]
        await cluster.start(2)
        assert directories(cluster, 2) == []
        assert below(cluster, "state").keys() == {"0", "1", "2"}

    run_admin(scenario)


@pytest.mark.row("C7", "C25")
def test_topic_created_again_while_a_broker_is_down_is_not_deleted_there() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1, 2)})).ok
        cluster.kill_with_session(2)
        assert (await delete(cluster)).ok
        async with cluster.client() as client:
            await client.create_topics(NewTopic("a", 1, 2))
            await client.produce("a", [Record(value=b"new")])
        moved = {TopicPartition("a", 0): (0, 1, 2)}
        await cluster.start(2)
        async with cluster.client() as client:
            assert (await client.admin.alter_reassignments(moved))[TopicPartition("a", 0)].ok
            await cluster.until(lambda: (cluster.node("topics/a/0/ISR") or b"").count(b",") == 2)
            rows = [row.value async for row in client.consume("a", until_end=True)]
        assert rows == [b"new"]
        log = cluster.brokers[2].replicas.partitions[TopicPartition("a", 0)].log
        assert log.log_end_offset == 1
        assert directories(cluster, 2) == ["a-0"]

    run_admin(scenario)


@pytest.mark.row("C23", "C25")
@pytest.mark.parametrize("step", DELETED)
def test_deletion_whose_broker_dies_at_a_step_is_finished_by_another(step: str) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1), 1: (1, 0), 2: (2, 0)})).ok
        acting = cluster.brokers[0]
        acting.gate.hold(f"deletion.{step}")
        at(cluster, 0, acting.capabilities.topics.mark_for_deletion("a"))
        await until_held(cluster, 0, f"deletion.{step}")
        cluster.kill_with_session(0)
        if step == "request":
            assert (await delete(cluster)).ok
        await cluster.until(lambda: below(cluster, "topics") == {})
        assert below(cluster, REQUESTS) == {}
        await cluster.start(0)
        assert [directories(cluster, number) for number in range(3)] == [[]] * 3
        await cluster.until(lambda: below(cluster, "state").keys() == {"0", "1", "2"})

    run_admin(scenario)


@pytest.mark.row("C23", "C25")
@pytest.mark.parametrize("step", ["wait", "partition"])
def test_deletion_is_finished_when_the_broker_that_went_on_with_it_dies_too(step: str) -> None:
    """Nothing changes in ZooKeeper meanwhile: the brokers that are left look at the deletion all the same."""

    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1), 1: (1, 0), 2: (2, 0)})).ok
        for broker in cluster.brokers.values():
            broker.gate.hold(f"deletion.{step}")
        at(cluster, 0, cluster.brokers[0].capabilities.topics.mark_for_deletion("a"))
        for number in (0, 1):
            await until_held(cluster, number, f"deletion.{step}")
            await asyncio.sleep(10)
            assert not cluster.brokers[2].gate.waiting, "the live broker with the lowest id goes on"
            cluster.kill_with_session(number)
        cluster.brokers[2].gate.open()
        await cluster.until(lambda: below(cluster, "topics") == below(cluster, REQUESTS) == {})
        for number in (0, 1):
            await cluster.start(number)
        assert [directories(cluster, number) for number in range(3)] == [[]] * 3

    run_admin(scenario)


@pytest.mark.row("C9", "C25")
def test_partition_is_deleted_by_an_empty_request_of_another_client() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1), 1: (1, 2)})).ok
        put(cluster, f"{REQUESTS}/a/1", b"")
        await cluster.until(lambda: below(cluster, f"{REQUESTS}/a") == {})
        assert {name.split("/")[0] for name in below(cluster, "topics/a")} == {"0"}
        assert [directories(cluster, number) for number in range(3)] == [["a-0"], ["a-0"], []]

    run_admin(scenario)


@pytest.mark.row("C24", "C25")
def test_topic_without_one_of_its_partitions_gets_the_missing_number_again() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, dict.fromkeys(range(3), (0, 1)))).ok
        async with cluster.client() as client:
            await client.produce("a", [Record(value=b"old")], partition=1)
            put(cluster, f"{REQUESTS}/a/1", b"")
            await cluster.until(lambda: below(cluster, f"{REQUESTS}/a") == {})
            for total, numbers in ((3, [0, 1, 2]), (4, [0, 1, 2, 3])):
                outcomes = await client.admin.create_partitions({"a": total})
                assert outcomes["a"].ok, outcomes
                found = await client.admin.describe_topics(["a"])
                assert sorted(found["a"].partitions) == numbers
            assert [row.value async for row in client.consume("a", until_end=True)] == []

    run_admin(scenario)


@pytest.mark.row("C7", "C24", "C25")
@pytest.mark.parametrize("replicas", [(0, 2), (2,)])
def test_missing_number_is_free_when_every_broker_has_deleted_its_replica(
    replicas: tuple[int, ...],
) -> None:
    """The new partition begins with the first epoch again: an old replica would pass as one of its own."""

    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {n: (n, *replicas[1:]) for n in (0, 1)})).ok
        assert (await extend(cluster, 3, [replicas])).ok
        async with cluster.client() as client:
            await client.produce("a", [Record(value=b"old")] * 5, partition=2)
        in_sync = ",".join(map(str, replicas)).encode()
        await cluster.until(lambda: cluster.node("topics/a/2/ISR") == in_sync + b";1")
        cluster.kill_with_session(2)
        put(cluster, f"{REQUESTS}/a/2", b"")
        await cluster.until(lambda: below(cluster, f"{REQUESTS}/a") == {})
        refused = await extend(cluster, 3, [range(len(replicas))])
        assert refused.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "former partitions of topic 'a' yet: 2; start them" in refused.message
        await cluster.start(2)
        assert "a-2" not in directories(cluster, 2)
        assert (await extend(cluster, 3, [range(len(replicas))])).ok

    run_admin(scenario)


@pytest.mark.row("C21", "C24")
def test_extension_is_repeated_while_a_broker_of_the_failed_attempt_is_down() -> None:
    """A replica that never had a leader has no records: its close request blocks nothing."""

    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1)})).ok
        acting = cluster.brokers[2]
        acting.gate.hold("creation.replicas")
        more = MorePartitions("a", 2, ((2, 1),))
        at(cluster, 2, acting.admin.partitions.create_partitions([more], 1_000))
        await until_held(cluster, 2, "creation.replicas")
        cluster.kill_with_session(2)
        assert (await extend(cluster, 2, [(0, 1)])).ok
        await cluster.start(2)
        assert directories(cluster, 2) == []

    run_admin(scenario)
