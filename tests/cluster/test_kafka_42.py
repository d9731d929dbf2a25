"""KAFKA-42 on real processes: its failure table, and its six tests under their own names.

Stages are the mail's: 1 register an ISR listener, 2 start new replicas, 3 wait until they are in sync, 4 elect a
leader among them, 5 stop old replicas, 6 write the new assignment, 7 take the partition out of the admin path.
A partition moves from RAR's point of view: `cast.leader` leads it at first, `cast.newcomer` has none of it.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
from support.invariants import check_ledgers
from support.operations import NOT_STARTING, Cast, missing_replicas
from support.stage import BROKERS, Stage, Stream, eventually, running_stage

from minikafka.base.errors import ErrorCode
from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.zk import layout


@pytest.fixture(scope="module")
def shared_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    data = tmp_path_factory.mktemp("kafka-42")
    yield from running_stage(data)
    check_ledgers(data)


@pytest.fixture
async def stage(shared_stage: Stage) -> AsyncIterator[Stage]:
    try:
        yield shared_stage
    finally:
        await shared_stage.heal()


class Move:
    """Partition t-0 on its way from its replicas to others, asked for in `/admin/reassign_partitions`."""

    tp = TopicPartition("t", 0)

    def __init__(self, stage: Stage, cast: Cast, origin: Sequence[int], target: Sequence[int]):
        self.stage = stage
        self.cast = cast
        self.origin = tuple(origin)
        self.target = tuple(target)
        self.stream: Stream

    @property
    def state(self) -> LeaderAndIsr:
        found = self.stage.leadership(self.tp)
        assert found is not None
        return found

    @property
    def request(self) -> bytes | None:
        return self.stage.read(layout.REASSIGN_PARTITIONS)

    async def submit(self) -> None:
        data = layout.encode_reassignments({self.tp: self.target})
        await asyncio.to_thread(self.stage.zookeeper.create, layout.REASSIGN_PARTITIONS, data)

    async def up_to(self, step: str) -> None:
        """Submit; returns when the controller stands before the step."""
        await self.stage.cluster.hold(f"reassignment.{step}")
        await self.submit()
        assert await self.stage.cluster.held(f"reassignment.{step}") == self.cast.controller

    async def fail_over_at(self, step: str, *others: int) -> None:
        """The controller dies before the step, and others before it; the next one goes on by itself."""
        await self.up_to(step)
        for broker in (*others, self.cast.controller):
            await self.stage.kill(broker)
        await self.stage.cluster.release(f"reassignment.{step}")

    def missing(self) -> str:
        if self.request is not None:
            return "it is still asked for"
        return missing_replicas(self.stage, self.tp.topic, {0: self.target})

    async def complete(self) -> None:
        """It comes to its end, and everything acknowledged is there."""
        await eventually(lambda: not self.missing(), self.missing)
        await self.stage.cluster.start()
        await eventually(lambda: not self.missing(), self.missing)
        await self.stream.check()


@asynccontextmanager
async def moving(
    stage: Stage, cast: Cast, origin: Sequence[int], target: Sequence[int]
) -> AsyncIterator[Move]:
    """The partition as it is at first, written to from now on."""
    move = Move(stage, cast, origin, target)
    await stage.create(move.tp.topic, {0: origin})
    async with stage.stream(move.tp.topic, 1) as move.stream:
        yield move


# ---- 3. Partition reassignment failure cases


@pytest.mark.row("K5")
async def test_1_the_controller_fails_over_between_steps_1_and_2(stage: Stage) -> None:
    """The new controller reads the non-empty admin path and just restarts from scratch."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await move.up_to("A1")
        assert move.request is not None
        assert stage.directories(cast.newcomer) == [], "no new replica was started"
        await stage.kill(cast.controller)
        await stage.cluster.release("reassignment.A1")
        await move.complete()


@pytest.mark.row("K6")
async def test_2a_the_controller_fails_over_between_steps_2_and_3_and_new_replicas_lag(
    stage: Stage,
) -> None:
    """They are not in sync: it waits until they are, then resumes."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await stage.cluster.hold(NOT_STARTING, [cast.newcomer])
        await move.submit()
        assert await stage.cluster.held(NOT_STARTING) == cast.newcomer
        await stage.kill(cast.controller)
        await eventually(lambda: stage.controller() not in (None, cast.controller))
        await stage.cluster.start(cast.controller)
        assignment = stage.assignment(move.tp)
        assert assignment is not None
        assert assignment.adding == (cast.newcomer,)
        assert set(move.origin) <= set(move.state.isr)
        await stage.cluster.release(NOT_STARTING, [cast.newcomer])
        await move.complete()


@pytest.mark.row("K6")
async def test_2a_the_controller_fails_over_between_steps_2_and_3_and_new_replicas_are_in_sync(
    stage: Stage,
) -> None:
    """They are: it resumes at once."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await move.up_to("B1")
        assert set(move.target) <= set(move.state.isr)
        await stage.kill(cast.controller)
        await stage.cluster.release("reassignment.B1")
        await move.complete()


@pytest.mark.row("K7", "K3")
async def test_2b_the_broker_is_not_able_to_start_the_replicas(stage: Stage) -> None:
    """Nothing is resumed; the admin command is killed and reports it, and the move can be withdrawn and retried."""
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
            # In the order of a move that is under way: those that were to stay come first, as in Kafka.
            origin = {0: (cast.follower, cast.leader)}
            await eventually(
                lambda: not missing_replicas(stage, "t", origin),
                lambda: missing_replicas(stage, "t", origin),
            )
            assert await client.admin.reassign_partition("t", 0, move.target)
        await move.complete()


