"""The partition state machine: all sixteen transitions (F1-F12)."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
from support.deciders.controller_world import StateNodes, broker, image, run_steps, sent_to, state

from minikafka.base.errors import IllegalTransition
from minikafka.base.model import (
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)
from minikafka.deciders.controller.context import Context
from minikafka.deciders.controller.elections import Election
from minikafka.deciders.controller.partition_states import PartitionStateMachine
from minikafka.deciders.controller.request_batch import RequestBatch, Shared
from minikafka.deciders.controller.state_change_log import StateChangeLog
from minikafka.deciders.controller.states import PartitionStatus
from minikafka.deciders.decider import Procedures

NON_EXISTENT, NEW, ONLINE, OFFLINE = PartitionStatus
T0 = TopicPartition("t", 0)

LEGAL = {
    (NON_EXISTENT, NEW),
    (NEW, ONLINE),
    (ONLINE, ONLINE),
    (OFFLINE, ONLINE),
    (NEW, OFFLINE),
    (ONLINE, OFFLINE),
    (OFFLINE, OFFLINE),
    (OFFLINE, NON_EXISTENT),
}


class Bench:
    """One state machine for t-0, with a replica on each of the brokers 0 to 2."""

    def __init__(self) -> None:
        self.context = Context(0, 1)
        for i in range(3):
            self.context.add_broker(broker(i))
        self.context.add_topic("t", bytes(16), image([0, 1, 2]).assignment)
        self.nodes = StateNodes()
        self.procedures = Procedures()
        self._commands: list[Any] = []
        state_changes = StateChangeLog(0, 1)
        batch = RequestBatch(self.context, state_changes, self.procedures)
        self.machine = PartitionStateMachine(
            Shared(self.context, state_changes, batch, self.procedures)
        )

    def begin(self, status: PartitionStatus) -> None:
        if status in (ONLINE, OFFLINE):
            self.nodes[T0] = state(0, [0, 1, 2])
            self.context.set_leadership(T0, self.nodes[T0])
        self.context.set_partition_status(T0, status)

    def move(self, target: PartitionStatus, election: Election | None = None) -> dict:  # type: ignore[type-arg]
        if target is ONLINE and election is None:
            election = Election.OFFLINE
        return run_steps(self.nodes, self.machine.handle_state_changes([T0], target, election))

    def sent(self, kind: type) -> dict[int, Any]:
        return sent_to(self.commands, kind)

    @property
    def commands(self) -> list[Any]:
        """All commands so far."""
        self._commands += self.procedures.take()
        return self._commands


@pytest.mark.row("F1", "F2", "F11", "K13")
@pytest.mark.parametrize(
    ("start", "target"), list(itertools.product(PartitionStatus, PartitionStatus))
)
def test_each_partition_state_transition_is_made_if_legal_and_logged_if_not(
    start: PartitionStatus, target: PartitionStatus, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.begin(start)
    with caplog.at_level(logging.ERROR, "state-change"):
        results = bench.move(target)
    if (start, target) in LEGAL:
        assert bench.context.partition_status(T0) is target
        assert not isinstance(results.get(T0), IllegalTransition)
    else:
        assert bench.context.partition_status(T0) is start
        assert isinstance(results[T0], IllegalTransition)
        assert start.value in str(results[T0])
        assert target.value in str(results[T0])
        assert "[Controller id=0 epoch=1]" in caplog.text
        assert not bench.commands
        assert not bench.nodes.keys() - {T0}


def test_error_of_an_illegal_transition_contains_the_state_changes_so_far() -> None:
    bench = Bench()
    bench.move(NEW)
    bench.move(ONLINE)
    error = bench.move(NEW)[T0]
    assert "state from NonExistentPartition to NewPartition with assigned replicas 0,1,2" in str(
        error
    )
    assert "state from NewPartition to OnlinePartition with state LeaderAndIsr(leader=0" in str(
        error
    )


@pytest.mark.row("F9", "X25")
def test_illegal_transition_of_one_partition_does_not_block_another_partition() -> None:
    bench = Bench()
    other = TopicPartition("t", 1)
    bench.context.assign(other, ReplicaAssignment((1, 2)))
    bench.context.set_partition_status(other, NEW)
    steps = bench.machine.handle_state_changes([T0, other], ONLINE, Election.OFFLINE)
    results = run_steps(bench.nodes, steps)
    assert isinstance(results[T0], IllegalTransition)
    assert bench.context.leadership[other].leader == 1


@pytest.mark.row("F9")
def test_election_type_is_required_to_go_online_and_refused_for_other_states() -> None:
    bench = Bench()
    with pytest.raises(ValueError, match="OnlinePartition"):
        run_steps(StateNodes(), bench.machine.handle_state_changes([T0], NEW, Election.OFFLINE))
    with pytest.raises(ValueError, match="OnlinePartition"):
        run_steps(StateNodes(), bench.machine.handle_state_changes([T0], ONLINE))


@pytest.mark.row("F7", "D17")
@pytest.mark.parametrize(
    ("leadership", "status"),
    [(None, NEW), (state(0, [0, 1]), ONLINE), (state(7, [7]), OFFLINE), (state(-1, [1]), OFFLINE)],
)
def test_startup_derives_the_partition_state_from_the_leadership(
    leadership: LeaderAndIsr | None, status: PartitionStatus
) -> None:
    bench = Bench()
    # Topics marked for deletion get no election, so the derived state stays visible.
    bench.context.deletions = frozenset({"t"})
    if leadership:
        bench.context.set_leadership(T0, leadership)
    run_steps(bench.nodes, bench.machine.startup())
    assert bench.context.partition_status(T0) is status
    assert not bench.nodes
