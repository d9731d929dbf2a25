"""Results and progress of reassignments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.errors import ErrorCode
from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.client import Outcome
from minikafka.client.administration.results import Resource
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.reassign import throttle
from minikafka.tools.cli.reassign.outcome import (
    MoveResult,
    MoveState,
    measure,
    read_results,
    show_progress,
)
from minikafka.tools.cli.terminal.progress import Amount, Progress

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


async def test_reassignment_outcome_has_a_result_per_partition() -> None:
    admin = ScriptedAdmin({T0: (3, 4), T1: (1, 2), T2: (1, 2)})
    admin.paused = {5}
    await admin.alter_reassignments({T1: (4, 5), T2: (1, 5)})
    results = await read_results(admin, {T0: (3, 4), T1: (4, 5), T2: (4, 3)})
    assert [result.state for result in results.values()] == [
        MoveState.COMPLETED,
        MoveState.IN_PROGRESS,
        MoveState.DIFFERENT,
    ]
    assert results[T2].replicas == (1, 5)


async def test_replicas_in_another_order_are_not_the_target_assignment() -> None:
    admin = ScriptedAdmin({T0: (2, 1)})
    assert (await read_results(admin, {T0: (1, 2)}))[T0].state is MoveState.DIFFERENT


def test_reassignment_results_are_printed_in_the_words_of_kafkas_tool() -> None:
    done = MoveResult((3, 4), MoveState.COMPLETED)
    refused = MoveResult(
        (9,), MoveState.REJECTED, error=Outcome(ErrorCode.INVALID_REQUEST, "no broker 9")
    )
    assert done.sentence(T0) == "Reassignment of partition t-0 is completed."
    assert (
        MoveResult((3,), MoveState.IN_PROGRESS).sentence(T0).endswith("t-0 is still in progress.")
    )
    assert refused.sentence(T0).endswith("t-0 was rejected: INVALID_REQUEST: no broker 9")
    assert "its replicas are, or will be, 1,2" in MoveResult(
        (3,), MoveState.DIFFERENT, (1, 2)
    ).sentence(T0)
    assert MoveResult((3,), MoveState.DIFFERENT).sentence(T0) == "There is no partition t-0."
    assert done.as_json(T0)["replicas"] == [3, 4]
    assert (refused.as_json(T0)["state"], refused.as_json(T0)["error"]) == (
        "rejected",
        "INVALID_REQUEST",
    )


async def test_progress_of_a_reassignment_is_the_bytes_copied_to_added_replicas() -> None:
    admin = ScriptedAdmin({T0: (1, 2)})
    moving = ReplicaAssignment((1, 2)).reassigned_to((3, 4))
    admin.sizes = {(1, T0): 1000, (2, T0): 900, (3, T0): 500, (4, T0): 1200}
    assert await measure(admin, {T0: moving}, {}) == {"t-0": Amount(1500, 2000, "1.5 kB of 2.0 kB")}
    admin.paused = {4}
    assert await measure(admin, {T0: moving}, {}) == {
        "t-0": Amount(500, 2000, "broker 4 does not answer")
    }
    admin.sizes = {}
    assert (await measure(admin, {T0: moving}, {}))["t-0"].total is None


async def test_progress_of_a_throttled_reassignment_names_rate_key_and_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = ScriptedAdmin({T0: (1, 2)})
    plan = {T0: (1, 3)}
    await throttle.set_throttle(admin, plan, {T0: (1, 2)}, 5_000)
    await admin.alter_reassignments(plan)
    admin.sizes = {(1, T0): 1000, (3, T0): 500}
    with Progress(SystemClock(), "partitions moved", shown=True) as progress:
        await show_progress(admin, SystemClock(), plan, progress, ["--data", "a b"])

    def raises(key: str, broker: int) -> str:
        command = f"minikafka configs set {key}=BYTES --broker {broker} --data 'a b'"
        return f"  to raise the throttle: {command}"

    leader, follower = throttle.RATES
    assert capsys.readouterr().err.splitlines() == [
        raises(leader, 1),
        raises(leader, 2),
        raises(follower, 3),
        f"0 of 1 partitions moved: t-0 50 % (500 B of 1.0 kB, throttled to 5.0 kB/s by {leader})",
    ]


async def test_a_broker_that_does_not_answer_has_no_throttle_and_stops_no_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = ScriptedAdmin({T0: (1, 2)})
    moving = ReplicaAssignment((1, 2)).reassigned_to((1, 3))
    await throttle.set_throttle(admin, {T0: (1, 3)}, {T0: (1, 2)}, 5_000)
    answered = admin.describe_configs

    async def describe_configs(resources: Iterable[Resource]) -> Any:
        (resource,) = resources
        if resource.name == "1":
            await SystemClock().sleep(60_000)
        return await answered([resource])

    monkeypatch.setattr(admin, "describe_configs", describe_configs)
    monkeypatch.setattr(throttle, "ASK_S", 0.01)
    assert await throttle.limits(admin, {T0: moving}) == {
        T0: {
            "leader.replication.throttled.rate": {2: 5_000},
            "follower.replication.throttled.rate": {3: 5_000},
        }
    }


async def test_reassign_stops_waiting_when_all_moves_have_completed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = ScriptedAdmin({T0: (1, 2), T1: (1, 2)})
    plan = {T0: (3, 4), T1: (2, 1)}
    await admin.alter_reassignments(plan)
    with Progress(SystemClock(), "partitions moved", shown=True) as progress:
        await show_progress(admin, SystemClock(), plan, progress)
    assert admin.replicas == plan
    assert "0 of 2 partitions moved: t-0 ?, t-1 ?" in capsys.readouterr().err


async def test_reassign_stops_waiting_when_another_reassignment_replaces_the_move() -> None:
    admin = ScriptedAdmin({T0: (1, 2)})
    admin.paused = {5}
    await admin.alter_reassignments({T0: (1, 5)})
    with Progress(SystemClock(), "partitions moved", shown=False) as progress:
        await show_progress(admin, SystemClock(), {T0: (3, 4)}, progress)
    assert T0 in admin.moving
