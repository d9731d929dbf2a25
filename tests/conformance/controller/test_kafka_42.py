"""KAFKA-42: its failure cases, and its six test cases under their original names, on whole brokers in memory.

Each test runs under several schedules. The step numbers are the stages listed in `support/clusters/kafka_42.py`.
`tests/cluster/test_kafka_42.py` repeats some of the tests with real processes.
"""

from __future__ import annotations

import pytest
from support.clusters.kafka_42 import (
    all_brokers_die_at_b7,
    fails_over_after_step_3,
    fails_over_between_steps_1_and_2,
    fails_over_between_steps_2_and_3,
    fails_over_between_steps_4_and_5,
    fails_over_between_steps_5_and_6,
    fails_over_between_steps_6_and_7,
    moving,
)
from support.clusters.memory_stage import MemoryStage, on_memory_stage
from support.clusters.operations import Cast
from support.deciders.controller_world import World
from support.until import until

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.broker.rpc.messages import LEADER_AND_ISR
from minikafka.client import NewTopic
from minikafka.simulation.cluster import MemoryCluster
from minikafka.tools.cluster.observation.state import combine
from minikafka.zookeeper.nodes import layout

T0 = TopicPartition("t", 0)

# ---- 3. Partition reassignment failure cases


@pytest.mark.row("K5")
@on_memory_stage
async def test_1_the_controller_fails_over_between_steps_1_and_2(stage: MemoryStage) -> None:
    """The new controller reads the request in the admin path and starts the reassignment from the beginning."""
    await fails_over_between_steps_1_and_2(stage)


@pytest.mark.row("K6")
@on_memory_stage
async def test_2a_the_controller_fails_over_between_steps_2_and_3_with_replicas_behind(
    stage: MemoryStage,
) -> None:
    """The new controller waits until the new replicas are in sync, then continues the reassignment."""
    await fails_over_between_steps_2_and_3(stage)


@pytest.mark.row("K6")
@on_memory_stage
async def test_2a_the_controller_fails_over_between_steps_2_and_3_with_replicas_in_sync(
    stage: MemoryStage,
) -> None:
    """The new replicas are already in sync, so the new controller continues the reassignment at once."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await move.up_to("B1")
        assert set(move.target) <= set(move.state.isr)
        await stage.kill(cast.controller)
        await stage.release("reassignment.B1")
        await move.complete()


@pytest.mark.row("K8")
@on_memory_stage
async def test_3_the_controller_fails_over_between_steps_4_and_5(stage: MemoryStage) -> None:
    """The current leader is a target replica and alive, so no other leader is elected; only the epoch rises (R58)."""
    await fails_over_between_steps_4_and_5(stage)


@pytest.mark.row("K8")
@on_memory_stage
async def test_3_the_controller_fails_over_between_steps_4_and_5_with_the_leader_dead(
    stage: MemoryStage,
) -> None:
    """The new controller elects a leader among the live target replicas of the reassignment."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], (cast.newcomer, cast.follower)) as move:
        await move.fail_over_at("B4", cast.newcomer)
        await stage.eventually(lambda: move.state.leader == cast.follower, lambda: move.state)
        await stage.start()
        await move.complete()


@pytest.mark.row("K9")
@on_memory_stage
async def test_4a_the_controller_fails_over_between_steps_5_and_6(stage: MemoryStage) -> None:
    """The new controller repeats the reassignment from step 4 although the old replicas are already deleted."""
    await fails_over_between_steps_5_and_6(stage)


@pytest.mark.row("K11")
@on_memory_stage
async def test_5_the_controller_fails_over_between_steps_6_and_7(stage: MemoryStage) -> None:
    """The assignment already names the new replicas, so the new controller only deletes the admin path."""
    await fails_over_between_steps_6_and_7(stage)


