"""The controller as a state machine: `handle` takes an event and returns commands.

`handle` runs one procedure per event. When the procedure asks a question (a read or a write in ZooKeeper), the question
is the last command returned, and the machine `is_busy`. The next event must then be the outcome of the question, and
the procedure continues. The view of the cluster therefore never changes while a question is open, and events take
effect in the order of their arrival (D14).
Invariant: the known leadership changes only after ZooKeeper accepted the change. A machine belongs to one controller
epoch and is dropped when the epoch ends.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from minikafka.base.errors import ErrorCode
from minikafka.base.model import Broker, BrokerId, ReplicaAssignment, TopicPartition
from minikafka.deciders.controller.commands import (
    AnnounceStep,
    Command,
    DeleteIsrChanges,
    DeleteLogDirEvents,
    GiveTopicIds,
    ShutdownResponse,
    StartChannel,
    StopChannel,
    WriteAssignments,
)
from minikafka.deciders.controller.context import Context
from minikafka.deciders.controller.deletion import Deletions
from minikafka.deciders.controller.elect_leaders import ElectLeaders
from minikafka.deciders.controller.elections import Election
from minikafka.deciders.controller.events import (
    AssignmentChanged,
    BrokersChanged,
    BrokerSuspected,
    ControlledShutdownRequested,
    ControllerElected,
    DeletionsChanged,
    ElectionRequested,
    Event,
    IsrChanged,
    LeaderAndIsrAnswered,
    LogDirsFailed,
    PreferredElectionSubmitted,
    ReassignmentsRequested,
    ReassignmentsSubmitted,
    RebalanceDue,
    StopReplicaAnswered,
    SuspicionEnded,
    TopicImage,
    TopicsChanged,
    UncleanElectionEnabled,
)
from minikafka.deciders.controller.partition_states import PartitionStateMachine
from minikafka.deciders.controller.reassignment import Reassignments
from minikafka.deciders.controller.replica_states import ReplicaStateMachine
from minikafka.deciders.controller.request_batch import RequestBatch, Shared
from minikafka.deciders.controller.state_change_log import Decision, StateChangeLog, shortened
from minikafka.deciders.controller.states import PartitionStatus, ReplicaStatus
from minikafka.deciders.controller.steps import CONTROLLED_SHUTDOWN, CREATION
from minikafka.deciders.controller.suspicions import Suspicions
from minikafka.deciders.decider import Outcome, Procedure, Procedures

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The broker settings that the controller uses, under Kafka's names."""

    delete_topic_enable: bool
    leader_imbalance_per_broker_percentage: int


