"""The 4-state machine of partitions: what each legal move writes and sends (F1-F12).

    NonExistent -> New            assignment known, no leader yet
    New -> Online                 first candidate leads, ISR is all candidates; node created
    Online, Offline -> Online     a leader is elected (`elections.py`); node written by compare-and-set
    New, Online, Offline -> Offline     state recorded, nothing written
    Offline -> NonExistent              state recorded, nothing written

Invariant: a partition becomes Online only after ZooKeeper accepted its leader. If the change of one
partition fails, this partition keeps its state, and the other partitions of the batch are still changed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias

from minikafka.base.errors import IllegalTransition
from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.base.names import ids
from minikafka.deciders.controller import elections
from minikafka.deciders.controller.commands import (
    NO_NODE,
    ElectionSettings,
    ReadElectionSettings,
    ReadLeaderAndIsr,
)
from minikafka.deciders.controller.elections import ChosenLeader, Election, Refusal, Verdict
from minikafka.deciders.controller.leadership import LeadershipResults, Proposals, change_leadership
from minikafka.deciders.controller.request_batch import Shared
from minikafka.deciders.controller.state_change_log import (
    MOVE,
    PARTITION,
    REFUSE,
    Decision,
    describe,
    shortened,
)
from minikafka.deciders.controller.states import LEGAL_FROM, PartitionStatus
from minikafka.deciders.decider import Procedure

logger = logging.getLogger(__name__)

_REFUSED_FOR_ISR: Final = frozenset(
    {
        Refusal.NO_REPLICA_ONLINE,
        Refusal.PREFERRED_NOT_AVAILABLE,
        Refusal.NO_REASSIGNED_REPLICA_IN_SYNC,
        Refusal.NO_OTHER_REPLICA_IN_SYNC,
        Refusal.ONLY_SUSPECTS_IN_SYNC,
    }
)
"""Refusals that may no longer hold if the ISR in ZooKeeper is newer than the known ISR."""

_DEFAULTS: Final = ElectionSettings(False, 1)
"""Settings of a topic in an election that does not depend on them."""

Results: TypeAlias = dict[TopicPartition, LeaderAndIsr | Refusal | IllegalTransition]
"""Partition -> result of a change of state.

