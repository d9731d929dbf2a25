"""Elections that an administrator requests, and elections that rebalance preferred leaders (R61).

A preferred election moves the leadership to the first replica of the assignment (I7). An unclean
election may elect a leader outside the ISR; this module holds it only on request. Invariant: an
election of several partitions sends one batch of requests, and each partition has its own result.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.base.model import BrokerId, LeaderAndIsr, PartitionResult, TopicPartition
from minikafka.deciders.controller.commands import DeletePreferredElection
from minikafka.deciders.controller.elections import Election, Refusal
from minikafka.deciders.controller.events import ElectionRequested
from minikafka.deciders.controller.partition_states import PartitionStateMachine
from minikafka.deciders.controller.request_batch import Shared
from minikafka.deciders.controller.states import PartitionStatus
from minikafka.deciders.decider import Procedure

logger = logging.getLogger(__name__)

_UNAVAILABLE: Final = {
    Election.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    Election.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


class ElectLeaders:
    """Preferred and unclean elections on request, and the rebalancing of preferred leaders."""

    def __init__(
        self,
        shared: Shared,
        partitions: PartitionStateMachine,
        imbalance_percentage: int,
    ) -> None:
        self._context = shared.context
        self._procedures = shared.procedures
        self._partitions = partitions
        self._imbalance_percentage = imbalance_percentage

    def on_requested(self, event: ElectionRequested) -> Procedure[None]:
        """Hold the elections of an ElectLeaders request and answer the request (KIP-460)."""
        election = Election.UNCLEAN if event.unclean else Election.PREFERRED
        chosen = self._context.assignments if event.partitions is None else event.partitions
        results = yield from self._elect(list(chosen), election)
        self._procedures.answer(event.caller, results)

    def on_submitted(self, partitions: Iterable[TopicPartition]) -> Procedure[None]:
        """Hold the preferred elections listed in `/admin/preferred_replica_election`, then delete the node (E5)."""
        chosen = list(partitions)
        logger.info("Starting preferred replica leader election for %d partitions", len(chosen))
        results = yield from self._elect(chosen, Election.PREFERRED)
        for tp, result in results.items():
            if result.code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                logger.warning("Preferred replica election for %s: %s", tp, result.message)
        self._procedures.emit(DeletePreferredElection())

    def rebalance(self) -> Procedure[None]:
        """Hold preferred elections for brokers with too large a leader imbalance (R62).

        The imbalance of a broker: of the partitions whose preferred replica is on the broker, the percentage that
        the broker does not lead. The limit is `leader.imbalance.per.broker.percentage`.
        """
        due: list[TopicPartition] = []
        for broker, (preferring, elsewhere) in self._preferred_partitions().items():
            if len(elsewhere) * 100 > preferring * self._imbalance_percentage:
                message = "Leader imbalance of broker %d: %d of %d partitions are led elsewhere"
                logger.info(message, broker, len(elsewhere), preferring)
                due += [tp for tp in elsewhere if self._may_return_to(tp, broker)]
        if due:
            yield from self._partitions.handle_state_changes(
                due, PartitionStatus.ONLINE, Election.PREFERRED
            )

    def imbalance_count(self) -> int:
        """Return the number of partitions that are not led by their preferred replica (D11)."""
        return sum(len(elsewhere) for _, elsewhere in self._preferred_partitions().values())

    def _preferred_partitions(self) -> dict[BrokerId, tuple[int, list[TopicPartition]]]:
        """Return, for each broker, its number of preferred partitions, and those of them that it does not lead.

        A partition is a preferred partition of the broker that has its preferred replica.
        """
        context = self._context
        preferring: dict[BrokerId, int] = {}
        elsewhere: dict[BrokerId, list[TopicPartition]] = {}
        for tp, assignment in context.assignments.items():
            if not assignment.replicas or context.is_being_deleted(tp):
                continue
            preferred = assignment.replicas[0]
            preferring[preferred] = preferring.get(preferred, 0) + 1
            state = context.leadership.get(tp)
            if state is not None and state.leader != preferred:
                elsewhere.setdefault(preferred, []).append(tp)
        return {broker: (count, elsewhere.get(broker, [])) for broker, count in preferring.items()}

    def _may_return_to(self, tp: TopicPartition, preferred: BrokerId) -> bool:
        context = self._context
        return (
            tp not in context.reassigning
            and context.may_lead(tp, preferred)
            and preferred in context.leadership[tp].isr
        )

    def _elect(
        self, partitions: list[TopicPartition], election: Election
    ) -> Procedure[dict[TopicPartition, PartitionResult]]:
        results = {}
        needed = []
        for tp in partitions:
            reason = self._reason_not_to_elect(tp, election)
            if reason is None:
                needed.append(tp)
            else:
                results[tp] = reason
        outcomes = yield from self._partitions.handle_state_changes(
            needed, PartitionStatus.ONLINE, election
        )
        for tp in needed:
            outcome = outcomes.get(tp)
            if isinstance(outcome, LeaderAndIsr):
                results[tp] = PartitionResult()
            elif outcome is Refusal.ELECTION_NOT_NEEDED:
                results[tp] = PartitionResult(ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED)
            else:
                why = outcome.value if isinstance(outcome, Refusal) else str(outcome)
                message = f"Failed to elect leader for partition {tp}: the partition {why}"
                results[tp] = PartitionResult(_UNAVAILABLE[election], message)
        return results

    def _reason_not_to_elect(
        self, tp: TopicPartition, election: Election
    ) -> PartitionResult | None:
        """Return the result if the election is not needed or not allowed; None if it must be held."""
        context = self._context
        if tp not in context.assignments:
            return PartitionResult(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
            )
        if context.is_being_deleted(tp):
            return PartitionResult(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted.")
        state = context.leadership.get(tp)
        replicas = context.replicas(tp)
        if state is None or not replicas:
            return None
        preferred = election is Election.PREFERRED
        is_good = state.leader == replicas[0] if preferred else context.is_online(tp, state.leader)
        return PartitionResult(ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED) if is_good else None


_NOT_NEEDED: Final = "Leader election not needed for topic partition."
