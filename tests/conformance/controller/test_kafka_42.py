"""The failure table of KAFKA-42: what the next controller does after a failure between two of its stages.

The machine alone with ZooKeeper in a dict, and the mail's six tests over whole brokers in memory;
tests/cluster kills real brokers at every step.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.controller_world import World
from support.memory_cluster import MemoryCluster
from support.until import until

from minikafka.base.errors import ErrorCode
from minikafka.base.model import LeaderAndIsrRequest, ReplicaAssignment, TopicPartition
from minikafka.broker.broker import Broker
from minikafka.client import Client, NewTopic
from minikafka.cluster.state import combine
from minikafka.controller.events import ReassignmentsSubmitted
from minikafka.record.batch import Record
from minikafka.rpc.messages import LEADER_AND_ISR
from minikafka.zk import layout

T0 = TopicPartition("t", 0)
TARGET = (4, 5, 6)
BOTH = [1, 2, 3, 4, 5, 6]


def stopped_at(step: str) -> World:
    """t-0 was on its way from 1,2,3 to 4,5,6 when the controller died before this step."""
    world = World(brokers=7).create("t", [1, 2, 3])
    world.submitted = {T0: TARGET}
    world.crash_at = f"reassignment.{step}"
    world.handle(ReassignmentsSubmitted({T0: TARGET}))
    if world.crash_at:
        world.expand(T0, BOTH)
    assert not world.crash_at
    return world.clear()


def finished(world: World) -> bool:
    return (
        world.topics["t"].assignment[0] == ReplicaAssignment(TARGET)
        and set(world.nodes[T0].isr) == set(TARGET)
        and world.submitted == {}
        and not world.context.reassigning
    )


def told_to_follow(world: World) -> set[int]:
    """Target brokers that heard of a leader with themselves among the replicas to come."""
    return {
        to
        for to, request in world.sent
        if to in TARGET and isinstance(request, LeaderAndIsrRequest)
        if any(p.leader == 1 and to in p.adding for p in request.partitions)
    }


@pytest.mark.row("K5")
@pytest.mark.parametrize("step", ["U2", "A1", "A2"])
def test_a_failure_between_stages_1_and_2_begins_again(step: str) -> None:
    world = stopped_at(step)
    world.start(epoch=2)
    assert world.steps == [f"reassignment.{s}" for s in ("U2", "A1", "A2")]
    assert told_to_follow(world) == set(TARGET)
    assert not finished(world)
    assert finished(world.expand(T0, BOTH))


@pytest.mark.row("K6")
def test_a_failure_between_stages_2_and_3_looks_at_the_isr_first() -> None:
    world = World(brokers=7).create("t", [1, 2, 3])
    world.submit({T0: list(TARGET)})
    world.shrink(T0, BOTH)
    world.clear().start(epoch=2)
    assert "reassignment.A2" not in world.steps, "they are in sync: nobody is started again"
    assert finished(world)


@pytest.mark.row("K6")
def test_a_failure_between_stages_2_and_3_goes_on_waiting_for_those_that_lag() -> None:
    world = World(brokers=7).create("t", [1, 2, 3])
    world.submit({T0: list(TARGET)})
    world.shrink(T0, [1, 2, 3, 4])
    world.clear().start(epoch=2)
    assert not finished(world)
    assert world.nodes[T0].leader == 1
    assert finished(world.expand(T0, BOTH))


@pytest.mark.row("K8")
def test_a_failure_between_stages_4_and_5_keeps_a_leader_that_is_a_target_and_alive() -> None:
    world = stopped_at("B4")
    leader = world.nodes[T0].leader
    assert leader in TARGET
    world.machine.decisions()
    world.start(epoch=2)
    assert [d for d in world.machine.decisions() if d.verdict == "move" and d.election] == []
    assert finished(world)
    assert world.nodes[T0].leader == leader


@pytest.mark.row("K8")
def test_a_failure_between_stages_4_and_5_elects_another_target_if_the_leader_died() -> None:
    world = stopped_at("B4")
    leader = world.nodes[T0].leader
    del world.brokers[leader]
    world.start(epoch=2)
    assert world.nodes[T0].leader in set(TARGET) - {leader}
    world.register(leader, epoch=2)
    assert finished(world.expand(T0, [*world.nodes[T0].isr, leader]))


@pytest.mark.row("K8")
def test_a_failure_before_stage_4_elects_because_the_leader_is_no_target() -> None:
    world = stopped_at("B3")
    assert world.nodes[T0].leader == 1
    world.start(epoch=2)
    assert world.nodes[T0].leader in TARGET
    assert finished(world)


@pytest.mark.row("K9")
@pytest.mark.parametrize("step", ["B5", "B6"])
def test_a_failure_between_stages_5_and_6_repeats_from_stage_4(step: str) -> None:
    world = stopped_at(step)
    world.start(epoch=2)
    again = [s for s in world.steps if s.startswith("reassignment.B")]
    assert again == [f"reassignment.B{number}" for number in range(1, 9)]
    assert finished(world)


@pytest.mark.row("K11", "X13")
def test_a_failure_between_stages_6_and_7_only_clears_the_request() -> None:
    world = stopped_at("B7")
    assert world.submitted == {T0: TARGET}
    states, assignment = dict(world.nodes), world.topics["t"]
    world.start(epoch=2)
    assert world.submitted == {}
    assert (world.nodes, world.topics["t"]) == (states, assignment)
    assert world.steps == []


@pytest.mark.row("K10", "J6", "J7")
async def test_a_leader_that_does_not_complete_shows_as_an_unavailable_partition() -> None:
    async with MemoryCluster(4) as cluster, cluster.client() as client:
        ruling = next(b for b in cluster.brokers.values() if b.controller.is_active)
        first, second, *_ = [n for n, b in cluster.brokers.items() if b is not ruling]
        await client.create_topics(NewTopic("t", assignment={0: (first, second)}))
        slow = cluster.brokers[second]
        await until(lambda: len(ruling.metadata.topics["t"][0].isr) == 2)
        slow.gate.hold(f"broker.{LEADER_AND_ISR}")
        await cluster.stop(first, controlled=False)
        await until(lambda: slow.gate.waiting)
        await until(lambda: ruling.metadata.topics["t"][0].leader == second)
        await client.create_topics(NewTopic("u", assignment={0: (ruling.config.broker_id,)}))
        seen = combine({n: b.describe() for n, b in cluster.brokers.items()})
        assert seen.partitions[T0].leader is None, "chosen, but it has not made itself leader"
        assert seen.partitions[TopicPartition("u", 0)].leader is not None
        slow.gate.release(f"broker.{LEADER_AND_ISR}")
        await until(lambda: slow.replicas.partitions[T0].is_leader)
        seen = combine({n: b.describe() for n, b in cluster.brokers.items()})
        assert seen.partitions[T0].leader == second


@pytest.mark.row("K12", "X12")
def test_what_cannot_be_is_refused_by_name_and_taken_out_of_the_path() -> None:
    world = World(brokers=4).create("t", [0, 1])
    unknown = TopicPartition("t", 9)
    refused = world.reassign({unknown: [1, 2], T0: [1, 9]})
    assert refused[unknown].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused[T0].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "9" in refused[T0].message
    world.submit({unknown: [1, 2], T0: [0, 1]})
    assert world.submitted == {}
    assert world.nodes[T0].leader_epoch == 0


# The six tests of the mail.


class Moving:
    """t-0 with records on some brokers of four; the request is written to `/admin/reassign_partitions`."""

    def __init__(self, cluster: MemoryCluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client

    async def place(self, *replicas: int) -> None:
        await self.client.create_topics(NewTopic("t", assignment={0: replicas}))
        await self.client.produce("t", [Record(-1, -1, None, b"%d" % i, ()) for i in range(40)])
        await until(lambda: len(self.ruling.metadata.topics["t"][0].isr) == len(replicas))

    @property
    def ruling(self) -> Broker:
        return next(b for b in self.cluster.brokers.values() if b.controller.is_active)

    def ask(self, *target: int, tp: TopicPartition = T0) -> None:
        asked = layout.encode_reassignments({tp: target})
        self.cluster.ensemble.put(layout.REASSIGN_PARTITIONS, asked)

    def assigned(self) -> ReplicaAssignment:
        node = self.cluster.ensemble.nodes[layout.topic_path("t")]
        return layout.decode_topic(node.data)[1][0]

    async def arrived(self, *target: int) -> int:
        """All of it is on the target brokers and nothing anywhere else; who leads."""
        there = self.cluster.ensemble.nodes
        await until(lambda: layout.REASSIGN_PARTITIONS not in there)
        assert self.assigned() == ReplicaAssignment(target)
        node = there[layout.state_path(T0)]
        state = layout.decode_state(node.data, node.version)
        assert set(state.isr) == set(target)
        for number, broker in self.cluster.brokers.items():
            await until(
                lambda b=broker, n=number: (T0 in b.replicas.logs.logs) == (n in target)  # type: ignore[misc]
            )
        async with self.cluster.client() as reader:
            rows = [row.value async for row in reader.consume("t", until_end=True)]
        assert rows == [b"%d" % i for i in range(40)]
        return state.leader

    async def fail_over(self, step: str, *target: int) -> None:
        """Ask, and end the session of the controller when it stands at the step."""
        ruling = self.ruling
        ruling.gate.hold(f"reassignment.{step}")
        self.ask(*target)
        await until(lambda: ruling.gate.waiting)
        epoch = ruling.controller.epoch
        ruling.coordination.expire()
        ruling.gate.release(f"reassignment.{step}")
        ruling.coordination.attach()
        await until(
            lambda: any(
                b.controller.is_active and b.controller.epoch > epoch
                for b in self.cluster.brokers.values()
            )
        )


@pytest.fixture
async def moving() -> AsyncIterator[Moving]:
    async with MemoryCluster(4) as cluster, cluster.client() as client:
        yield Moving(cluster, client)


@pytest.mark.row("K14")
async def test_partition_reassignment_with_leader_in_new_replicas(moving: Moving) -> None:
    await moving.place(0, 1, 2)
    moving.ask(0, 2, 3)
    assert await moving.arrived(0, 2, 3) == 0


@pytest.mark.row("K15")
async def test_partition_reassignment_with_leader_not_in_new_replicas(moving: Moving) -> None:
    await moving.place(0, 1, 2)
    moving.ask(1, 2, 3)
    assert await moving.arrived(1, 2, 3) in (1, 2)


@pytest.mark.row("K16")
async def test_partition_reassignment_non_overlapping_replicas(moving: Moving) -> None:
    await moving.place(0, 1)
    moving.ask(2, 3)
    assert await moving.arrived(2, 3) in (2, 3)


@pytest.mark.row("K17")
async def test_reassigning_non_existing_partition(moving: Moving) -> None:
    await moving.place(0, 1)
    moving.ask(2, 3, tp=TopicPartition("none", 0))
    there = moving.cluster.ensemble.nodes
    await until(lambda: layout.REASSIGN_PARTITIONS not in there)
    assert layout.topic_path("none") not in there
    assert moving.assigned() == ReplicaAssignment((0, 1))


@pytest.mark.row("K18")
async def test_resume_partition_reassignment_that_was_completed(moving: Moving) -> None:
    await moving.place(0, 1)
    await moving.fail_over("B7", 1, 2)
    assert await moving.arrived(1, 2) == 1


@pytest.mark.row("K19")
async def test_resume_partition_reassignment_before_leader_was_moved(moving: Moving) -> None:
    await moving.place(0, 1)
    await moving.fail_over("B3", 2, 3)
    assert await moving.arrived(2, 3) in (2, 3)
