"""Test cases of KAFKA-42 on real processes; `tests/conformance/controller/test_kafka_42.py` has all of them in memory.

The tests kill the process of the controller between the stages of a reassignment, interrupt a `reassign` command that
cannot complete, read the cluster's state while a broker does not complete its leader change, and kill all processes at
once. A killed process closes nothing: the other brokers find its ports closed, or wait for its session to expire.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator

import pytest
from support.clusters.kafka_42 import (
    Move,
    all_brokers_die_at_b7,
    fails_over_after_step_3,
    fails_over_between_steps_1_and_2,
    fails_over_between_steps_2_and_3,
    fails_over_between_steps_4_and_5,
    fails_over_between_steps_5_and_6,
    fails_over_between_steps_6_and_7,
    moving,
)
from support.clusters.operations import NOT_STARTING, Cast, missing_replicas
from support.clusters.stage import RealStage, eventually, running_stage
from support.commands.commands import NEW_INTERPRETER
from support.ledger.invariants import check_ledgers


@pytest.fixture(scope="module")
def shared_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStage]:
    data = tmp_path_factory.mktemp("kafka-42")
    yield from running_stage(data, ends_sessions=False)
    check_ledgers(data)


@pytest.mark.row("K7", "K3")
async def test_2b_the_broker_is_not_able_to_start_the_replicas(stage: RealStage) -> None:
    """The new broker never starts its replica; the interrupted command reports that nothing was completed.

    The reassignment can then be cancelled and retried.
    """
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await stage.cluster.hold(NOT_STARTING, [cast.newcomer])
        command = start_command(stage, move)
        assert await stage.cluster.held(NOT_STARTING) == cast.newcomer
        command.send_signal(signal.SIGINT)
        told, _ = await asyncio.to_thread(command.communicate)
        assert command.returncode != 0
        assert "0 of 1 reassignments completed" in told, told
        async with stage.client() as client:
            assert list(await client.admin.list_reassignments()) == [move.tp]
            outcome = (await client.admin.alter_reassignments({move.tp: None}))[move.tp]
            assert outcome.ok, outcome
            await stage.cluster.release(NOT_STARTING, [cast.newcomer])
            # As in Kafka, after the cancellation the replicas that are also in the target come first.
            origin = {0: (cast.follower, cast.leader)}
            await eventually(
                lambda: not missing_replicas(stage, "t", origin),
                lambda: missing_replicas(stage, "t", origin),
            )
            assert await client.admin.reassign_partition("t", 0, move.target)
        await move.complete()


def start_command(stage: RealStage, move: Move) -> subprocess.Popen[str]:
    """Start `minikafka reassign`, which waits until the move is complete."""
    replicas = ",".join(map(str, move.target))
    words = ["reassign", "-t", "t", "-p", "0", "--replicas", replicas]
    return subprocess.Popen(
        [*NEW_INTERPRETER, *words, "--bootstrap", stage.cluster.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.row("K10", "J6", "J7")
async def test_4b_the_broker_does_not_complete_the_leader_state_change(stage: RealStage) -> None:
    """The controller does not wait for the new leader. No broker reports a leader until the leader change is done."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await move.up_to("B3")
        await stage.cluster.hold(NOT_STARTING, [cast.follower])
        await stage.cluster.release("reassignment.B3")
        assert await stage.cluster.held(NOT_STARTING) == cast.follower
        await eventually(lambda: move.request is None)
        assert move.state.leader == cast.follower
        seen = await stage.cluster.state()
        assert seen.leader_of("t", 0) is None
        assert seen.answers[cast.follower]["metrics"]["LeaderCount"] == 0
        await stage.cluster.release(NOT_STARTING, [cast.follower])
        assert await stage.cluster.leader_of("t", 0) == cast.follower
        await move.complete()


@pytest.mark.row("K18")
async def test_partition_reassignment_for_a_partition_that_was_completed_upto_step_6_by_previous_controller(
    stage: RealStage,
) -> None:
    await all_brokers_die_at_b7(stage)


@pytest.mark.row("K5")
async def test_1_the_controller_fails_over_between_steps_1_and_2(stage: RealStage) -> None:
    await fails_over_between_steps_1_and_2(stage)


@pytest.mark.row("K6")
async def test_2a_the_controller_fails_over_between_steps_2_and_3_with_replicas_behind(
    stage: RealStage,
) -> None:
    await fails_over_between_steps_2_and_3(stage)


@pytest.mark.row("K8")
async def test_3_the_controller_fails_over_between_steps_4_and_5(stage: RealStage) -> None:
    await fails_over_between_steps_4_and_5(stage)


@pytest.mark.row("K9")
async def test_4a_the_controller_fails_over_between_steps_5_and_6(stage: RealStage) -> None:
    await fails_over_between_steps_5_and_6(stage)


@pytest.mark.row("K11")
async def test_5_the_controller_fails_over_between_steps_6_and_7(stage: RealStage) -> None:
    await fails_over_between_steps_6_and_7(stage)


@pytest.mark.row("K19")
async def test_partition_reassignment_for_a_partition_that_was_completed_upto_step_3_by_previous_controller(
    stage: RealStage,
) -> None:
    await fails_over_after_step_3(stage)
