"""Topic deletion: all replicas are stopped and deleted, then the topic's nodes in ZooKeeper (L1-L6).

A topic that is marked for deletion is ineligible while it is being reassigned, has a replica on a
dead broker, or has a replica that could not be deleted. `resume` continues the deletion when the
topic may be eligible again. Invariants: a topic's nodes are deleted after all its replicas. Its
deletion mark is never deleted before its nodes (A16). A deletion that has begun cannot be cancelled.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.deciders.controller.commands import (
    AnnounceStep,
    DeleteDeletionMarks,
    DeleteTopicNodes,
)
from minikafka.deciders.controller.context import REASSIGNMENT_IN_PROGRESS
from minikafka.deciders.controller.events import StopReplicaAnswered
from minikafka.deciders.controller.partition_states import PartitionStateMachine
from minikafka.deciders.controller.replica_states import Replicas, ReplicaStateMachine
from minikafka.deciders.controller.request_batch import Shared
from minikafka.deciders.controller.states import PartitionStatus, ReplicaStatus
from minikafka.deciders.controller.steps import DELETION
from minikafka.deciders.decider import Procedure

logger = logging.getLogger(__name__)

_BEING_DELETED: Final = (ReplicaStatus.DELETION_STARTED, ReplicaStatus.DELETION_SUCCESSFUL)
OFFLINE_REPLICAS = "offline replicas"
DELETION_FAILED = "replica deletion failure"
NODES_NOT_DELETED = "topic nodes that could not be deleted from ZooKeeper"


class Deletions:
    """Deletes the topics in `context.deletions`.

    `context.ineligible` maps each topic that cannot be deleted yet to the reason.
    """

    def __init__(
        self,
        shared: Shared,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        *,
        enabled: bool,
    ) -> None:
        self._context = shared.context
        self._batch = shared.batch
        self._procedures = shared.procedures
        self._partitions = partitions
        self._replicas = replicas
        self._enabled = enabled
        self._started: set[str] = set()
        """Topics whose deletion has begun: clients no longer see their partitions."""

    def copy_from(self, other: Deletions) -> None:
        """Copy the set of topics whose deletion has begun from another Deletions object."""
        self._started = set(other._started)

    # Deletion marks.

    def load_marks(self, marked: Collection[str]) -> None:
        """Load the topics marked for deletion, after a won controller election. They get no leader elections (L6).

        Leaders are still elected for a topic that is being reassigned, until the reassignment ends (R59).
        """
        context = self._context
        context.deletions = self._filter_deletable(marked)
        for topic in sorted(context.deletions):
            if any(context.assignments[tp].is_being_reassigned for tp in context.topics[topic]):
                context.ineligible[topic] = REASSIGNMENT_IN_PROGRESS

    def update_marks(self, marked: Collection[str]) -> Procedure[bool]:
        """Replace the set of marked topics by `marked`, and start deleting the newly marked topics (E7).

        A topic whose deletion has begun stays in the set.
        Returns True if the mark of a topic was removed before the deletion of the topic began.
        """
        context = self._context
        accepted = self._filter_deletable(marked) | {
            t for t in context.deletions if t in self._started
        }
        new, unmarked = accepted - context.deletions, context.deletions - accepted
        context.deletions = accepted
        for topic in unmarked:
            context.ineligible.pop(topic, None)
        if unmarked:
            self._emit_update_metadata(sorted(unmarked))
        if new:
            logger.info("Topics marked for deletion: %s", sorted(new))
            self._emit_step("queued", new)
            yield from self.resume(new)
        return bool(unmarked)

    def _filter_deletable(self, marked: Collection[str]) -> frozenset[str]:
        """Return the marked topics that may be deleted; delete the marks of all other topics (R65)."""
        known = frozenset(topic for topic in marked if topic in self._context.topics)
        refused = frozenset(marked) - known if self._enabled else frozenset(marked)
        if refused:
            logger.warning(
                "Removing deletion marks of topics that do not exist or may not be deleted: %s",
                sorted(refused),
            )
            self._procedures.emit(DeleteDeletionMarks(tuple(sorted(refused))))
        return known if self._enabled else frozenset()

    # Events during a deletion.

    def on_topics_removed(self, topics: Iterable[str]) -> None:
        """Delete the deletion marks of topics whose nodes another program has deleted (R65)."""
        marked = [topic for topic in topics if topic in self._context.deletions]
        self._started.difference_update(marked)
        if marked:
            self._procedures.emit(DeleteDeletionMarks(tuple(marked)))

    def has_begun(self, tp: TopicPartition) -> bool:
        """True if the topic's deletion has begun. Then only this class changes the states of the topic's replicas."""
        return tp.topic in self._started

    def resume(self, topics: Iterable[str] | None = None) -> Procedure[None]:
        """Delete the marked topics in `topics` that are not being reassigned (L3).

        `topics` None means all marked topics.
        """
        context = self._context
        chosen = context.deletions if topics is None else context.deletions.intersection(topics)
        eligible = []
        for topic in sorted(chosen):
            context.ineligible.pop(topic, None)
            if any(tp in context.reassigning for tp in context.topics[topic]):
                context.ineligible[topic] = REASSIGNMENT_IN_PROGRESS
            else:
                eligible.append(topic)
        if eligible:
            yield from self._delete(eligible)

    def resume_after_reassignments(self) -> Procedure[None]:
        """Delete the topics whose deletion waited for a reassignment that has ended (R59)."""
        waiting = [
            topic
            for topic, reason in self._context.ineligible.items()
            if reason == REASSIGNMENT_IN_PROGRESS
        ]
        if waiting:
            yield from self.resume(waiting)

    def on_brokers_started(self, brokers: Collection[BrokerId]) -> Procedure[None]:
        """Resume the deletion of the marked topics that have a replica on these brokers (X24)."""
        context = self._context
        touched = [
            topic
            for topic in context.deletions
            if any(
                broker in context.replicas(tp) for tp in context.topics[topic] for broker in brokers
            )
        ]
        if touched:
            yield from self.resume(touched)

    def on_replicas_lost(
        self, replicas: Mapping[BrokerId, Iterable[TopicPartition]]
    ) -> Procedure[None]:
        """Mark the topics of these replicas as ineligible if the deletion of the topic has begun.

        The broker or the log directory of the replicas has failed, so the replicas cannot be deleted now.
        A replica that is already deleted does not make its topic ineligible.
        """
        lost = {
            broker: [
                tp
                for tp in partitions
                if tp.topic in self._started
                and self._context.replica_status(tp, broker)
                in (ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED)
            ]
            for broker, partitions in replicas.items()
        }
        yield from self._make_ineligible(lost, OFFLINE_REPLICAS)

    def on_stop_replica_answered(self, event: StopReplicaAnswered) -> Procedure[None]:
        """Record which replicas the broker has deleted (G8).

        If all replicas of a topic are deleted, complete the topic's deletion.
        """
        context = self._context
        broker = context.brokers.get(event.broker_id)
        if broker is None or broker.epoch != event.broker_epoch:
            return
        started = [
            tp
            for tp in event.deleted
            if context.replica_status(tp, broker.id) is ReplicaStatus.DELETION_STARTED
        ]
        gone = [tp for tp in started if event.deleted[tp] == ErrorCode.NONE]
        failed = [tp for tp in started if event.deleted[tp] != ErrorCode.NONE]
        if gone:
            self._emit_step("deletion-successful", {tp.topic for tp in gone})
            yield from self._replicas.handle_state_changes(
                {broker.id: gone}, ReplicaStatus.DELETION_SUCCESSFUL
            )
        yield from self._make_ineligible({broker.id: failed}, DELETION_FAILED)
        waiting = {tp.topic for tp in gone} - context.ineligible.keys()
        if waiting:
            yield from self.resume(waiting)

    def _make_ineligible(
        self, replicas: Mapping[BrokerId, list[TopicPartition]], reason: str
    ) -> Procedure[None]:
        if not any(replicas.values()):
            return
        yield from self._replicas.handle_state_changes(replicas, ReplicaStatus.DELETION_INELIGIBLE)
        for topic in {tp.topic for partitions in replicas.values() for tp in partitions}:
            self._halt(topic, reason)

    def _halt(self, topic: str, reason: str) -> None:
        self._context.ineligible[topic] = reason
        logger.info("Halted deletion of topic %s due to %s", topic, reason)

    # The deletion.

    def _delete(self, topics: list[str]) -> Procedure[None]:
        new = [topic for topic in topics if topic not in self._started]
        if new:
            yield from self._remove_partitions(new)
        live, dead = self._split_by_reachability(topics)
        yield from self._hold_back_unreachable(dead)
        if live:
            yield from self._delete_replicas(topics, live)
        yield from self._complete([topic for topic in topics if self._is_gone(topic)])

    def _delete_replicas(
        self, topics: list[str], live: dict[BrokerId, list[TopicPartition]]
    ) -> Procedure[None]:
        """Stop the replicas on live brokers, then delete them (G7)."""
        self._emit_step("replicas-offline", topics)
        yield from self._replicas.handle_state_changes(
            self._in_status(live, ReplicaStatus.OFFLINE, negate=True), ReplicaStatus.OFFLINE
        )
        self._emit_step("deletion-started", topics)
        yield from self._replicas.handle_state_changes(
            self._in_status(live, ReplicaStatus.OFFLINE), ReplicaStatus.DELETION_STARTED
        )

    def _remove_partitions(self, topics: list[str]) -> Procedure[None]:
        """Move the topics' partitions to Offline, then to NonExistent; clients receive leader -2 (R64)."""
        self._emit_step("partitions-gone", topics)
        self._started.update(topics)
        partitions = [tp for topic in topics for tp in self._context.topics[topic]]
        yield from self._partitions.handle_state_changes(partitions, PartitionStatus.OFFLINE)
        yield from self._partitions.handle_state_changes(partitions, PartitionStatus.NON_EXISTENT)
        self._emit_update_metadata(topics)

    def _split_by_reachability(
        self, topics: list[str]
    ) -> tuple[dict[BrokerId, list[TopicPartition]], dict[BrokerId, list[TopicPartition]]]:
        """Return the replicas whose deletion has not started: the reachable and the unreachable replicas.

        Each of the two results is a mapping of broker id to partitions.
        """
        context = self._context
        live: dict[BrokerId, list[TopicPartition]] = {}
        dead: dict[BrokerId, list[TopicPartition]] = {}
        for tp in (tp for topic in topics for tp in context.topics[topic]):
            for broker in context.replicas(tp):
                if context.replica_status(tp, broker) not in _BEING_DELETED:
                    side = live if context.is_reachable(tp, broker) else dead
                    side.setdefault(broker, []).append(tp)
        return live, dead

    def _hold_back_unreachable(self, dead: dict[BrokerId, list[TopicPartition]]) -> Procedure[None]:
        """Mark topics with unreachable replicas as ineligible. Reachable replicas are still deleted."""
        fresh = self._in_status(dead, ReplicaStatus.DELETION_INELIGIBLE, negate=True)
        yield from self._replicas.handle_state_changes(
            self._in_status(fresh, ReplicaStatus.OFFLINE, negate=True), ReplicaStatus.OFFLINE
        )
        yield from self._replicas.handle_state_changes(fresh, ReplicaStatus.DELETION_INELIGIBLE)
        for topic in {tp.topic for partitions in dead.values() for tp in partitions}:
            self._halt(topic, OFFLINE_REPLICAS)

    def _in_status(
        self, replicas: Replicas, status: ReplicaStatus, *, negate: bool = False
    ) -> dict[BrokerId, list[TopicPartition]]:
        """Return the replicas that have the status; if `negate`, those that do not have the status."""
        has = self._context.replica_status
        chosen = {
            broker: [tp for tp in partitions if (has(tp, broker) is status) is not negate]
            for broker, partitions in replicas.items()
        }
        return {broker: partitions for broker, partitions in chosen.items() if partitions}

    def _complete(self, topics: list[str]) -> Procedure[None]:
        """Delete the nodes, settings and deletion marks of topics whose replicas are all deleted (A16).

        Then remove the topics from the context.
        """
        if not topics:
            return
        context = self._context
        # A replica that is left would come back as a replica of a later topic with this name.
        assert all(map(self._is_gone, topics)), topics
        self._emit_step("replicas-gone", topics)
        gone: dict[BrokerId, list[TopicPartition]] = {}
        for tp in (tp for topic in topics for tp in context.topics[topic]):
            for broker in context.replicas(tp):
                gone.setdefault(broker, []).append(tp)
        yield from self._replicas.handle_state_changes(gone, ReplicaStatus.NON_EXISTENT)
        self._emit_step("topic-gone", topics)
        failed = yield DeleteTopicNodes(self._procedures.new_token(), tuple(topics))
        for topic in topics:
            if topic in failed:
                logger.error("Topic %s not deleted: %s", topic, failed[topic])
                self._halt(topic, NODES_NOT_DELETED)
                continue
            logger.info("Deletion of topic %s successfully completed", topic)
            self._started.discard(topic)
            context.forget_topic(topic)

    # Shared.

    def _is_gone(self, topic: str) -> bool:
        context = self._context
        return all(
            context.replica_status(tp, broker) is ReplicaStatus.DELETION_SUCCESSFUL
            for tp in context.topics[topic]
            for broker in context.replicas(tp)
        )

    def _emit_update_metadata(self, topics: Iterable[str]) -> None:
        self._batch.new_batch()
        self._batch.add_update_metadata(
            self._context.brokers, [tp for topic in topics for tp in self._context.topics[topic]]
        )
        self._batch.emit()

    def _emit_step(self, step: str, topics: Iterable[str]) -> None:
        partitions = [tp for topic in topics for tp in self._context.topics[topic]]
        self._procedures.emit(AnnounceStep(DELETION, step, tuple(partitions)))