class ControllerMachine:
    """The state machine of one controller epoch. `context` is read-only for callers."""

    def __init__(
        self,
        controller_id: BrokerId,
        epoch: int,
        settings: ControllerSettings,
    ) -> None:
        self.context = Context(controller_id, epoch)
        self.settings = settings
        self._state_changes = StateChangeLog(controller_id, epoch)
        self._procedures = Procedures()
        self._has_started = False
        self._batch = RequestBatch(self.context, self._state_changes, self._procedures)
        shared = Shared(self.context, self._state_changes, self._batch, self._procedures)
        self._partitions = PartitionStateMachine(shared)
        self._replicas = ReplicaStateMachine(shared)
        self._reassignments = Reassignments(shared, self._partitions, self._replicas)
        self._deletions = Deletions(
            shared, self._partitions, self._replicas, enabled=settings.delete_topic_enable
        )
        self._suspicions = Suspicions(shared, self._partitions)
        self._elections = ElectLeaders(
            shared, self._partitions, settings.leader_imbalance_per_broker_percentage
        )

    @property
    def is_busy(self) -> bool:
        """True while the machine waits for the outcome of a read or write that it requested."""
        return self._procedures.are_suspended

    def preferred_imbalance_count(self) -> int:
        """Return the number of partitions that are not led by their preferred replica (D11)."""
        return self._elections.imbalance_count()

    def copy_from(self, other: ControllerMachine) -> None:
        """Copy the state of another machine, so that its decisions can be planned without changing its state.

        Raises RuntimeError while the other machine waits for an outcome.
        """
        if other.is_busy:
            raise RuntimeError(
                "a controller machine cannot be copied while it waits for an outcome"
            )
        self.context.copy_from(other.context)
        self._deletions.copy_from(other._deletions)

    def state_changes(self, tp: TopicPartition) -> list[str]:
        """Return the recent state-change log lines of the partition, oldest first."""
        return self._state_changes.lines_of(tp)

    def drain_decisions(self) -> dict[Decision, list[TopicPartition]]:
        """Return the decisions made since the last call of this method, each with its partitions."""
        return self._state_changes.drain_decisions()

    def handle(self, event: Event, now: int, cause: str = "") -> list[Command]:
        """Process the event at `now` (monotonic ms) and return its commands in order.

        If the last command is a question, the next event must be its `Outcome`. `cause`: the id of an event from
        outside. With an outcome, pass the `cause` of the event that led to the question.

        Raises RuntimeError for an outcome while no question is open, and for any other event while a question is open.
        """
        # What is known of the cluster must not change under a procedure that waits for ZooKeeper.
        if isinstance(event, Outcome) != self.is_busy:
            raise RuntimeError(
                f"the input is {type(event).__name__} while {'a' if self.is_busy else 'no'} question is open"
            )
        self._state_changes.now, self._state_changes.cause = now, cause
        if isinstance(event, Outcome):
            self._procedures.resume(event)
        else:
            self._procedures.start(self._procedure_of(event))
        assert self.is_busy or self._batch.is_empty, "a batch of requests was begun but not sent"
        return self._procedures.take()

    def _procedure_of(self, event: Event) -> Procedure[None]:  # noqa: C901, PLR0912 - one case per event
        match event:
            case ControllerElected():
                return self._on_elected(event)
            case BrokersChanged():
                return self._on_brokers_changed(event)
            case BrokerSuspected():
                return self._suspicions.begin(event)
            case SuspicionEnded():
                return self._on_suspicion_ended(event)
            case TopicsChanged():
                return self._on_topics_changed(event)
            case AssignmentChanged():
                return self._on_assignment_changed(event)
            case DeletionsChanged():
                return self._on_deletions_changed(event)
            case IsrChanged():
                return self._on_isr_changed(event)
            case LogDirsFailed():
                return self._on_log_dirs_failed(event)
            case LeaderAndIsrAnswered():
                return self._on_leader_and_isr_answered(event)
            case StopReplicaAnswered():
                return self._deletions.on_stop_replica_answered(event)
            case ControlledShutdownRequested():
                return self._on_controlled_shutdown(event)
            case ReassignmentsSubmitted():
                return self._on_reassignments_submitted(event)
            case ReassignmentsRequested():
                return self._on_reassignments_requested(event)
            case PreferredElectionSubmitted():
                return self._elections.on_submitted(event.partitions)
            case ElectionRequested():
                return self._elections.on_requested(event)
            case RebalanceDue():
                return self._elections.rebalance()
            case UncleanElectionEnabled():
                return self._on_unclean_election_enabled(event)
            case Outcome():
                raise AssertionError("an outcome begins no procedure")
            case _:
                assert_never(event)

    # Failover.

    def _on_elected(self, event: ControllerElected) -> Procedure[None]:
        """Load the cluster's state, inform all brokers, and resume unfinished work (D5).

        Brokers receive the metadata before any LeaderAndIsr (R18). Replicas on dead brokers are moved to
        Offline only after the elections. Therefore an election removes all dead replicas of a partition
        from the ISR in one write. The same happens when a broker dies (X7).
        """
        context = self.context
        for broker in event.brokers.values():
            self._add_broker(broker)
        self._suspicions.load(event)
        for topic, image in event.topics.items():
            context.add_topic(topic, image.topic_id, image.assignment)
        for tp, state in event.leadership.items():
            if tp in context.assignments:
                context.set_leadership(tp, state)
        yield from self._assign_topic_ids(event.topics)
        self._deletions.load_marks(event.deletions)
        self._has_started = True
        logger.info("Currently active brokers in the cluster: %s", sorted(context.brokers))
        logger.info("Currently shutting brokers in the cluster: %s", sorted(context.shutting_down))
        topics = shortened(sorted(context.topics), len(context.topics))
        logger.info("Current list of topics in the cluster: %s", topics)
        self._emit_update_metadata(context.brokers, context.assignments)
        yield from self._replicas.startup()
        yield from self._partitions.startup()
        yield from self._suspicions.move_leaderships()
        dead = [broker for broker in context.replica_statuses if broker not in context.brokers]
        yield from self._replicas.handle_state_changes(
            self._not_being_deleted(context.replicas_on(dead)), ReplicaStatus.OFFLINE
        )
        yield from self._reassignments.resume(event.reassignments)
        yield from self._deletions.resume()
        if event.preferred_elections is not None:
            yield from self._elections.on_submitted(event.preferred_elections)

    def shutdown(self) -> None:
        """Log that the state machines have stopped, if they were running (D10)."""
        if self._has_started:
            self._has_started = False
            logger.info("Stopped partition state machine")
            logger.info("Stopped replica state machine")

    # Brokers.

    def _on_brokers_changed(self, event: BrokersChanged) -> Procedure[None]:
        """Handle failed brokers, then started brokers, so that no election picks a dead broker.

        A broker that has registered again counts as failed and then as started (R19). A broker that has only
        changed its endpoints counts as started: requests queued for the old endpoints are sent again (R22).
        """
        known, registered = self.context.brokers, event.brokers
        started = [broker for id_, broker in registered.items() if known.get(id_) != broker]
        failed = [
            id_
            for id_ in known
            if id_ not in registered or registered[id_].epoch != known[id_].epoch
        ]
        if failed:
            self._report_failed(failed, registered)
            yield from self._on_broker_failure(failed)
        if started:
            yield from self._on_broker_startup(started)

    def _report_failed(
        self, failed: Collection[BrokerId], registered: Collection[BrokerId]
    ) -> None:
        """Log whether each failed broker has shut down or died, and whether it has started again."""
        for broker in sorted(failed):
            again = " and has started again" if broker in registered else ""
            if broker in self.context.shutting_down:
                logger.info("broker %d has shut down%s", broker, again)
            else:
                logger.warning("broker %d died%s", broker, again or ": session expired")

    def _on_broker_failure(self, dead: list[BrokerId]) -> Procedure[None]:
        """Forget dead brokers and take their replicas offline (R20)."""
        logger.info("Broker failure callback for %s", sorted(dead))
        # All of them first: an election for one dead broker must not choose another one.
        for broker in dead:
            self.context.forget_broker(broker)
            self._procedures.emit(StopChannel(broker))
        yield from self._take_offline(self.context.replicas_on(dead))

    def _take_offline(
        self, replicas: Mapping[BrokerId, Collection[TopicPartition]]
    ) -> Procedure[None]:
        """Elect new leaders for partitions led by these replicas; then remove the replicas from the ISRs."""
        context = self.context
        going = self._not_being_deleted(replicas)
        yield from self._deletions.on_replicas_lost(replicas)
        leaderless = [
            tp
            for broker, partitions in going.items()
            for tp in partitions
            if tp in context.leadership and context.leadership[tp].leader == broker
        ]
        yield from self._partitions.handle_state_changes(leaderless, PartitionStatus.OFFLINE)
        yield from self._partitions.trigger_online()
        yield from self._replicas.handle_state_changes(going, ReplicaStatus.OFFLINE)
        if not leaderless:
            self._emit_update_metadata(context.brokers, ())

    def _on_broker_startup(self, started: list[Broker]) -> Procedure[None]:
        """Send full metadata to the started brokers and the broker list to all other brokers (I4).

        Then bring replicas online, elect leaders, and continue reassignments and deletions.
        """
        context = self.context
        logger.info("New broker startup callback for %s", sorted(broker.id for broker in started))
        new = [broker.id for broker in started]
        others = [broker for broker in context.brokers if broker not in new]
        for broker in started:
            self._add_broker(broker)
        self._emit_update_metadata(others, ())
        # Before the roles of their replicas (R18).
        self._emit_update_metadata(new, context.assignments)
        yield from self._replicas.handle_state_changes(
            self._not_deleted_yet(context.replicas_on(new)), ReplicaStatus.ONLINE
        )
        yield from self._partitions.trigger_online()
        yield from self._reassignments.on_brokers_started(new)
        yield from self._deletions.resume_after_reassignments()
        yield from self._deletions.on_brokers_started(new)

    def _on_suspicion_ended(self, event: SuspicionEnded) -> Procedure[None]:
        """End a false suspicion, and continue the reassignments that waited for the broker."""
        if (yield from self._suspicions.end(event)):
            yield from self._reassignments.on_brokers_started((event.broker_id,))
            yield from self._deletions.resume_after_reassignments()

    def _add_broker(self, broker: Broker) -> None:
        self.context.add_broker(broker)
        self._procedures.emit(StartChannel(broker))

    # Topics.

    def _on_topics_changed(self, event: TopicsChanged) -> Procedure[None]:
        # A topic may be in both fields: nothing of the deleted one may be left when the new one is added.
        self._deletions.on_topics_removed(event.removed)
        self._reassignments.on_topics_removed(event.removed)
        for topic in event.removed:
            self.context.forget_topic(topic)
        created: list[TopicPartition] = []
        for topic, image in event.added.items():
            created += self._add_topic(topic, image)
        yield from self._assign_topic_ids(event.added)
        if created:
            logger.info("New topics: %s", sorted(event.added))
            yield from self._on_new_partitions(created)

    def _add_topic(self, topic: str, image: TopicImage) -> list[TopicPartition]:
        self.context.add_topic(topic, image.topic_id, image.assignment)
        return list(self.context.topics[topic])

    def _assign_topic_ids(self, topics: Mapping[str, TopicImage]) -> Procedure[None]:
        """Give ids to topics that were created without an id, before brokers learn of the topics (R69)."""
        without = [topic for topic, image in topics.items() if image.topic_id is None]
        if without:
            given = yield GiveTopicIds(self._procedures.new_token(), dict.fromkeys(without))
            self.context.topic_ids.update(given)

    def _on_assignment_changed(self, event: AssignmentChanged) -> Procedure[None]:
        """Create the added partitions (I9).

        If the topic is being deleted, remove the added partitions from the topic node instead (R65).
        """
        context = self.context
        if event.topic not in context.topics:
            return
        if event.topic in context.deletions:
            known = {tp.partition for tp in context.topics[event.topic]}
            surplus = dict.fromkeys(number for number in event.assignment if number not in known)
            if surplus:
                logger.warning("Topic %s is being deleted, no partitions are added", event.topic)
                yield WriteAssignments(self._procedures.new_token(), {event.topic: surplus})
            return
        if not event.has_id and event.topic in context.topic_ids:
            topic_id = context.topic_ids[event.topic]
            yield GiveTopicIds(self._procedures.new_token(), {event.topic: topic_id})
        added = self._assign_new(event.topic, event.assignment)
        if added:
            logger.info("New partitions: %s", ", ".join(map(str, added)))
            yield from self._on_new_partitions(added)

    def _assign_new(
        self, topic: str, assignment: Mapping[int, ReplicaAssignment]
    ) -> list[TopicPartition]:
        added = [TopicPartition(topic, partition) for partition in sorted(assignment)]
        added = [tp for tp in added if tp not in self.context.assignments]
        for tp in added:
            self.context.assign(tp, assignment[tp.partition])
        return added

    def _on_new_partitions(self, created: list[TopicPartition]) -> Procedure[None]:
        """Move new partitions and their replicas to New, then to Online (I2)."""
        replicas: dict[BrokerId, list[TopicPartition]] = {}
        for tp in created:
            for broker in self.context.replicas(tp):
                replicas.setdefault(broker, []).append(tp)
        self._emit_step(CREATION, "partitions-new", created)
        yield from self._partitions.handle_state_changes(created, PartitionStatus.NEW)
        self._emit_step(CREATION, "replicas-new", created)
        yield from self._replicas.handle_state_changes(replicas, ReplicaStatus.NEW)
        self._emit_step(CREATION, "partitions-online", created)
        yield from self._partitions.handle_state_changes(
            created, PartitionStatus.ONLINE, Election.OFFLINE
        )
        self._emit_step(CREATION, "replicas-online", created)
        yield from self._replicas.handle_state_changes(replicas, ReplicaStatus.ONLINE)

    def _on_deletions_changed(self, event: DeletionsChanged) -> Procedure[None]:
        """Delete the topics that are newly marked for deletion (L1).

        A topic whose mark was removed before its deletion began gets leader elections again.
        """
        if (yield from self._deletions.update_marks(event.topics)):
            yield from self._partitions.trigger_online()

    # Reassignments.

    def _on_reassignments_submitted(self, event: ReassignmentsSubmitted) -> Procedure[None]:
        yield from self._reassignments.on_submitted(event.targets)
        yield from self._deletions.resume_after_reassignments()

    def _on_reassignments_requested(self, event: ReassignmentsRequested) -> Procedure[None]:
        yield from self._reassignments.on_requested(event)
        yield from self._deletions.resume_after_reassignments()

    # Reports from leaders and brokers.

    def _on_isr_changed(self, event: IsrChanged) -> Procedure[None]:
        """Adopt newer ISRs that leaders wrote, inform all brokers, and delete the notifications (R26)."""
        context = self.context
        changed = []
        for tp, state in event.states.items():
            known = context.leadership.get(tp)
            if known is not None and state.state_version > known.state_version:
                context.set_leadership(tp, state)
                changed.append(tp)
        if changed:
            self._emit_update_metadata(context.brokers, changed)
        if event.notifications:
            self._procedures.emit(DeleteIsrChanges(event.notifications))
        if context.reassigning:
            yield from self._reassignments.on_isr_changed(event.states)
            yield from self._deletions.resume_after_reassignments()

    def _on_log_dirs_failed(self, event: LogDirsFailed) -> Procedure[None]:
        """Send LeaderAndIsr again to brokers that lost a log directory; their answers show the lost replicas (R67)."""
        live = [broker for broker in event.brokers if broker in self.context.brokers]
        yield from self._replicas.handle_state_changes(
            self.context.replicas_on(live), ReplicaStatus.ONLINE
        )
        self._procedures.emit(DeleteLogDirEvents(event.notifications))

    def _on_leader_and_isr_answered(self, event: LeaderAndIsrAnswered) -> Procedure[None]:
        """Take offline each replica for which the broker answered KAFKA_STORAGE_ERROR (R16).

        The log directory of such a replica has failed.
        """
        broker = self.context.brokers.get(event.broker_id)
        if broker is None or broker.epoch != event.broker_epoch:
            return
        lost = {
            tp for tp, code in event.response.partitions if code == ErrorCode.KAFKA_STORAGE_ERROR
        }
        good = {tp for tp, code in event.response.partitions if code == ErrorCode.NONE}
        before = self.context.offline_directories.get(broker.id, set())
        if lost or before:
            self.context.offline_directories[broker.id] = (before | lost) - good
        newly_lost = [tp for tp, _ in event.response.partitions if tp in lost and tp not in before]
        if newly_lost:
            logger.warning(
                "Broker %d lost %d replicas because a log directory failed",
                broker.id,
                len(newly_lost),
            )
            yield from self._take_offline({broker.id: newly_lost})

    def _on_unclean_election_enabled(self, event: UncleanElectionEnabled) -> Procedure[None]:
        """Retry the elections of New and Offline partitions of these topics (R63)."""
        yield from self._partitions.trigger_online(event.topics)

    def _on_controlled_shutdown(self, event: ControlledShutdownRequested) -> Procedure[None]:
        """Move the broker's leaderships, and remove its follower replicas from the ISRs (R23).

        The answer lists the partitions that the broker still leads. Metadata that marks the broker's
        replicas as offline is sent first. Otherwise a new leader could add the broker to the ISR again,
        because the broker still fetches (R24).
        """
        context = self.context
        broker = context.brokers.get(event.broker_id)
        if broker is None or broker.epoch != event.broker_epoch:
            error = (
                ErrorCode.BROKER_NOT_AVAILABLE if broker is None else ErrorCode.STALE_BROKER_EPOCH
            )
            self._procedures.answer(event.caller, ShutdownResponse(error))
            return
        logger.info("Shutting down broker %d", broker.id)
        context.shutting_down.add(broker.id)
        movable = [tp for tp in context.replicas_on((broker.id,))[broker.id] if self._may_move(tp)]
        self._emit_step(CONTROLLED_SHUTDOWN, "marked", movable)
        self._emit_update_metadata(context.brokers, movable)
        led = [tp for tp in movable if context.leadership[tp].leader == broker.id]
        followed = [tp for tp in movable if context.leadership[tp].leader != broker.id]
        self._emit_step(CONTROLLED_SHUTDOWN, "leaders-moved", led)
        yield from self._partitions.handle_state_changes(
            led, PartitionStatus.ONLINE, Election.CONTROLLED_SHUTDOWN
        )
        self._emit_step(CONTROLLED_SHUTDOWN, "followers-stopped", followed)
        yield from self._replicas.handle_state_changes({broker.id: followed}, ReplicaStatus.OFFLINE)
        self._emit_step(CONTROLLED_SHUTDOWN, "answered", movable)
        remaining = tuple(tp for tp in movable if context.leadership[tp].leader == broker.id)
        self._procedures.answer(event.caller, ShutdownResponse(ErrorCode.NONE, remaining))

    def _may_move(self, tp: TopicPartition) -> bool:
        context = self.context
        return (
            len(context.replicas(tp)) > 1
            and tp in context.leadership
            and not context.is_being_deleted(tp)
        )

    # Shared.

    def _not_being_deleted(
        self, replicas: Mapping[BrokerId, Iterable[TopicPartition]]
    ) -> dict[BrokerId, list[TopicPartition]]:
        """Return the replicas in `replicas` of topics whose deletion has not begun."""
        begun = self._deletions.has_begun
        return {
            broker: [tp for tp in partitions if not begun(tp)]
            for broker, partitions in replicas.items()
        }

    def _not_deleted_yet(
        self, replicas: Mapping[BrokerId, Iterable[TopicPartition]]
    ) -> dict[BrokerId, list[TopicPartition]]:
        status = self.context.replica_status
        return {
            broker: [
                tp
                for tp in partitions
                if status(tp, broker) is not ReplicaStatus.DELETION_SUCCESSFUL
            ]
            for broker, partitions in replicas.items()
        }

    def _emit_step(self, operation: str, step: str, partitions: Iterable[TopicPartition]) -> None:
        self._procedures.emit(AnnounceStep(operation, step, tuple(partitions)))

    def _emit_update_metadata(
        self, brokers: Iterable[BrokerId], partitions: Iterable[TopicPartition]
    ) -> None:
        self._batch.new_batch()
        self._batch.add_update_metadata(brokers, partitions)
        self._batch.emit()
