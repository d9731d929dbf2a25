"""The state of one broker's coordination, for metrics and for the commands `status`, `why` and `plan`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from minikafka.base.errors import Closed, CoordinationError, ErrorCode, KafkaError
from minikafka.base.model import NO_EPOCH, BrokerId, TopicPartition
from minikafka.base.ports import Clock
from minikafka.broker.modes.leaders.metadata_source import LeadersMetadata
from minikafka.broker.modes.leaders.queue import StateChangeQueue
from minikafka.deciders.leaders.machine import LeadersMachine
from minikafka.deciders.leaders.states import HostedReplicaStatus

logger = logging.getLogger(__name__)

_PERIOD_MS: Final = 1_000


class LeadersDiagnostics:
    """Diagnostics of the leader-coordinated mode. There is no controller: each broker reports what it knows."""

    is_active = False
    epoch = NO_EPOCH

    def __init__(
        self,
        broker_id: BrokerId,
        clock: Clock,
        machine: LeadersMachine,
        metadata: LeadersMetadata,
        queue: StateChangeQueue,
    ) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._machine = machine
        self._metadata = metadata
        self._queue = queue
        self._backlog: dict[str, int] = {}

    async def run(self) -> None:
        """Read the backlog of every broker periodically."""
        while True:
            try:
                found = await self._queue.backlog()
                self._backlog = {str(broker): count for broker, count in found.items()}
            except Closed:
                return
            except CoordinationError as error:
                logger.info("the backlog cannot be read: %s %s", type(error).__name__, error)
            await self._clock.sleep(_PERIOD_MS)

    def summary(self) -> dict[str, Any]:
        """Return what this broker knows about the cluster. It carries out administrators' requests itself."""
        states = [state for topic in self._metadata.shown.values() for state in topic.values()]
        live = self._metadata.brokers
        return {
            "controller_id": self._broker_id,
            "is_active": self.is_active,
            "epoch": self.epoch,
            "queue_size": self._backlog.get(str(self._broker_id), 0),
            "topic_count": len(self._metadata.shown),
            "partition_count": len(states),
            "offline_partition_count": sum(state.leader not in live for state in states),
            "preferred_replica_imbalance_count": sum(
                state.leader != state.replicas[0] for state in states
            ),
            "replicas_to_delete": 0,
            "replicas_ineligible_for_deletion": 0,
        }

    def view(self, tp: TopicPartition) -> dict[str, Any] | None:
        """Return what this broker's coordination knows about its replica; None if it hosts none.

        `reassignment`: on the leader, the replicas of a reassignment in progress; empty for a deletion.
        """
        replica = self._machine.replicas.get(tp)
        if replica is None:
            return None
        refusal = replica.last_refusal
        is_leader = replica.status in (HostedReplicaStatus.OPENING, HostedReplicaStatus.LEADING)
        requested = replica.view.reassignment if is_leader and replica.view else None
        return {
            "status": replica.status.value,
            "leader": replica.leader,
            "leader_epoch": replica.epoch,
            "hosts": sorted(replica.hosts),
            "reassignment": None if requested is None else list(requested.replicas),
            "is_waiting": replica.is_waiting,
            "is_offline": replica.is_offline,
            "refusal": None if refusal is None else refusal[0],
        }

    def backlog(self) -> dict[str, int]:
        """Return the number of state-change requests in the queue of each broker, as they were last read (C39)."""
        return self._backlog

    async def plan(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Raise KafkaError: nobody in this mode can plan for all brokers."""
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "minikafka.coordination=leaders has no plan: each partition's leader decides for itself",
        )