def start_command(stage: Stage, move: Move) -> subprocess.Popen[str]:
    """`minikafka reassign`, which waits for the end."""
    replicas = ",".join(map(str, move.target))
    words = ["reassign", "-t", "t", "-p", "0", "--replicas", replicas]
    return subprocess.Popen(
        [sys.executable, "-m", "minikafka", *words, "--bootstrap", stage.cluster.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.row("K8")
async def test_3_the_controller_fails_over_between_steps_4_and_5(stage: Stage) -> None:
    """The new leader is a new replica and alive: there is no election, only a new epoch (R58)."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], (cast.newcomer, cast.follower)) as move:
        await move.up_to("B4")
        leader = move.state.leader
        assert leader in move.target
        await stage.kill(cast.controller)
        await stage.cluster.release("reassignment.B4")
        await move.complete()
        assert move.state.leader == leader


@pytest.mark.row("K8")
async def test_3_the_controller_fails_over_between_steps_4_and_5_and_the_new_leader_is_dead(
    stage: Stage,
) -> None:
    """It elects the leader from amongst the live reassigned replicas."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], (cast.newcomer, cast.follower)) as move:
        await move.fail_over_at("B4", cast.newcomer)
        await eventually(lambda: move.state.leader == cast.follower, lambda: move.state)
        await stage.cluster.start()
        await move.complete()


@pytest.mark.row("K9")
async def test_4a_the_controller_fails_over_between_steps_5_and_6(stage: Stage) -> None:
    """It repeats steps 4 onwards, though the old replicas are gone already."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await move.up_to("B6")
        await eventually(lambda: stage.directories(cast.leader, "t") == [])
        assignment = stage.assignment(move.tp)
        assert assignment is not None
        assert assignment.removing == (cast.leader,)
        await stage.kill(cast.controller)
        await stage.cluster.release("reassignment.B6")
        await move.complete()


@pytest.mark.row("K10", "J6", "J7")
async def test_4b_the_broker_does_not_complete_the_leader_state_change(stage: Stage) -> None:
    """The controller does not wait; the partition is unavailable, which shows, until the broker completes it."""
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


@pytest.mark.row("K11")
async def test_5_the_controller_fails_over_between_steps_6_and_7(stage: Stage) -> None:
    """RAR equals AR: it deletes the partition from the admin path, and restarts nothing."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await move.up_to("B7")
        assert move.request is not None
        before = stage.read(layout.topic_path("t")), move.state
        await stage.kill(cast.controller)
        await stage.cluster.release("reassignment.B7")
        await eventually(lambda: move.request is None)
        assert (stage.read(layout.topic_path("t")), move.state) == before
        await move.complete()


# ---- 7. The six test cases


@pytest.mark.row("K14")
async def test_partition_reassignment_with_leader_of_the_partition_in_the_new_list_of_replicas(
    stage: Stage,
) -> None:
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[:3], (cast.controller, *cast[2:])) as move:
        before = move.state
        await move.submit()
        await move.complete()
        assert move.state.leader == before.leader
        assert move.state.leader_epoch > before.leader_epoch


@pytest.mark.row("K15")
async def test_partition_reassignment_with_leader_of_the_partition_not_in_the_new_list_of_replicas(
    stage: Stage,
) -> None:
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[:3], cast[1:]) as move:
        assert move.state.leader not in move.target
        await move.submit()
        await move.complete()


@pytest.mark.row("K16")
async def test_partition_reassignment_with_existing_assigned_replicas_not_overlapping_with_new_list_of_replicas(
    stage: Stage,
) -> None:
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[:2], cast[2:]) as move:
        await move.submit()
        await move.complete()


@pytest.mark.row("K17")
async def test_partition_reassignment_for_a_non_existing_partition(stage: Stage) -> None:
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[:2], cast[:2]) as move:
        before = stage.tree()
        unknown = {TopicPartition("t", 1): cast[2:], TopicPartition("no-such-topic", 0): cast[2:]}
        data = layout.encode_reassignments(unknown)
        await asyncio.to_thread(stage.zookeeper.create, layout.REASSIGN_PARTITIONS, data)
        await eventually(lambda: move.request is None)
        async with stage.client() as client:
            outcomes = await client.admin.alter_reassignments(unknown)
        assert {outcome.code for outcome in outcomes.values()} == {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        assert stage.tree() == before
        await move.stream.check()


@pytest.mark.row("K18")
async def test_partition_reassignment_for_a_partition_that_was_completed_upto_step_6_by_previous_controller(
    stage: Stage,
) -> None:
    """Whoever comes to rule when everything starts again marks it as completed."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await move.fail_over_at("B7", *(id_ for id_ in BROKERS if id_ != cast.controller))
        assert move.request is not None
        await stage.cluster.start()
        await move.complete()


@pytest.mark.row("K19")
async def test_partition_reassignment_for_a_partition_that_was_completed_upto_step_3_by_previous_controller(
    stage: Stage,
) -> None:
    """The next controller re-elects the leader, and completes the rest."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await move.up_to("B1")
        assert move.state.leader == cast.leader
        await stage.kill(cast.controller)
        await stage.cluster.release("reassignment.B1")
        await move.complete()
        assert move.state.leader in move.target
