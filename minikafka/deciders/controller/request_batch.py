"""Requests to brokers, collected in a batch: one request per broker and kind (R14).

Invariants: a batch begins empty. First all LeaderAndIsr requests are sent, then all UpdateMetadata
requests, then all StopReplica requests (T4). If a partition is added twice, its `is_new` or `delete`
flags are combined with "or" (T1). A partition in a LeaderAndIsr request is also in an UpdateMetadata
request to every broker. Only registered brokers receive requests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from minikafka.base.model import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    NO_EPOCH,
    Broker,
    BrokerId,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.deciders.controller.commands import SendRequest
from minikafka.deciders.controller.context import Context
from minikafka.deciders.controller.state_change_log import StateChangeLog
from minikafka.deciders.decider import Procedures

logger = logging.getLogger(__name__)


class RequestBatch:
    """Collects the requests of one batch; `emit` makes them commands."""

    def __init__(
        self, context: Context, state_changes: StateChangeLog, procedures: Procedures
    ) -> None:
        self._context = context
        self._state_changes = state_changes
        self._procedures = procedures
        self._leader_and_isr: dict[BrokerId, dict[TopicPartition, bool]] = {}
        self._stop_replica: dict[BrokerId, dict[TopicPartition, StopReplicaPartition]] = {}
        self._metadata_brokers: dict[BrokerId, None] = {}
        self._metadata_to_all = False
        self._metadata_partitions: dict[TopicPartition, None] = {}

    @property
    def is_empty(self) -> bool:
        """True if the batch contains no request."""
        return not (
            self._leader_and_isr
            or self._stop_replica
            or self._metadata_brokers
            or self._metadata_to_all
        )

    def new_batch(self) -> None:
        """Begin a batch. Raises RuntimeError if the previous batch was not emitted.

        Without this check a change could be sent twice or never.
        """
        if not self.is_empty:
            raise RuntimeError(
                "the previous batch of controller requests was begun but not emitted"
            )

    def add_leader_and_isr(
        self, brokers: Iterable[BrokerId], tp: TopicPartition, *, is_new: bool = False
    ) -> None:
        """Add the partition's leadership for these brokers, and the partition's metadata for every broker."""
        for broker in brokers:
            partitions = self._leader_and_isr.setdefault(broker, {})
            partitions[tp] = partitions.get(tp, False) or is_new
        self._metadata_partitions[tp] = None
        self._metadata_to_all = True

    def add_update_metadata(
        self, brokers: Iterable[BrokerId], partitions: Iterable[TopicPartition]
    ) -> None:
        """Add UpdateMetadata for these brokers, with all live brokers and the metadata of these partitions."""
        self._metadata_brokers.update(dict.fromkeys(brokers))
        self._metadata_partitions.update(dict.fromkeys(partitions))

    def add_stop_replica(self, broker: BrokerId, tp: TopicPartition, *, delete: bool) -> None:
        """Add a StopReplica for the broker, with the leader epoch or `EPOCH_DURING_DELETE` (R8)."""
        partitions = self._stop_replica.setdefault(broker, {})
        before = partitions.get(tp)
        delete = delete or (before is not None and before.delete)
        partitions[tp] = StopReplicaPartition(tp, self._stop_epoch(tp), delete)

    def emit(self) -> None:
        """Send the requests of the batch, and empty it."""
        self._emit_leader_and_isr()
        self._emit_update_metadata()
        self._emit_stop_replica()

    def _stop_epoch(self, tp: TopicPartition) -> int:
        if self._context.is_being_deleted(tp):
            return EPOCH_DURING_DELETE
        state = self._context.leadership.get(tp)
        return state.leader_epoch if state else NO_EPOCH

    def _emit_leader_and_isr(self) -> None:
        states: dict[tuple[TopicPartition, bool], PartitionState] = {}
        for broker, partitions in self._leader_and_isr.items():
            if broker not in self._context.brokers:
                continue
            for key in partitions.items():
                if key not in states:
                    states[key] = self._partition_state(*key)
            chosen = tuple(states[key] for key in partitions.items())
            self._log_leader_and_isr(broker, chosen)
            self._emit(
                broker,
                LeaderAndIsrRequest(
                    self._context.controller_id,
                    self._context.epoch,
                    self._context.brokers[broker].epoch,
                    chosen,
                    self._live_leaders(chosen),
                    self._topic_ids(partitions),
                    self._state_changes.cause,
                ),
            )
        self._leader_and_isr.clear()

    def _emit_update_metadata(self) -> None:
        context = self._context
        if self._metadata_to_all:
            self._metadata_brokers.update(dict.fromkeys(context.brokers))
        recipients = [broker for broker in self._metadata_brokers if broker in context.brokers]
        if recipients:
            states = tuple(self._metadata_states())
            brokers = tuple(context.brokers.values())
            suspects = tuple(context.suspects)
            topic_ids = self._topic_ids(state.tp for state in states)
            self._state_changes.log_request(
                "Sending UpdateMetadata request to brokers %s for %d partitions",
                set(recipients),
                len(states),
            )
            for broker in recipients:
                epoch = context.brokers[broker].epoch
                self._emit(
                    broker,
                    UpdateMetadataRequest(
                        context.controller_id,
                        context.epoch,
                        epoch,
                        states,
                        brokers,
                        topic_ids,
                        self._state_changes.cause,
                        suspects,
                    ),
                )
        self._metadata_brokers.clear()
        self._metadata_to_all = False
        self._metadata_partitions.clear()

    def _emit_stop_replica(self) -> None:
        context = self._context
        for broker, partitions in self._stop_replica.items():
            if broker not in context.brokers:
                continue
            self._state_changes.log_request(
                "Sending StopReplica request to broker %d for %d replicas", broker, len(partitions)
            )
            self._emit(
                broker,
                StopReplicaRequest(
                    context.controller_id,
                    context.epoch,
                    context.brokers[broker].epoch,
                    tuple(partitions.values()),
                    self._state_changes.cause,
                ),
            )
        self._stop_replica.clear()

    def _emit(
        self,
        broker: BrokerId,
        request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest,
    ) -> None:
        self._procedures.emit(SendRequest(broker, request))

    def _partition_state(self, tp: TopicPartition, is_new: bool) -> PartitionState:
        state, assignment = self._context.leadership[tp], self._context.assignments[tp]
        return PartitionState(
            tp=tp,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            state_version=state.state_version,
            controller_epoch=state.controller_epoch,
            replicas=assignment.replicas,
            adding=assignment.adding,
            removing=assignment.removing,
            is_new=is_new,
        )

    def _metadata_states(self) -> Iterator[PartitionState]:
        """Yield the state for UpdateMetadata of each collected partition that has a known leader and ISR."""
        context = self._context
        offline: dict[tuple[BrokerId, ...], tuple[BrokerId, ...]] = {}
        """Cache: assigned replicas -> offline replicas, because many partitions have the same replicas."""
        for tp in self._metadata_partitions:
            state = context.leadership.get(tp)
            if state is None:
                continue
            replicas = context.replicas(tp)
            away = None if context.offline_directories else offline.get(replicas)
            if away is None:
                away = tuple([id_ for id_ in replicas if not context.is_online(tp, id_)])
                offline[replicas] = away
            yield PartitionState(
                tp=tp,
                leader=LEADER_DURING_DELETE if context.is_being_deleted(tp) else state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                state_version=state.state_version,
                controller_epoch=state.controller_epoch,
                replicas=replicas,
                offline=away,
            )

    def _live_leaders(self, states: Iterable[PartitionState]) -> tuple[Broker, ...]:
        leaders = {state.leader for state in states}
        return tuple(broker for id_, broker in self._context.brokers.items() if id_ in leaders)

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> tuple[tuple[str, bytes], ...]:
        topics = dict.fromkeys(tp.topic for tp in partitions)
        known = self._context.topic_ids
        return tuple((topic, known[topic]) for topic in topics if topic in known)

    def _log_leader_and_isr(self, broker: BrokerId, states: tuple[PartitionState, ...]) -> None:
        leading = sum(state.leader == broker for state in states)
        self._state_changes.log_request(
            "Sending LeaderAndIsr request to broker %d with %d become-leader and %d become-follower "
            "partitions",
            broker,
            leading,
            len(states) - leading,
        )


class Shared(NamedTuple):
    """The objects that the parts of one controller machine share."""

    context: Context
    state_changes: StateChangeLog
    batch: RequestBatch
    procedures: Procedures
