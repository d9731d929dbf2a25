"""The controller's requests at a broker: LeaderAndIsr, StopReplica and UpdateMetadata.

Invariants: a request with an old controller epoch or an old broker epoch has no effect (R5, R6). A request is noted
in the ledger when it arrives and when it is answered. A request for many partitions is handled with pauses, in which
clients and heartbeats are served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from minikafka.base.errors import CoordinationError, ErrorCode
from minikafka.base.model import (
    NO_EPOCH,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.ports import Clock, Ledger
from minikafka.broker.capabilities.stores import TopicStore
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.replicas.strays import Strays
from minikafka.ledger.record import EFFECT
from minikafka.ledger.requests import completed_lines, failed_line, received_lines

logger = logging.getLogger(__name__)

_NONE: Final = 0
_STALE_CONTROLLER: Final = int(ErrorCode.STALE_CONTROLLER_EPOCH)
_STALE_BROKER: Final = int(ErrorCode.STALE_BROKER_EPOCH)
_TURN_MS: Final = 50
"""Maximum time (ms) that a request of the controller may occupy the event loop without a pause."""

_Named = TypeVar("_Named", PartitionState, StopReplicaPartition)
"""The type of a partition in a LeaderAndIsr or a StopReplica request."""


class ControllerRequests:
    """The controller's requests, carried out on the replicas of this broker."""

    def __init__(
        self, replicas: ReplicaManager, topics: TopicStore, clock: Clock, ledger: Ledger
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._ledger = ledger
        self._strays = Strays(
            replicas.broker_id,
            replicas.logs,
            replicas.metadata,
            topics,
            self._delete_stray,
            replicas.set_aside,
        )
        self.controller_epoch = self.broker_epoch = -1

    async def handle(self, request: ControllerRequest) -> ControllerResponse:
        """Carry out a request of the controller and note it in the ledger.

        Raises CoordinationError when the topics' settings cannot be read.
        """
        self._note(request, received_lines(request))
        try:
            response = await self._carry_out(request)
        except CoordinationError as error:
            self._note(request, [failed_line(request, f"{type(error).__name__} {error}")])
            raise
        self._note(request, completed_lines(self._replicas.broker_id, request, response))
        return response

    def _note(self, request: ControllerRequest, lines: Iterable[dict[str, Any]]) -> None:
        for fields in lines:
            self._ledger.record(EFFECT, request.cause, fields)

    async def _carry_out(self, request: ControllerRequest) -> ControllerResponse:
        error = self._fence(request)
        if error:
            return ControllerResponse(error)
        if isinstance(request, LeaderAndIsrRequest):
            await self._load_configs(request)
            error = self._fence(request)
            return ControllerResponse(error) if error else await self._leader_and_isr(request)
        if isinstance(request, StopReplicaRequest):
            return await self._stop_replicas(request)
        if self._update_metadata(request):
            await self._strays.set_orphans_aside()
        return ControllerResponse(_NONE)

    async def _load_configs(self, request: LeaderAndIsrRequest) -> None:
        """Read the settings of topics that have no settings loaded, and of topics with new partitions.

        A topic with new partitions may have been deleted and created again with other settings.
        """
        named = {state.tp.topic for state in request.partitions}
        wanted = named.difference(self._replicas.configs.topics)
        wanted.update(state.tp.topic for state in request.partitions if state.is_new)
        if wanted:
            # The controller decided with the latest settings, so this broker must not use older ones.
            await self._replicas.configs.read(wanted, latest=True)

    def _fence(self, request: ControllerRequest) -> int:
        if request.controller_epoch < self.controller_epoch:
            logger.warning(
                "refused %s of controller %d: epoch %d is older than %d",
                type(request).__name__,
                request.controller_id,
                request.controller_epoch,
                self.controller_epoch,
            )
            return _STALE_CONTROLLER
        if 0 <= request.broker_epoch < self.broker_epoch:
            return _STALE_BROKER
        self.controller_epoch = request.controller_epoch
        return _NONE

    def _update_metadata(self, request: UpdateMetadataRequest) -> bool:
        """Replace the metadata; return True if the request names every partition."""
        is_whole = self._strays.names_every_partition(request)
        self._replicas.update_metadata(request, is_whole=is_whole)
        self._strays.delete_strays(request, is_whole=is_whole)
        return is_whole

    def _delete_stray(self, tp: TopicPartition) -> None:
        self._replicas.stop_replica(StopReplicaPartition(tp, NO_EPOCH, delete=True))
        self._replicas.sync_deletions()

    async def _leader_and_isr(self, request: LeaderAndIsrRequest) -> ControllerResponse:
        self._replicas.fetchers.brokers_changed(
            {broker.id: broker for broker in request.live_leaders}
        )
        topic_ids = dict(request.topic_ids)
        response = await self._one_by_one(
            request,
            request.partitions,
            lambda state: self._replicas.become_leader_or_follower(
                state, topic_ids.get(state.tp.topic), self._clock.now()
            ),
        )
        if not response.error:
            self._replicas.checkpoints.start()
        return response

    async def _one_by_one(
        self,
        request: LeaderAndIsrRequest | StopReplicaRequest,
        partitions: Sequence[_Named],
        carry_out: Callable[[_Named], int],
    ) -> ControllerResponse:
        """Carry out a request partition by partition. Pause every `_TURN_MS` to serve clients and heartbeats.

        If the controller epoch or broker epoch of the request is stale after a pause, stop and return the error.
        """
        begun = self._clock.now()
        self._replicas.purgatory.finish_tick(begun)
        results = []
        for partition in partitions:
            results.append((partition.tp, carry_out(partition)))
            if self._clock.now() - begun > _TURN_MS:
                self._replicas.purgatory.finish_tick(self._clock.now())
                await self._clock.sleep(0)
                error = self._fence(request)
                if error:
                    return ControllerResponse(error)
                begun = self._clock.now()
        self._replicas.purgatory.finish_tick(self._clock.now())
        return ControllerResponse(_NONE, tuple(results))

    async def _stop_replicas(self, request: StopReplicaRequest) -> ControllerResponse:
        response = await self._one_by_one(request, request.partitions, self._replicas.stop_replica)
        if any(stop.delete for stop in request.partitions) and not response.error:
            # Sync before the response: then the controller assumes that deleted replicas never come back.
            self._replicas.sync_deletions()
            self._replicas.configs.keep({tp.topic for tp in self._replicas.partitions})
        return response
