"""Causes that block a group, produced on whole in-memory brokers with real coordinators, ledgers and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from support.clients.group_client import GroupClient, Member
from support.clients.transactional_client import Fenced, TransactionalProducer
from support.deciders.group_world import subscription

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Call
from minikafka.broker.ledger.reader import Line
from minikafka.broker.ledger.record import GROUP
from minikafka.broker.rpc.messages import EXPLAIN
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.tools.explain.evidence import DOWN, UP, BrokerEvidence, PartitionEvidence
from minikafka.tools.explain.finding import Finding
from minikafka.tools.explain.groups.evidence import QUIET_MS, GroupEvidence
from minikafka.tools.explain.groups.gather import collect
from minikafka.tools.explain.groups.why import explain_group
from minikafka.tools.explain.nodes import nodes_of
from minikafka.tools.explain.open_transactions import STUCK_MS
from minikafka.tools.explain.past import Past

Scenario = Callable[["Scene"], Awaitable[None]]
KEYS = {
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 1,
    "group_min_session_timeout_ms": 1_000,
    "auto_leader_rebalance_enable": False,
}


class Subscriber(Member):
    """A consumer of topic t with three partitions. As the group leader, it assigns them in turn to the members."""

    metadata = subscription("t")

    def share(self, joined: Any, number: int) -> bytes:
        mine = list(range(3)[number :: len(joined.members)])
        share: bytes = ConsumerProtocolMemberAssignment(0, [("t", mine)], b"").encode()
        return share


class Scene:
    """A cluster with the topic t. It has three partitions; the only replica of partition N is on broker N."""

    def __init__(self, cluster: MemoryCluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.members: list[GroupClient] = []

    def member(self, session_ms: int = 10_000) -> Subscriber:
        """Return a new member of the group g, which has not joined yet."""
        self.members.append(member := Subscriber(self.cluster, "g", session_ms=session_ms))
        return member

    async def sleep(self, ms: int) -> None:
        await self.cluster.clock.sleep(ms)

    async def ask(self, method: str, body: dict[str, Any]) -> Mapping[int, Any]:
        brokers = self.cluster.brokers
        return {number: await brokers[number].on_call(Call(method, body)) for number in brokers}

    async def group_lines(self, _: str) -> list[Line]:
        """Return the ledger lines about all groups."""
        return [line for line in self.cluster.history() if line["kind"] == GROUP]

    async def partition(self, tp: TopicPartition) -> PartitionEvidence:
        answers = await self.ask(EXPLAIN, {"topic": tp.topic, "partition": tp.partition})
        reader = InMemoryClient(self.cluster.ensemble)
        brokers = {
            number: BrokerEvidence(number, UP, answers[number])
            if number in answers
            else BrokerEvidence(number, DOWN)
            for number in self.cluster.storages
        }
        nodes = await nodes_of(reader, tp)
        return PartitionEvidence(tp, brokers, nodes, Past(self.cluster.history(), tp))

    async def evidence(self) -> GroupEvidence:
        """Wait until the brokers have written their ledger lines, and return what `collect` gathers about the group."""
        await self.sleep(1)
        return await collect(self, "g", self.client, self.cluster.clock)

    async def why(self) -> list[Finding]:
        """Return those findings about the group that are problems."""
        return [each for each in explain_group(await self.evidence()) if each.is_problem]

    def kill(self, number: int) -> None:
        """Kill a broker and end its session."""
        self.cluster.kill_with_session(number)

    async def coordinator(self) -> int:
        return (await self.member().find())[0]


def run(scenario: Scenario, **config: object) -> None:
    async def scene() -> None:
        async with MemoryCluster(3, **{**KEYS, **config}) as cluster, cluster.client() as client:
            replicas = {number: [number] for number in range(3)}
            await client.admin.create_topics([NewTopic("t", assignment=replicas)])
            story = Scene(cluster, client)
            await scenario(story)
            for member in story.members:
                member.close()

    run_seeded(1, scene())


def test_explanation_of_a_healthy_group_finds_no_problem() -> None:
    async def scenario(scene: Scene) -> None:
        member = scene.member()
        await member.join()
        await scene.client.produce("t", [Record(value=b"x")] * 3, partition=0)
        await member.commit_as_member({("t", 0): 3})

        assert await scene.why() == []
        evidence = await scene.evidence()
        assert evidence.headline().startswith(
            "group g: Stable, generation 1, 1 member, coordinator"
        )
        [lag] = evidence.as_json()["lags"]
        assert (lag["partition"], lag["lag"], lag["member"]) == (0, 0, member.member_id)

    run(scenario)


def test_explanation_of_a_rebalance_names_the_member_that_does_not_rejoin() -> None:
    async def scenario(scene: Scene) -> None:
        first, second = scene.member(60_000), scene.member(60_000)
        await first.join()
        joining = scene.cluster.brokers[0].tasks.spawn(second.join(), "second")
        for _ in range(3):
            await scene.sleep(3_000)
            assert await first.beat() == ErrorCode.REBALANCE_IN_PROGRESS

        [found] = await scene.why()
        joining.cancel()

        assert found.name == "rebalancing"
        [missing] = found.because
        assert missing.name == "not-rejoined"
        assert missing.text.startswith(first.member_id[:15])
        assert [cause.name for cause in missing.because] == ["heartbeats-only"]

    run(scenario)


@pytest.mark.parametrize("hours", [-5, 5])
def test_explanation_of_a_group_does_not_depend_on_the_clock_of_the_command(hours: int) -> None:
    async def scenario(scene: Scene) -> None:
        for number in scene.cluster.brokers:
            scene.cluster.clock_of(number).offset_ms = hours * 3_600_000
        for _ in range(3):
            await scene.member(1_000).join()
            await scene.sleep(1_500)

        [found] = await scene.why()
        assert found.name == "rebalance-loop"
        evidence = await scene.evidence()
        assert evidence.report is not None
        assert 0 <= evidence.wall_ms - evidence.report["since"] < 5_000

    run(scenario)


def test_explanation_of_a_rebalance_loop_blames_a_client_that_keeps_returning() -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(3):
            await scene.member(1_000).join()
            await scene.sleep(1_500)

        [found] = await scene.why()

        assert found.name == "rebalance-loop"
        assert [cause.name for cause in found.because] == ["returning-client"]
        assert "3 times session expired" in found.because[0].text

    run(scenario)


def test_explanation_of_a_partition_without_a_leader_names_the_dead_broker() -> None:
    async def scenario(scene: Scene) -> None:
        member = scene.member(600_000)
        await member.join()
        victim = (await scene.coordinator() + 1) % 3
        scene.kill(victim)
        await scene.sleep(5_000)

        [found] = await scene.why()

        assert found.name == "leader-away"
        assert f"t-{victim} has no leader that answers" in found.text
        assert member.member_id[:15] in found.text
        assert found.blocking_brokers() == {victim}

    run(scenario)


async def write(scene: Scene, *, ends: bool = False) -> TransactionalProducer:
    """Write two records to t-0 in a transaction. `ends`: commit it, and begin another one with a record."""
    producer = TransactionalProducer(scene.cluster, "pay")
    scene.members.append(producer)
    await producer.init(600_000)
    await producer.produce(TopicPartition("t", 0), b"a", b"b")
    if ends:
        await producer.end()
        await producer.produce(TopicPartition("t", 0), b"c")
    return producer


@pytest.mark.parametrize(("committed", "ends"), [(0, False), (3, True), (2, True), (None, False)])
def test_explanation_of_a_group_names_the_transaction_that_read_committed_members_wait_for(
    committed: int | None, ends: bool
) -> None:
    async def scenario(scene: Scene) -> None:
        member = scene.member(600_000)
        await member.join()
        if committed is not None:
            await member.commit_as_member({("t", 0): committed})
        await write(scene, ends=ends)
        await scene.sleep(QUIET_MS + 5_000)

        [found] = await scene.why()

        assert found.name == "held-back"
        stable = 3 if ends else 0
        assert f"the group has read t-0 up to the last stable offset {stable}, " in found.text
        assert "if its members read with read_committed" in found.text
        assert (f"if not, {member.member_id[:15]}" in found.text) is (committed is not None)
        [cause] = found.because
        assert "transactional id pay (producer" in cause.text
        assert "client tester at 127.0.0.1:" in cause.text
        assert "`minikafka transactions fence pay` aborts it now" in cause.text

    run(scenario)


def test_member_that_has_not_read_up_to_the_last_stable_offset_is_blamed_for_its_lag() -> None:
    async def scenario(scene: Scene) -> None:
        member = scene.member(600_000)
        await member.join()
        await member.commit_as_member({("t", 0): 1})
        await write(scene, ends=True)
        await scene.sleep(QUIET_MS + 5_000)

        [found] = await scene.why()

        assert (found.name, member.member_id[:15] in found.text) == ("lag-stuck", True)

    run(scenario)


def test_fencing_a_transactional_id_ends_what_a_group_waits_for() -> None:
    async def scenario(scene: Scene) -> None:
        member = scene.member(600_000)
        await member.join()
        await member.commit_as_member({("t", 0): 0})
        producer = await write(scene)
        await scene.sleep(QUIET_MS + 5_000)
        assert [found.name for found in await scene.why()] == ["held-back"]

        outcomes = await scene.client.transactions.fence(["pay", "nobody"])

        assert outcomes["pay"].ok
        assert outcomes["nobody"].code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert await scene.why() == []
        [remark] = explain_group(await scene.evidence())
        assert (remark.name, "t-0" in remark.text) == ("only-aborted", True)
        listed = await scene.client.transactions.list_transactions()
        assert [(one.transactional_id, one.state) for one in listed] == [("pay", "Empty")]
        with pytest.raises(Fenced):
            await producer.produce(TopicPartition("t", 1), b"late")

    run(scenario)


def test_offsets_in_an_open_transaction_are_explained_by_it() -> None:
    async def scenario(scene: Scene) -> None:
        member = scene.member(600_000)
        await member.join()
        producer = TransactionalProducer(scene.cluster, "copy")
        scene.members.append(producer)
        await producer.init(600_000)
        await producer.commit_offsets(member, {("t", 1): 5})
        await scene.sleep(STUCK_MS)

        [found] = await scene.why()

        assert found.name == "unstable-offsets"
        assert found.text.startswith("offsets of t-1 were committed in a transaction")
        assert "transactional id copy " in found.because[0].text

    run(scenario)


def test_explanation_of_a_group_without_coordinator_names_the_dead_broker() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.member().join()
        coordinator = await scene.coordinator()
        scene.kill(coordinator)
        await scene.sleep(5_000)

        [found] = await scene.why()

        assert found.name == "no-coordinator"
        assert "__consumer_offsets-0" in found.text
        assert found.blocking_brokers() == {coordinator}

    run(scenario, offsets_topic_replication_factor=1)


def test_explanation_of_a_refused_commit_says_why_the_member_was_removed() -> None:
    async def scenario(scene: Scene) -> None:
        zombie, other = scene.member(5_000), scene.member(300_000)
        await zombie.join()
        generation, member_id = zombie.generation, zombie.member_id
        await other.join()
        refused = await zombie.commit({("t", 0): 1}, generation, member_id)
        assert refused == {ErrorCode.UNKNOWN_MEMBER_ID}

        [found] = await scene.why()

        assert found.name == "commit-refused"
        assert "UNKNOWN_MEMBER_ID" in found.text
        [cause] = found.because
        assert (cause.name, cause.text.startswith(member_id[:15])) == ("removed-member", True)
        assert cause.text.endswith("session expired")

    run(scenario)


def test_commit_with_too_few_replicas_in_sync_is_reported() -> None:
    async def scenario(scene: Scene) -> None:
        member = scene.member(600_000)
        await member.join()
        coordinator = await scene.coordinator()
        for number in range(3):
            if number != coordinator:
                scene.kill(number)
        await scene.sleep(20_000)
        # The error makes the client look for the coordinator again, until its time limit.
        with pytest.raises(TimeoutError):
            await _commit(scene, member)

        found = {finding.name: finding for finding in await scene.why()}

        assert set(found) == {"commit-not-written", "leader-away"}
        assert "NOT_ENOUGH_REPLICAS" in found["commit-not-written"].text

    run(scenario, min_insync_replicas=2)


async def _commit(scene: Scene, member: Subscriber) -> None:
    async with asyncio.timeout(1):
        await member.commit_as_member({("t", 0): 1})


def test_explanation_of_a_growing_lag_names_the_partition_and_its_member() -> None:
    async def scenario(scene: Scene) -> None:
        member = scene.member(600_000)
        await member.join()
        for second in range(60):
            await scene.client.produce("t", [Record(value=b"x")] * 10, partition=1)
            await scene.client.produce("t", [Record(value=b"x")] * 10, partition=2)
            await member.commit_as_member({("t", 1): 3 * second, ("t", 2): 10 * second})
            await scene.sleep(1_000)

        [found] = await scene.why()

        assert found.name == "lag-grows"
        assert found.text.startswith("the lag of t-1 grows: ")
        assert "423 now" in found.text
        assert member.member_id[:15] in found.text

    run(scenario)


def test_partition_that_is_read_without_commits_is_reported_as_stuck() -> None:
    async def scenario(scene: Scene) -> None:
        member = scene.member(600_000)
        await member.join()
        await scene.client.produce("t", [Record(value=b"x")] * 10, partition=2)
        await member.commit_as_member({("t", 2): 4})
        assert await scene.why() == []
        await scene.sleep(QUIET_MS)

        [found] = await scene.why()

        assert found.name == "lag-stuck"
        assert found.text.startswith(
            "t-2 has 6 records after the committed offset 4, and no commit"
        )

    run(scenario)


def test_group_history_is_read_from_the_ledgers_of_a_dead_cluster() -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(3):
            await scene.member(1_000).join()
            await scene.sleep(1_500)
        for number in range(3):
            scene.kill(number)

        evidence = await scene.evidence()

        assert evidence.is_known
        assert evidence.headline() == "group g: no coordinator"
        found = explain_group(evidence)
        assert [finding.name for finding in found] == ["no-broker", "rebalance-loop"]
        assert found[0].blocking_brokers() == {0, 1, 2}

    run(scenario)


def test_group_that_was_never_created_is_reported_as_unknown() -> None:
    async def scenario(scene: Scene) -> None:
        assert not (await scene.evidence()).is_known
        await scene.coordinator()
        await scene.sleep(1_000)
        assert not (await scene.evidence()).is_known

    run(scenario)
