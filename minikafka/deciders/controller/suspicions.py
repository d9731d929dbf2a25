"""Suspicions: brokers that have probably died, although their registrations still exist.

A broker is suspected when it refuses a connection of the controller. Its leaderships then move at once to other
ISR members, as in a controlled shutdown. The suspicion names a broker epoch. It ends with this registration, or
when the broker answers in this epoch (`SuspicionEnded`); then it was false, and has cost one election.

Invariants: a suspect is elected by no election. A leadership that no other ISR member can take stays: a suspicion
never makes a partition offline, and never causes an unclean election. A suspicion moves a partition at most once.
Replicas on a suspect stay Online, because the broker may be alive.
"""

from __future__ import annotations

import logging

from minikafka.base.model import BrokerId, TopicPartition
from minikafka.deciders.controller.elections import Election
from minikafka.deciders.controller.events import BrokerSuspected, ControllerElected, SuspicionEnded
from minikafka.deciders.controller.partition_states import PartitionStateMachine
from minikafka.deciders.controller.request_batch import Shared
from minikafka.deciders.controller.states import PartitionStatus
from minikafka.deciders.decider import Procedure

logger = logging.getLogger(__name__)


class Suspicions:
    """Begins and ends suspicions, and moves leaderships away from suspects."""

    def __init__(self, shared: Shared, partitions: PartitionStateMachine) -> None:
        self._context = shared.context
        self._batch = shared.batch
        self._partitions = partitions

    def load(self, event: ControllerElected) -> None:
        """Mark the brokers that refused a connection before this controller had read the cluster's state."""
        for broker, epoch in event.suspects.items():
            self._mark(broker, epoch, "refused the first connection of this controller")

    def begin(self, event: BrokerSuspected) -> Procedure[None]:
        """Mark the suspect, inform all brokers, and move the suspect's leaderships.

        The brokers are informed first. A leader then adds the suspect to no ISR, although a suspect that is
        alive still fetches (R24).
        """
        if self._mark(event.broker_id, event.broker_epoch, event.evidence):
            self._emit_update_metadata()
            yield from self.move_leaderships()

    def end(self, event: SuspicionEnded) -> Procedure[bool]:
        """End a false suspicion; return True if the broker was suspected in this epoch.

        The broker can be elected again, also instead of brokers that are still suspected.
        """
        context = self._context
        if context.suspects.get(event.broker_id) != event.broker_epoch:
            return False
        del context.suspects[event.broker_id]
        context.false_suspicions += 1
        logger.warning("broker %d is alive: the suspicion was false", event.broker_id)
        self._emit_update_metadata()
        yield from self._partitions.trigger_online()
        yield from self.move_leaderships()
        return True

    def move_leaderships(self) -> Procedure[None]:
        """Elect other leaders for the partitions that suspects lead, where another ISR member can take over."""
        context = self._context
        led = [
            tp for id_ in context.suspects for tp in context.led.get(id_, ()) if self._may_move(tp)
        ]
        if led:
            yield from self._partitions.handle_state_changes(
                led, PartitionStatus.ONLINE, Election.SUSPECTED
            )

    def _mark(self, broker_id: BrokerId, broker_epoch: int, evidence: str) -> bool:
        """Record a new suspicion. Return False, and record nothing, about another registration or a known suspect.

        A broker that is shutting down is not suspected, because it hands over its leaderships itself.
        """
        context = self._context
        broker = context.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            return False
        if broker_id in context.suspects or broker_id in context.shutting_down:
            return False
        context.suspects[broker_id] = broker_epoch
        context.suspicions += 1
        logger.warning("broker %d has probably died: %s", broker_id, evidence)
        return True

    def _may_move(self, tp: TopicPartition) -> bool:
        context = self._context
        return (
            any(context.may_lead(tp, replica) for replica in context.replicas(tp))
            and context.partition_status(tp) is PartitionStatus.ONLINE
            and not context.is_being_deleted(tp)
        )

    def _emit_update_metadata(self) -> None:
        self._batch.new_batch()
        self._batch.add_update_metadata(self._context.brokers, ())
        self._batch.emit()