For a change to Online, the result is the new leadership or the reason for failure (X25). For other
changes, only illegal transitions have a result.
"""


class PartitionStateMachine:
    """Moves partitions between states; each `handle_state_changes` sends one batch of requests."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._context, self._state_changes, self._batch, self._procedures = shared

    def startup(self) -> Procedure[None]:
        """Set every partition's state after a won controller election (F7).

        Then elect leaders for the partitions without a live leader.
        """
        context = self._context
        logger.info("Initializing partition state")
        for tp in context.assignments:
            state = context.leadership.get(tp)
            if state is None:
                status = PartitionStatus.NEW
            elif context.is_online(tp, state.leader):
                status = PartitionStatus.ONLINE
            else:
                status = PartitionStatus.OFFLINE
            context.set_partition_status(tp, status)
        logger.info("Triggering online partition state changes")
        yield from self.trigger_online()
        statuses = context.partition_statuses
        states = (f"{tp} -> {status.value}" for tp, status in statuses.items())
        initial = shortened(states, len(statuses))
        logger.info("Started partition state machine with initial state -> %s", initial)

    def trigger_online(self, topics: Collection[str] | None = None) -> Procedure[Results]:
        """Hold offline elections for the New and Offline partitions of `topics`, or of all topics if None (F8).

        Partitions of topics that are being deleted are skipped.
        """
        waiting = [
            tp
            for tp in self._context.unavailable
            if not self._context.is_being_deleted(tp) and (topics is None or tp.topic in topics)
        ]
        return (
            yield from self.handle_state_changes(waiting, PartitionStatus.ONLINE, Election.OFFLINE)
        )

    def handle_state_changes(
        self,
        partitions: Iterable[TopicPartition],
        target: PartitionStatus,
        election: Election | None = None,
    ) -> Procedure[Results]:
        """Move the partitions to `target`, emit the requests, and return the results (F9).

        `election` must be given if and only if the target is Online; raises ValueError otherwise.
        """
        if (target is PartitionStatus.ONLINE) != (election is not None):
            raise ValueError(
                "an election must be given if and only if the target is OnlinePartition"
            )
        results: Results = {}
        legal = self._filter_legal(partitions, target, results)
        self._batch.new_batch()
        if election is not None:
            results.update((yield from self._bring_online(legal, election)))
        else:
            for tp in legal:
                self._set_status(tp, target)
        self._batch.emit()
        return results

    def _filter_legal(
        self, partitions: Iterable[TopicPartition], target: PartitionStatus, results: Results
    ) -> list[TopicPartition]:
        legal = []
        for tp in partitions:
            status = self._context.partition_status(tp)
            if status in LEGAL_FROM[target]:
                legal.append(tp)
            else:
                results[tp] = self._state_changes.record_illegal_move(
                    tp, f"partition {tp}", status, target
                )
        return legal

    def _set_status(self, tp: TopicPartition, target: PartitionStatus) -> None:
        previous = self._context.partition_status(tp)
        self._context.set_partition_status(tp, target)
        self._state_changes.record(
            Decision(MOVE, PARTITION, source=previous.value, target=target.value), tp
        )
        if target is PartitionStatus.NEW:
            replicas = ids(self._context.replicas(tp))
            message = "Changed partition %s state from %s to %s with assigned replicas %s"
            self._state_changes.log(
                logging.INFO, tp, message, tp, previous.value, target.value, replicas
            )
        else:
            message = "Changed partition %s state from %s to %s"
            self._state_changes.log(logging.INFO, tp, message, tp, previous.value, target.value)

    def _bring_online(
        self, partitions: list[TopicPartition], election: Election
    ) -> Procedure[LeadershipResults]:
        context = self._context
        new = [tp for tp in partitions if context.partition_status(tp) is PartitionStatus.NEW]
        known = [tp for tp in partitions if context.partition_status(tp) is not PartitionStatus.NEW]
        results = yield from change_leadership(self._shared, new, self._propose_first_leaders)
        for tp in new:
            state = results.get(tp)
            if isinstance(state, LeaderAndIsr):
                online = [id_ for id_ in context.replicas(tp) if context.is_online(tp, id_)]
                self._batch.add_leader_and_isr(online, tp, is_new=True)
        results.update((yield from self._elect(known, election)))
        for tp, state in results.items():
            self._apply_result(tp, state, election)
        return results

    def _apply_result(
        self, tp: TopicPartition, state: LeaderAndIsr | Refusal, election: Election
    ) -> None:
        previous = self._context.partition_status(tp)
        move = (PARTITION, None, previous.value, PartitionStatus.ONLINE.value, election.value)
        if isinstance(state, Refusal):
            self._state_changes.record(Decision(REFUSE, *move, reason=state.value), tp)
            message = "Failed to change state of partition %s from %s to %s: the partition %s"
            self._state_changes.log(
                logging.ERROR,
                tp,
                message,
                tp,
                previous.value,
                PartitionStatus.ONLINE.value,
                state.value,
            )
            return
        self._context.set_partition_status(tp, PartitionStatus.ONLINE)
        self._state_changes.record(
            Decision(MOVE, *move, state.leader, state.leader_epoch, state.isr), tp
        )
        message = "Changed partition %s state from %s to %s with state %s"
        self._state_changes.log(
            logging.INFO,
            tp,
            message,
            tp,
            previous.value,
            PartitionStatus.ONLINE.value,
            describe(state),
        )

    def _propose_first_leaders(self, partitions: list[TopicPartition]) -> Procedure[Proposals]:
        """Propose the first leader and ISR of New partitions (F3).

        If the state node already exists, the change fails and is not retried.
        """
        yield from ()
        context = self._context
        proposals: Proposals = {}
        for tp in partitions:
            isr = tuple(id_ for id_ in context.replicas(tp) if context.may_lead(tp, id_))
            if isr:
                first = LeaderAndIsr(isr[0], 0, isr, context.epoch, NO_NODE)
                self._state_changes.record_choice(PARTITION, tp, first)
                proposals[tp] = first
            elif context.replicas(tp):
                proposals[tp] = Refusal.NO_REPLICA_ONLINE
            else:
                proposals[tp] = Refusal.NO_REPLICAS_ASSIGNED
        return proposals

    def _elect(
        self, partitions: list[TopicPartition], election: Election
    ) -> Procedure[LeadershipResults]:
        """Elect leaders of Online and Offline partitions (F4)."""
        choices: dict[TopicPartition, ChosenLeader] = {}

        def choose(partitions: list[TopicPartition]) -> Procedure[Proposals]:
            settings = yield from self._settings(partitions, election)
            proposals: Proposals = {}
            for tp in partitions:
                verdict = self._choose(tp, election, settings.get(tp.topic, _DEFAULTS))
                if isinstance(verdict, ChosenLeader):
                    choices[tp] = verdict
                    proposals[tp] = chosen = self._next_leadership(tp, verdict)
                    self._state_changes.record_choice(
                        PARTITION, tp, chosen, election=election.value
                    )
                else:
                    proposals[tp] = verdict
            return proposals

        def propose(remaining: list[TopicPartition]) -> Procedure[Proposals]:
            proposals = yield from choose(remaining)
            refused = [tp for tp, verdict in proposals.items() if verdict in _REFUSED_FOR_ISR]
            newer = yield from self._read_newer(refused)
            if newer:
                proposals.update((yield from choose(newer)))
            return proposals

        results = yield from change_leadership(self._shared, partitions, propose)
        for tp, state in results.items():
            if isinstance(state, LeaderAndIsr):
                self._batch.add_leader_and_isr(choices[tp].recipients, tp)
                if choices[tp].unclean:
                    self._count_unclean(tp, state)
        return results

    def _read_newer(self, refused: list[TopicPartition]) -> Procedure[list[TopicPartition]]:
        """Read the states of partitions whose election was refused; return the partitions with a newer state.

        Newer states in ZooKeeper replace the states in memory. A leader first writes a new ISR to ZooKeeper
        and then announces the ISR. If the leader dies in between, the controller learns the new ISR only by
        this read.
        """
        context = self._context
        electable = [
            tp for tp in refused if any(context.is_online(tp, r) for r in context.replicas(tp))
        ]
        if not electable:
            return []
        read = yield ReadLeaderAndIsr(self._procedures.new_token(), tuple(electable))
        newer = [
            tp
            for tp, state in read.items()
            if state.state_version > context.leadership[tp].state_version
        ]
        for tp in newer:
            context.set_leadership(tp, read[tp])
        if newer:
            self._batch.add_update_metadata(context.brokers, newer)
        return newer

    def _next_leadership(self, tp: TopicPartition, choice: ChosenLeader) -> LeaderAndIsr:
        current = self._context.leadership[tp]
        assert choice.leader in choice.isr, choice
        assert choice.unclean or set(choice.isr) <= set(current.isr), (choice, current)
        return LeaderAndIsr(
            choice.leader,
            current.leader_epoch + 1,
            choice.isr,
            self._context.epoch,
            current.state_version,
        )

    def _choose(
        self, tp: TopicPartition, election: Election, settings: ElectionSettings
    ) -> Verdict:
        context = self._context
        current = context.leadership.get(tp)
        if current is None:
            return Refusal.NO_STATE
        if current.controller_epoch > context.epoch:
            return Refusal.NEWER_CONTROLLER
        assignment, isr = context.assignments[tp], current.isr
        replicas = assignment.replicas
        candidates = [replica for replica in replicas if context.may_lead(tp, replica)]
        if election in (Election.OFFLINE, Election.UNCLEAN):
            live = [replica for replica in replicas if context.is_online(tp, replica)]
            unclean = election is Election.UNCLEAN or settings.unclean_leader_election_enable
            return elections.offline(replicas, isr, live, context.suspects, unclean=unclean)
        if election is Election.PREFERRED:
            return elections.preferred(replicas, isr, candidates, current.leader)
        if election is Election.REASSIGNED:
            return elections.reassigned(assignment.target, isr, candidates)
        reachable = [replica for replica in replicas if context.is_reachable(tp, replica)]
        if election is Election.SUSPECTED:
            min_isr = settings.min_insync_replicas
            return elections.suspected(replicas, isr, candidates, reachable, min_isr)
        return elections.controlled_shutdown(
            replicas, isr, reachable, context.shutting_down, context.suspects
        )

    def _settings(
        self, partitions: list[TopicPartition], election: Election
    ) -> Procedure[Mapping[str, ElectionSettings]]:
        """Return topic -> settings, for topics whose settings matter in the election (A15)."""
        topics = dict.fromkeys(tp.topic for tp in partitions if self._may_need(tp, election))
        if not topics:
            return {}
        read: Mapping[str, ElectionSettings] = yield ReadElectionSettings(
            self._procedures.new_token(), tuple(topics)
        )
        return read

    def _may_need(self, tp: TopicPartition, election: Election) -> bool:
        """True if the choice depends on settings of the topic.

        In an offline election, `unclean.leader.election.enable` matters if no ISR member is live but another
        replica is live. When the leader is suspected, `min.insync.replicas` matters.
        """
        context = self._context
        state = context.leadership.get(tp)
        if election is not Election.OFFLINE or state is None:
            return election is Election.SUSPECTED
        return not any(context.is_online(tp, member) for member in state.isr) and any(
            context.is_online(tp, replica) for replica in context.replicas(tp)
        )

    def _count_unclean(self, tp: TopicPartition, state: LeaderAndIsr) -> None:
        """Count and log an unclean election, because it may lose acknowledged records (H3)."""
        context = self._context
        context.unclean_elections += 1
        context.unclean_elections_of[tp] = context.unclean_elections_of.get(tp, 0) + 1
        message = "No ISR member of partition %s is alive; elected leader %d uncleanly"
        self._state_changes.log(logging.WARNING, tp, message, tp, state.leader)