@pytest.mark.row("K10", "J6", "J7")
async def test_partition_has_no_leader_while_the_elected_leader_hangs() -> None:
    async with MemoryCluster(4) as cluster, cluster.client() as client:
        controller = next(
            b for b in cluster.brokers.values() if b.capabilities.diagnostics.is_active
        )
        first, second, *_ = [n for n, b in cluster.brokers.items() if b is not controller]
        await client.create_topics(NewTopic("t", assignment={0: (first, second)}))
        slow = cluster.brokers[second]
        await until(lambda: len(controller.metadata.topics["t"][0].isr) == 2)
        slow.gate.hold(f"broker.{LEADER_AND_ISR}")
        await cluster.stop(first, controlled=False)
        await until(lambda: slow.gate.waiting)
        await until(lambda: controller.metadata.topics["t"][0].leader == second)
        await client.create_topics(NewTopic("u", assignment={0: (controller.config.broker_id,)}))
        seen = combine({n: b.describe() for n, b in cluster.brokers.items()})
        assert seen.partitions[T0].leader is None, "chosen, but it has not made itself leader"
        assert seen.partitions[TopicPartition("u", 0)].leader is not None
        slow.gate.release(f"broker.{LEADER_AND_ISR}")
        await until(lambda: slow.replicas.partitions[T0].is_leader)
        seen = combine({n: b.describe() for n, b in cluster.brokers.items()})
        assert seen.partitions[T0].leader == second


@pytest.mark.row("K12", "X12")
def test_impossible_reassignment_is_refused_and_removed_from_the_admin_node() -> None:
    world = World(brokers=4).create("t", [0, 1])
    unknown = TopicPartition("t", 9)
    refused = world.reassign({unknown: [1, 2], T0: [1, 9]})
    assert refused[unknown].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused[T0].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "9" in refused[T0].message
    world.submit({unknown: [1, 2], T0: [0, 1]})
    assert world.submitted == {}
    assert world.nodes[T0].leader_epoch == 0


def test_refused_reassignment_is_answered_with_an_error_and_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If refused requests were logged, a client could fill the disk with log lines."""
    world = World(brokers=4).create("t", [0, 1])
    caplog.clear()
    refused = world.reassign({TopicPartition("t", 9): [1, 2], T0: [1, 9]})
    assert all(result.code is not ErrorCode.NONE for result in refused.values())
    assert "reassign" not in caplog.text


# ---- 7. The six test cases


@pytest.mark.row("K14")
@on_memory_stage
async def test_partition_reassignment_with_leader_of_the_partition_in_the_new_list_of_replicas(
    stage: MemoryStage,
) -> None:
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[:3], (cast.controller, *cast[2:])) as move:
        before = move.state
        await move.submit()
        await move.complete()
        assert move.state.leader == before.leader
        assert move.state.leader_epoch > before.leader_epoch


@pytest.mark.row("K15")
@on_memory_stage
async def test_partition_reassignment_with_leader_of_the_partition_not_in_the_new_list_of_replicas(
    stage: MemoryStage,
) -> None:
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[:3], cast[1:]) as move:
        assert move.state.leader not in move.target
        await move.submit()
        await move.complete()


@pytest.mark.row("K16")
@on_memory_stage
async def test_partition_reassignment_with_existing_assigned_replicas_not_overlapping_with_new_list_of_replicas(
    stage: MemoryStage,
) -> None:
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[:2], cast[2:]) as move:
        await move.submit()
        await move.complete()


@pytest.mark.row("K17")
@on_memory_stage
async def test_partition_reassignment_for_a_non_existing_partition(stage: MemoryStage) -> None:
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[:2], cast[:2]) as move:
        before = stage.tree()
        unknown = {TopicPartition("t", 1): cast[2:], TopicPartition("no-such-topic", 0): cast[2:]}
        data = layout.encode_reassignments(unknown)
        await stage.write(layout.REASSIGN_PARTITIONS, data)
        await stage.eventually(lambda: move.request is None)
        async with stage.client() as client:
            outcomes = await client.admin.alter_reassignments(unknown)
        assert {outcome.code for outcome in outcomes.values()} == {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        assert stage.tree() == before
        await move.stream.check()


@pytest.mark.row("K18")
@on_memory_stage
async def test_partition_reassignment_for_a_partition_that_was_completed_upto_step_6_by_previous_controller(
    stage: MemoryStage,
) -> None:
    await all_brokers_die_at_b7(stage)


@pytest.mark.row("K19")
@on_memory_stage
async def test_partition_reassignment_for_a_partition_that_was_completed_upto_step_3_by_previous_controller(
    stage: MemoryStage,
) -> None:
    """The next controller elects the leader and completes the remaining steps."""
    await fails_over_after_step_3(stage)
