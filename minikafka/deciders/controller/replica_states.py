"""The 7-state machine of replicas: what each legal move writes and sends (G1-G13).

    NonExistent -> New                      sent LeaderAndIsr as a follower, if another broker leads
    New -> Online                           added to the assignment
    Online, Offline, Ineligible -> Online   sent LeaderAndIsr with the current leadership
    New, Online, Offline, Ineligible -> Offline    stopped, removed from the ISR, other replicas informed
    Offline -> DeletionStarted              stopped and deleted
    DeletionStarted -> DeletionSuccessful | DeletionIneligible;  Offline -> DeletionIneligible
    DeletionSuccessful -> NonExistent       removed from the assignment

Invariants: the last member of an ISR is never removed (R21). A removal that changes the ISR or the
leader raises the leader epoch, which fences the removed replica (X19).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from minikafka.base.errors import IllegalTransition
from minikafka.base.model import NO_LEADER, BrokerId, LeaderAndIsr, TopicPartition
from minikafka.deciders.controller.elections import Refusal
from minikafka.deciders.controller.leadership import Proposals, change_leadership
from minikafka.deciders.controller.request_batch import Shared
from minikafka.deciders.controller.state_change_log import (
    REFUSE,
    REPLICA,
    Decision,
    shortened,
)
from minikafka.deciders.controller.states import LEGAL_FROM, ReplicaStatus
from minikafka.deciders.decider import Procedure

logger = logging.getLogger(__name__)

Replicas: TypeAlias = Mapping[BrokerId, Iterable[TopicPartition]]
"""A set of replicas: broker id -> partitions of the replicas on that broker."""
Failures: TypeAlias = dict[tuple[TopicPartition, BrokerId], Refusal | IllegalTransition]


def without_replica(
    state: LeaderAndIsr, broker_id: BrokerId, controller_epoch: int
) -> LeaderAndIsr:
    """Return the next leader-and-ISR state, in which the replica is neither leader nor in the ISR.

    If the replica is the last ISR member, it stays in the ISR (R21).
    """
    leader = NO_LEADER if state.leader == broker_id else state.leader
    isr = tuple(member for member in state.isr if member != broker_id) or state.isr
    return LeaderAndIsr(leader, state.leader_epoch + 1, isr, controller_epoch, state.state_version)


class ReplicaStateMachine:
    """Moves replicas between states; each `handle_state_changes` sends one batch of requests."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._context, self._state_changes, self._batch, self._procedures = shared

    def startup(self) -> Procedure[None]:
        """Set every replica's state after a won controller election (G11).

        Live replicas become Online, and their brokers are sent LeaderAndIsr. All other replicas become
        DeletionIneligible.
        """
        live: dict[BrokerId, list[TopicPartition]] = {}
        logger.info("Initializing replica state")
        for tp, assignment in self._context.assignments.items():
            for broker in assignment.replicas:
                if self._context.is_online(tp, broker):
                    self._context.set_replica_status(tp, broker, ReplicaStatus.ONLINE)
                    live.setdefault(broker, []).append(tp)
                else:
                    self._context.set_replica_status(tp, broker, ReplicaStatus.DELETION_INELIGIBLE)
        logger.info("Triggering online replica state changes")
        yield from self.handle_state_changes(live, ReplicaStatus.ONLINE)
        by_broker = self._context.replica_statuses
        states = (
            f"{tp} on {broker} -> {status.value}"
            for broker, statuses in by_broker.items()
            for tp, status in statuses.items()
        )
        initial = shortened(states, sum(map(len, by_broker.values())))
        logger.info("Started replica state machine with initial state -> %s", initial)

    def handle_state_changes(
        self, replicas: Replicas, target: ReplicaStatus
    ) -> Procedure[Failures]:
        """Move the replicas to `target`, emit the requests, and return the failures with their reasons."""
        failures: Failures = {}
        self._batch.new_batch()
        for broker, partitions in replicas.items():
            legal = self._filter_legal(broker, partitions, target, failures)
            if target is ReplicaStatus.OFFLINE:
                yield from self._take_offline(broker, legal, failures)
            else:
                for tp in legal:
                    self._move(tp, broker, target, failures)
        self._batch.emit()
        return failures

    def _filter_legal(
        self,
        broker: BrokerId,
        partitions: Iterable[TopicPartition],
        target: ReplicaStatus,
        failures: Failures,
    ) -> list[TopicPartition]:
        legal = []
        allowed = LEGAL_FROM[target]
        for tp in partitions:
            status = self._context.replica_status(tp, broker)
            if status in allowed:
                legal.append(tp)
            else:
                subject = f"replica {broker} of partition {tp}"
                failures[tp, broker] = self._state_changes.record_illegal_move(
                    tp, subject, status, target, broker
                )
        return legal

    def _move(
        self, tp: TopicPartition, broker: BrokerId, target: ReplicaStatus, failures: Failures
    ) -> None:
        if target is ReplicaStatus.NEW:
            if not self._may_be_new(tp, broker, failures):
                return
        elif target is ReplicaStatus.ONLINE:
            self._bring_online(tp, broker)
        elif target is ReplicaStatus.DELETION_STARTED:
            self._batch.add_stop_replica(broker, tp, delete=True)
        elif target is ReplicaStatus.NON_EXISTENT:
            self._unassign(tp, broker)
        self._set_status(tp, broker, target)

    def _set_status(self, tp: TopicPartition, broker: BrokerId, target: ReplicaStatus) -> None:
        previous = self._context.replica_status(tp, broker)
        self._context.set_replica_status(tp, broker, target)
        self._state_changes.record_replica_move(tp, broker, previous, target)
        message = "Changed state of replica %d for partition %s from %s to %s"
        self._state_changes.log(
            logging.DEBUG, tp, message, broker, tp, previous.value, target.value
        )

    def _record_refusal(
        self, tp: TopicPartition, broker: BrokerId, target: ReplicaStatus, why: Refusal
    ) -> None:
        """Record for the ledger why the replica could not change to the state `target`."""
        previous = self._context.replica_status(tp, broker).value
        refused = Decision(REFUSE, REPLICA, broker, previous, target.value, reason=why.value)
        self._state_changes.record(refused, tp)

    def _may_be_new(self, tp: TopicPartition, broker: BrokerId, failures: Failures) -> bool:
        """Return True if the replica may become New; then also add its LeaderAndIsr to the batch.

        The current leader may not become New: record the failure and return False (G3). If the partition
        has no leader yet, no LeaderAndIsr is added.
        """
        state = self._context.leadership.get(tp)
        if state is None:
            return True
        if state.leader == broker:
            failures[tp, broker] = Refusal.LEADER_CANNOT_BE_NEW
            self._record_refusal(tp, broker, ReplicaStatus.NEW, Refusal.LEADER_CANNOT_BE_NEW)
            message = "Replica %d for partition %s cannot be moved to %s state: the replica %s"
            self._state_changes.log(
                logging.ERROR,
                tp,
                message,
                broker,
                tp,
                ReplicaStatus.NEW.value,
                Refusal.LEADER_CANNOT_BE_NEW.value,
            )
            return False
        self._batch.add_leader_and_isr((broker,), tp, is_new=True)
        return True

    def _bring_online(self, tp: TopicPartition, broker: BrokerId) -> None:
        """Add a New replica to the partition's assignment; send LeaderAndIsr to a replica in another state (G5).

        A New replica already received LeaderAndIsr when it became New.
        """
        if self._context.replica_status(tp, broker) is not ReplicaStatus.NEW:
            if tp in self._context.leadership:
                self._batch.add_leader_and_isr((broker,), tp)
        elif broker not in self._context.replicas(tp):
            assignment = self._context.assignments[tp]
            self._context.assign(tp, replace(assignment, replicas=(*assignment.replicas, broker)))

    def _unassign(self, tp: TopicPartition, broker: BrokerId) -> None:
        assignment = self._context.assignments[tp]
        rest = tuple(replica for replica in assignment.replicas if replica != broker)
        self._context.assign(tp, replace(assignment, replicas=rest))

    def _take_offline(
        self, broker: BrokerId, partitions: list[TopicPartition], failures: Failures
    ) -> Procedure[None]:
        """Stop the replicas, remove them from their ISRs, and inform the other replicas and clients (G6).

        If a replica is not in the ISR, nothing is written, but clients must still see it as offline (X27).
        """
        context = self._context
        for tp in partitions:
            self._batch.add_stop_replica(broker, tp, delete=False)
        changed = yield from self._remove_from_isr(broker, partitions, failures)
        for tp in partitions:
            if (tp, broker) in failures:
                continue
            if tp in changed and not context.is_being_deleted(tp):
                others = [replica for replica in context.replicas(tp) if replica != broker]
                self._batch.add_leader_and_isr(others, tp)
            else:
                self._batch.add_update_metadata(context.brokers, (tp,))
            self._set_status(tp, broker, ReplicaStatus.OFFLINE)

    def _remove_from_isr(
        self, broker: BrokerId, partitions: list[TopicPartition], failures: Failures
    ) -> Procedure[set[TopicPartition]]:
        """Remove the broker from the ISRs of the partitions; return the partitions whose ISR was written.

        Partitions whose change was refused are added to `failures`.
        """
        context = self._context

        def propose(remaining: list[TopicPartition]) -> Procedure[Proposals]:
            yield from ()
            proposals = {tp: self._propose_without(tp, broker) for tp in remaining}
            for tp, state in proposals.items():
                if isinstance(state, LeaderAndIsr):
                    self._state_changes.record_choice(REPLICA, tp, state, replica=broker)
            return proposals

        led = [tp for tp in partitions if tp in context.leadership]
        results = yield from change_leadership(self._shared, led, propose)
        for tp, result in results.items():
            if isinstance(result, Refusal):
                failures[tp, broker] = result
                self._record_refusal(tp, broker, ReplicaStatus.OFFLINE, result)
                message = (
                    "Failed to remove replica %d from the ISR of partition %s: the partition %s"
                )
                self._state_changes.log(logging.ERROR, tp, message, broker, tp, result.value)
        return {tp for tp in results if (tp, broker) not in failures}

    def _propose_without(
        self, tp: TopicPartition, broker: BrokerId
    ) -> LeaderAndIsr | Refusal | None:
        """Return the next leader-and-ISR state, without the replica, or the reason to refuse the change.

        Return None if no change is needed: the replica is not in the ISR and cannot rejoin the ISR.
        """
        current = self._context.leadership[tp]
        if current.controller_epoch > self._context.epoch:
            return Refusal.NEWER_CONTROLLER
        shrunk = without_replica(current, broker, self._context.epoch)
        if (shrunk.leader, shrunk.isr) != (current.leader, current.isr) or self._may_rejoin_isr(
            tp, broker
        ):
            return shrunk
        return None

    def _may_rejoin_isr(self, tp: TopicPartition, broker: BrokerId) -> bool:
        """True if the leader could add the replica to the ISR again while the replica's broker shuts down.

        The controller must then raise the leader epoch, so that the leader refuses the replica's fetches and the
        replica is not in the ISR when its broker exits (R24).
        """
        return (
            broker in self._context.shutting_down
            and self._context.leadership[tp].leader not in (NO_LEADER, broker)
            and self._context.replica_status(tp, broker) is not ReplicaStatus.OFFLINE
        )
