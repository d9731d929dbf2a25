"""Partition reassignment in Kafka's phases U, A and B (KIP-455), many partitions at once.

    U   write the adding and removing replicas to the topic node, and keep them in memory
    A   send the assignment to all replicas, old and new; the new ones start to follow the leader
    B   when every target replica is in the ISR: make the target the assignment, elect a leader from
        it, remove the other replicas from the ISR, stop and delete them

The progress is stored only in the topic node, so that a new controller can continue (I6). Invariants:
an old replica is removed only when all target replicas are in sync. The only in-sync replica is never
removed. Every phase can be repeated from its beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.base.model import (
    BrokerId,
    LeaderAndIsr,
    PartitionResult,
    ReplicaAssignment,
    TopicPartition,
)
from minikafka.base.names import ids
from minikafka.deciders.controller.commands import (
    AnnounceStep,
    TrimReassignments,
    UnwatchStates,
    WatchStates,
    WriteAssignments,
)
from minikafka.deciders.controller.elections import Election, Refusal
from minikafka.deciders.controller.events import ReassignmentsRequested
from minikafka.deciders.controller.leadership import Proposals, change_leadership
from minikafka.deciders.controller.partition_states import PartitionStateMachine
from minikafka.deciders.controller.replica_states import ReplicaStateMachine
from minikafka.deciders.controller.request_batch import Shared
from minikafka.deciders.controller.state_change_log import (
    PARTITION,
    REFUSE,
    Decision,
)
from minikafka.deciders.controller.states import PartitionStatus, ReplicaStatus
from minikafka.deciders.controller.steps import REASSIGNMENT
from minikafka.deciders.decider import Procedure

logger = logging.getLogger(__name__)

_NO_OTHER_LEADER = PartitionResult(
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    "The leader would be removed, and none of the kept replicas is both alive and in sync.",
)
_NOTHING: Final[Mapping[TopicPartition, tuple[BrokerId, ...]]] = {}
_UNKNOWN = PartitionResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


class Reassignments:
    """Starts, continues, replaces and cancels reassignments.

    `context.reassigning` has the partitions with a reassignment in progress.
    """

    def __init__(
        self,
        shared: Shared,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
    ) -> None:
        self._shared = shared
        self._context, self._state_changes, self._batch, self._procedures = shared
        self._partitions = partitions
        self._replicas = replicas

    # Requests.

    def resume(self, submitted: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> Procedure[None]:
        """Continue the reassignments in topic nodes after a won controller election (D18).

        Then start the reassignments in `submitted`.
        """
        in_flight = {
            tp: assignment
            for tp, assignment in self._context.assignments.items()
            if assignment.is_being_reassigned
        }
        if in_flight:
            logger.info("Resuming the reassignment of %d partitions", len(in_flight))
        yield from self._begin(in_flight)
        yield from self.on_submitted(submitted)

    def on_submitted(
        self, targets: Mapping[TopicPartition, tuple[BrokerId, ...]]
    ) -> Procedure[None]:
        """Start the reassignments that a user wrote to `/admin/reassign_partitions` (E4).

        A target in this node may contain brokers that are not alive, unlike a target in a request. The
        reassignment waits until these brokers are alive (X12).
        """
        context = self._context
        wanted, finished = {}, {}
        for tp, target in targets.items():
            refusal = self._reason_to_refuse(tp, target)
            if refusal is not None:
                self._log_refusal(tp, refusal)
                finished[tp] = target
            elif tp in context.reassigning and context.assignments[tp].target == target:
                continue
            else:
                wanted[tp] = context.assignments[tp].reassigned_to(target)
        results = yield from self._begin(wanted, {tp: targets[tp] for tp in wanted})
        for tp, result in results.items():
            if result.code is not ErrorCode.NONE or tp not in context.reassigning:
                finished[tp] = targets[tp]
        if finished:
            self._procedures.emit(TrimReassignments(finished))

    def on_requested(self, event: ReassignmentsRequested) -> Procedure[None]:
        """Start or cancel the reassignments of an AlterPartitionReassignments request; answer it (R57)."""
        context = self._context
        results: dict[TopicPartition, PartitionResult] = {}
        wanted = {}
        for tp, target in event.targets.items():
            refusal = self._reason_to_refuse(tp, target) or self._reason_to_refuse_request(
                tp, target
            )
            if refusal is not None:
                results[tp] = refusal  # not logged: a client could fill the disk with log lines
            else:
                assignment = context.assignments[tp]
                chosen = assignment.origin if target is None else target
                wanted[tp] = assignment.reassigned_to(chosen)
        # As in Kafka, the latest request replaces earlier ones. Otherwise the controller would read the replaced
        # targets in `/admin/reassign_partitions` and start them again.
        replaced = {
            tp: context.assignments[tp].target for tp in wanted if tp in context.reassigning
        }
        if replaced:
            self._procedures.emit(TrimReassignments(replaced))
        results.update((yield from self._begin(wanted)))
        self._procedures.answer(event.caller, results)

    def _reason_to_refuse(
        self, tp: TopicPartition, target: tuple[BrokerId, ...] | None
    ) -> PartitionResult | None:
        """Return the error if the reassignment is impossible; None if it is possible (K12).

        These checks apply to requests and to targets in `/admin/reassign_partitions`.
        """
        context = self._context
        if tp not in context.assignments or context.is_being_deleted(tp):
            return _UNKNOWN
        if target is None:
            target = context.assignments[tp].origin
        elif tp.topic in context.deletions:
            return _UNKNOWN
        reason = ""
        if not target:
            reason = "Empty replica list specified in partition reassignment."
        elif len(set(target)) != len(target):
            reason = f"Duplicate replica ids in partition reassignment replica list: {ids(target)}"
        elif min(target) < 0:
            reason = f"Invalid broker id in replica list: {ids(target)}"
        elif self._would_lose_records(tp, target):
            reason = (
                "Every replica in the ISR would be removed; wait until one of "
                f"{ids(target)} has joined the ISR, or add a current ISR member to the target"
            )
        return PartitionResult(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason) if reason else None

    def _would_lose_records(self, tp: TopicPartition, target: tuple[BrokerId, ...]) -> bool:
        """True if the new assignment keeps no member of the ISR.

        A replica that the current reassignment is adding is deleted at once if the new target does not
        include it. Such a replica must not be the last in-sync replica.
        """
        assignment = self._context.assignments[tp]
        state = self._context.leadership.get(tp)
        kept = assignment.reassigned_to(target).replicas
        return state is not None and not any(member in kept for member in state.isr)

    def _reason_to_refuse_request(
        self, tp: TopicPartition, target: tuple[BrokerId, ...] | None
    ) -> PartitionResult | None:
        """Return the error if a requested reassignment is refused; None if it is accepted.

        The checks in this function do not apply to targets in `/admin/reassign_partitions` (X12).
        """
        context = self._context
        assignment = context.assignments[tp]
        if target is None:
            if not assignment.is_being_reassigned:
                code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
                return PartitionResult(code, "No partition reassignment is in progress.")
            return None
        adding = assignment.reassigned_to(target).adding
        if all(broker in context.brokers for broker in adding):
            return None
        return PartitionResult(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Replica assignment has brokers that are not alive. "
            f"Replica list: {ids(adding)}, live broker list: {ids(sorted(context.brokers))}",
        )

    def _log_refusal(self, tp: TopicPartition, refusal: PartitionResult) -> None:
        message = "Refused to reassign partition %s: %s"
        self._state_changes.log(logging.ERROR, tp, message, tp, refusal.message)
        self._state_changes.record(Decision(REFUSE, REASSIGNMENT, reason=refusal.message), tp)

    # Events during a reassignment.

    def on_isr_changed(self, changed: Iterable[TopicPartition]) -> Procedure[None]:
        """Complete the reassignments whose target replicas are all in the ISR (E10)."""
        context = self._context
        complete = [tp for tp in changed if tp in context.reassigning and self._is_complete(tp)]
        if complete:
            yield from self._complete(complete)

    def on_brokers_started(self, brokers: Iterable[BrokerId]) -> Procedure[None]:
        """Continue the reassignments of partitions that have a replica on these brokers (I4)."""
        started = set(brokers)
        touched = [
            tp
            for tp in self._context.reassigning
            if started.intersection(self._context.replicas(tp))
        ]
        if touched:
            yield from self._continue(touched)

    def on_topics_removed(self, topics: Iterable[str]) -> None:
        """Drop the reassignments of topics whose nodes another program has deleted.

        Must be called before the context forgets the topics.
        """
        context = self._context
        over = {
            tp: context.assignments[tp].target
            for topic in topics
            for tp in context.topics.get(topic, ())
            if tp in context.reassigning
        }
        if over:
            self._procedures.emit(UnwatchStates(tuple(over)))
            self._procedures.emit(TrimReassignments(over))

    def _is_complete(self, tp: TopicPartition) -> bool:
        """True if every target replica is in the ISR; the ISR may have other members too (T6).

        A reassignment that adds and removes no replica is complete at once: it only changes the order of
        replicas, or cancels another reassignment.
        """
        assignment = self._context.assignments[tp]
        state = self._context.leadership.get(tp)
        return not assignment.is_being_reassigned or (
            state is not None and set(assignment.target) <= set(state.isr)
        )

    # Phase U.

    def _begin(
        self,
        wanted: Mapping[TopicPartition, ReplicaAssignment],
        submitted: Mapping[TopicPartition, tuple[BrokerId, ...]] = _NOTHING,
    ) -> Procedure[dict[TopicPartition, PartitionResult]]:
        """Run phase U, then phase A or B, for each partition in `wanted`; return a result per partition.

        A partition is skipped if its assignment does not change and no reassignment of it is in progress
        (X13). `submitted`: the targets that come from `/admin/reassign_partitions`. A reassignment to such
        a target begins only if the node still has the target.
        """
        context = self._context
        results = {tp: PartitionResult() for tp in wanted}
        changed = {tp: new for tp, new in wanted.items() if context.assignments[tp] != new}
        before = {tp: context.assignments[tp] for tp in changed}
        failed = yield from self._stop_unwanted(changed)
        unwritten = yield from self._write(
            {tp: new for tp, new in changed.items() if tp not in failed}, "U1", submitted
        )
        for tp, reason in unwritten.items():
            failed[tp] = PartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
        for tp, refusal in failed.items():
            self._log_refusal(tp, refusal)
            context.assign(tp, before[tp])
        results.update(failed)
        started = [
            tp
            for tp, new in wanted.items()
            if tp not in failed and (tp in changed or new.is_being_reassigned)
        ]
        if started:
            self._adopt_assignments(started, wanted)
        yield from self._continue(started + [tp for tp in failed if tp in context.reassigning])
        return results

    def _stop_unwanted(
        self, changed: Mapping[TopicPartition, ReplicaAssignment]
    ) -> Procedure[dict[TopicPartition, PartitionResult]]:
        """Step U3: stop the replicas that an earlier reassignment was adding and that the new one does not contain.

        U3 comes before U1. If the controller dies between these steps, the topic node still names every replica.
        The leader epoch is raised before a replica is stopped, because a broker refuses a StopReplica with a
        leader epoch that is too low (T19). If a replica to stop is the leader, any remaining replica may replace
        it. If no remaining replica can become the leader, the reassignment of the partition is refused, and all
        replicas of the partition stay. Returns refused partition -> error.
        """
        context = self._context
        unwanted = {
            tp: [broker for broker in context.replicas(tp) if broker not in new.replicas]
            for tp, new in changed.items()
        }
        partitions = [tp for tp, brokers in unwanted.items() if brokers]
        if not partitions:
            return {}
        self._emit_step("U3", partitions)
        for tp in partitions:
            context.assign(tp, replace(changed[tp], removing=()))
        refused = yield from self._lead_from_target(partitions)
        stuck = {
            tp: _NO_OTHER_LEADER
            for tp in partitions
            if tp in refused
            and tp in context.leadership
            and context.leadership[tp].leader in unwanted[tp]
        }
        going: dict[BrokerId, list[TopicPartition]] = {}
        for tp in partitions:
            if tp not in stuck:
                context.assign(tp, changed[tp])
                for broker in unwanted[tp]:
                    going.setdefault(broker, []).append(tp)
        yield from self._stop_and_delete(going)
        return stuck

    def _adopt_assignments(
        self, started: list[TopicPartition], wanted: Mapping[TopicPartition, ReplicaAssignment]
    ) -> None:
        """Step U2: keep the new assignments in memory and watch the partitions' state nodes."""
        context = self._context
        self._emit_step("U2", started)
        for tp in started:
            new = wanted[tp]
            context.assign(tp, new)
            context.reassigning[tp] = None
            message = "Reassignment of partition %s: from replicas %s to %s, adding %s, removing %s"
            self._state_changes.log(
                logging.INFO,
                tp,
                message,
                tp,
                ids(new.origin),
                ids(new.target),
                ids(new.adding),
                ids(new.removing),
            )
        self._procedures.emit(WatchStates(tuple(started)))

    # Phase A.

    def _continue(self, partitions: list[TopicPartition]) -> Procedure[None]:
        complete = [tp for tp in partitions if self._is_complete(tp)]
        waiting = [tp for tp in partitions if not self._is_complete(tp)]
        if waiting:
            yield from self._start_adding(waiting)
        if complete:
            yield from self._complete(complete)

    def _start_adding(self, partitions: list[TopicPartition]) -> Procedure[None]:
        """Steps A1 and A2: raise the leader epochs, then start the replicas that the reassignments add."""
        context = self._context
        self._emit_step("A1", partitions)
        yield from self._raise_epochs(partitions)
        self._emit_step("A2", partitions)
        new: dict[BrokerId, list[TopicPartition]] = {}
        for tp in partitions:
            for broker in context.assignments[tp].adding:
                if context.replica_status(tp, broker) is ReplicaStatus.NON_EXISTENT:
                    new.setdefault(broker, []).append(tp)
        yield from self._replicas.handle_state_changes(new, ReplicaStatus.NEW)

    def _raise_epochs(
        self, partitions: list[TopicPartition]
    ) -> Procedure[dict[TopicPartition, LeaderAndIsr | Refusal]]:
        """Raise the leader epochs and send LeaderAndIsr to all replicas (T5).

        Leaders and ISRs stay the same. Without a higher epoch, brokers would not accept the new assignment.
        """
        context = self._context

        def propose(remaining: list[TopicPartition]) -> Procedure[Proposals]:
            yield from ()
            proposals: Proposals = {tp: self._with_next_epoch(tp) for tp in remaining}
            for tp, state in proposals.items():
                if isinstance(state, LeaderAndIsr):
                    self._state_changes.record_choice(PARTITION, tp, state)
            return proposals

        self._batch.new_batch()
        results = yield from change_leadership(self._shared, partitions, propose)
        for tp, state in results.items():
            if isinstance(state, LeaderAndIsr):
                self._batch.add_leader_and_isr(context.replicas(tp), tp)
            else:
                message = "Leader epoch of partition %s was not raised: the partition %s"
                self._state_changes.log(logging.ERROR, tp, message, tp, state.value)
        self._batch.emit()
        return results

    def _with_next_epoch(self, tp: TopicPartition) -> LeaderAndIsr | Refusal:
        state = self._context.leadership.get(tp)
        if state is None:
            return Refusal.NO_STATE
        if state.controller_epoch > self._context.epoch:
            return Refusal.NEWER_CONTROLLER
        return replace(
            state, leader_epoch=state.leader_epoch + 1, controller_epoch=self._context.epoch
        )

    # Phase B.

    def _complete(self, partitions: list[TopicPartition]) -> Procedure[None]:
        """Run phase B for these partitions. A partition stays in phase A if step B3 fails for the partition.

        Step B3 fails, for example, if no target replica can become the leader.
        """
        self._emit_step("B1", partitions)
        yield from self._bring_adding_online(partitions)
        self._emit_step("B2", partitions)
        before = {tp: self._context.assignments[tp] for tp in partitions}
        for tp, assignment in before.items():
            self._context.assign(tp, ReplicaAssignment(assignment.target))
        self._emit_step("B3", partitions)
        refused = yield from self._lead_from_target(partitions)
        for tp in refused:
            self._context.assign(tp, before[tp])
        complete = [tp for tp in partitions if tp not in refused]
        if complete:
            yield from self._remove_old(complete, before)
            yield from self._finish(complete)

    def _bring_adding_online(self, partitions: list[TopicPartition]) -> Procedure[None]:
        context = self._context
        adding: dict[BrokerId, list[TopicPartition]] = {}
        for tp in partitions:
            for broker in context.assignments[tp].adding:
                if context.replica_status(tp, broker) is not ReplicaStatus.ONLINE:
                    adding.setdefault(broker, []).append(tp)
        yield from self._replicas.handle_state_changes(adding, ReplicaStatus.ONLINE)

    def _lead_from_target(self, partitions: list[TopicPartition]) -> Procedure[set[TopicPartition]]:
        """Make a target replica the leader of each partition; return the partitions that failed.

        If a live target replica already leads, only the leader epoch is raised.
        """
        context = self._context
        staying: list[TopicPartition] = []
        moving: list[TopicPartition] = []
        for tp in partitions:
            state = context.leadership.get(tp)
            stays = (
                state is not None
                and state.leader in context.assignments[tp].target
                and context.is_online(tp, state.leader)
            )
            (staying if stays else moving).append(tp)
        results = yield from self._raise_epochs(staying)
        elected = yield from self._partitions.handle_state_changes(
            moving, PartitionStatus.ONLINE, Election.REASSIGNED
        )
        return {
            tp for tp in partitions if not isinstance({**results, **elected}.get(tp), LeaderAndIsr)
        }

    def _remove_old(
        self, partitions: list[TopicPartition], before: Mapping[TopicPartition, ReplicaAssignment]
    ) -> Procedure[None]:
        """Steps B4 and B5: remove the old replicas from the ISR, then stop and delete the old replicas."""
        removed: dict[BrokerId, list[TopicPartition]] = {}
        for tp in partitions:
            for broker in before[tp].removing:
                removed.setdefault(broker, []).append(tp)
        self._emit_step("B4", partitions)
        yield from self._replicas.handle_state_changes(removed, ReplicaStatus.OFFLINE)
        self._emit_step("B5", partitions)
        yield from self._delete(removed)

    def _stop_and_delete(self, removed: Mapping[BrokerId, list[TopicPartition]]) -> Procedure[None]:
        yield from self._replicas.handle_state_changes(removed, ReplicaStatus.OFFLINE)
        yield from self._delete(removed)

    def _delete(self, removed: Mapping[BrokerId, list[TopicPartition]]) -> Procedure[None]:
        """Move removed replicas through the states of a deletion, without waiting for their brokers (L5)."""
        for target in (
            ReplicaStatus.DELETION_STARTED,
            ReplicaStatus.DELETION_SUCCESSFUL,
            ReplicaStatus.NON_EXISTENT,
        ):
            yield from self._replicas.handle_state_changes(removed, target)

    def _finish(self, partitions: list[TopicPartition]) -> Procedure[None]:
        """Steps B6 to B8: write the final assignments, end these reassignments, and inform all brokers.

        The partitions are also removed from `/admin/reassign_partitions`.
        """
        context = self._context
        final = {tp: context.assignments[tp] for tp in partitions}
        assert not any(assignment.is_being_reassigned for assignment in final.values()), final
        failed = yield from self._write(final, "B6")
        for tp, reason in failed.items():
            message = "Final assignment of partition %s was not written and will be retried: %s"
            self._state_changes.log(logging.ERROR, tp, message, tp, reason)
        done = [tp for tp in partitions if tp not in failed]
        self._emit_step("B7", done)
        for tp in done:
            context.reassigning.pop(tp, None)
            message = "Reassignment of partition %s is complete, replicas %s"
            self._state_changes.log(logging.INFO, tp, message, tp, ids(final[tp].replicas))
        self._procedures.emit(UnwatchStates(tuple(done)))
        self._procedures.emit(TrimReassignments({tp: final[tp].replicas for tp in done}))
        self._emit_step("B8", done)
        self._batch.new_batch()
        self._batch.add_update_metadata(context.brokers, done)
        self._batch.emit()

    # Shared.

    def _write(
        self,
        assignments: Mapping[TopicPartition, ReplicaAssignment],
        step: str,
        submitted: Mapping[TopicPartition, tuple[BrokerId, ...]] = _NOTHING,
    ) -> Procedure[dict[TopicPartition, str]]:
        """Write the assignments to the topic nodes; return failed partition -> reason."""
        if not assignments:
            return {}
        self._emit_step(step, assignments)
        topics: dict[str, dict[int, ReplicaAssignment | None]] = {}
        for tp, assignment in assignments.items():
            topics.setdefault(tp.topic, {})[tp.partition] = assignment
        asked = {tp: submitted[tp] for tp in assignments if tp in submitted}
        failed = yield WriteAssignments(self._procedures.new_token(), topics, asked)
        return {tp: failed[tp.topic] for tp in assignments if tp.topic in failed}

    def _emit_step(self, step: str, partitions: Iterable[TopicPartition]) -> None:
        self._procedures.emit(AnnounceStep(REASSIGNMENT, step, tuple(partitions)))
