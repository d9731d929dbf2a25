"""The replica state machine: all forty-nine transitions (G1-G13)."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
from support.deciders.controller_world import StateNodes, broker, image, run_steps, sent_to, state

from minikafka.base.errors import IllegalTransition
from minikafka.base.model import (
    LeaderAndIsrRequest,
    ReplicaAssignment,
    TopicPartition,
)
from minikafka.deciders.controller.context import Context
from minikafka.deciders.controller.elections import Refusal
from minikafka.deciders.controller.replica_states import ReplicaStateMachine
from minikafka.deciders.controller.request_batch import RequestBatch, Shared
from minikafka.deciders.controller.state_change_log import StateChangeLog
from minikafka.deciders.controller.states import ReplicaStatus
from minikafka.deciders.decider import Procedures

NEW, ONLINE, OFFLINE, STARTED, SUCCESSFUL, INELIGIBLE, NON_EXISTENT = ReplicaStatus
T0 = TopicPartition("t", 0)

LEGAL = {
    (NON_EXISTENT, NEW),
    (NEW, ONLINE),
    (ONLINE, ONLINE),
    (OFFLINE, ONLINE),
    (INELIGIBLE, ONLINE),
    (NEW, OFFLINE),
    (ONLINE, OFFLINE),
    (OFFLINE, OFFLINE),
    (INELIGIBLE, OFFLINE),
    (OFFLINE, STARTED),
    (STARTED, SUCCESSFUL),
    (STARTED, INELIGIBLE),
    (OFFLINE, INELIGIBLE),
    (SUCCESSFUL, NON_EXISTENT),
}


class Bench:
    """One state machine for t-0, with replicas on the brokers 0 to 2 and leader 0."""

    def __init__(self, isr: list[int] | None = None, leader: int = 0) -> None:
        self.context = Context(0, 1)
        for i in range(3):
            self.context.add_broker(broker(i))
        self.context.add_topic("t", bytes(16), image([0, 1, 2]).assignment)
        self.nodes = StateNodes()
        self.nodes[T0] = state(leader, isr or [0, 1, 2], epoch=5)
        self.context.set_leadership(T0, self.nodes[T0])
        self.procedures = Procedures()
        self._commands: list[Any] = []
        state_changes = StateChangeLog(0, 1)
        batch = RequestBatch(self.context, state_changes, self.procedures)
        self.machine = ReplicaStateMachine(
            Shared(self.context, state_changes, batch, self.procedures)
        )

    def move(self, subject: int, start: ReplicaStatus, target: ReplicaStatus) -> Any:
        self.context.set_replica_status(T0, subject, start)
        return run_steps(self.nodes, self.machine.handle_state_changes({subject: [T0]}, target))

    def sent(self, kind: type) -> dict[int, Any]:
        return sent_to(self.commands, kind)

    @property
    def commands(self) -> list[Any]:
        """All commands so far."""
        self._commands += self.procedures.take()
        return self._commands


@pytest.mark.row("G1", "G12", "X2", "X8", "X9")
@pytest.mark.parametrize(("start", "target"), list(itertools.product(ReplicaStatus, ReplicaStatus)))
def test_each_replica_state_transition_is_made_if_legal_and_logged_if_not(
    start: ReplicaStatus, target: ReplicaStatus, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    with caplog.at_level(logging.ERROR, "state-change"):
        failures = bench.move(1, start, target)
    if (start, target) in LEGAL:
        assert not failures
        assert bench.context.replica_status(T0, 1) is target
    else:
        assert isinstance(failures[T0, 1], IllegalTransition)
        assert bench.context.replica_status(T0, 1) is start
        assert bench.nodes[T0] == state(0, [0, 1, 2], epoch=5)
        assert not bench.commands
        assert "[Controller id=0 epoch=1]" in caplog.text


@pytest.mark.row("G2", "G3")
def test_leader_cannot_become_a_new_replica() -> None:
    bench = Bench()
    assert bench.move(0, NON_EXISTENT, NEW) == {(T0, 0): Refusal.LEADER_CANNOT_BE_NEW}
    assert bench.context.replica_status(T0, 0) is NON_EXISTENT
    assert not bench.commands


@pytest.mark.row("G4")
def test_new_replica_that_goes_online_joins_the_assignment_without_a_request() -> None:
    bench = Bench()
    bench.context.assign(T0, ReplicaAssignment((0, 1)))
    bench.move(2, NEW, ONLINE)
    assert bench.context.replicas(T0) == (0, 1, 2)
    assert not bench.commands


@pytest.mark.row("G11", "D16", "X7")
def test_startup_sets_live_replicas_online_and_dead_ones_ineligible_for_deletion() -> None:
    bench = Bench()
    bench.context.forget_broker(2)
    run_steps(bench.nodes, bench.machine.startup())
    assert [bench.context.replica_status(T0, i) for i in range(3)] == [ONLINE, ONLINE, INELIGIBLE]
    assert set(bench.sent(LeaderAndIsrRequest)) == {0, 1}
