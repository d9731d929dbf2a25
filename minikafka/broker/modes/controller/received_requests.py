"""The controller's requests at a broker: LeaderAndIsr, StopReplica and UpdateMetadata.

Invariants: a request with an old controller epoch or an old broker epoch has no effect (R5, R6). Before replicas
are stopped or deleted, the controller epoch is read in ZooKeeper: a controller that was replaced may not know it yet,
and this broker may not have received a request of its successor. A request is noted in the ledger when it arrives
and when it is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError
from minikafka.base.model import (
    NO_EPOCH,
    Broker,
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from minikafka.base.ports import Call
from minikafka.broker.capabilities import OrderResults, Orders
from minikafka.broker.ledger.record import EFFECT
from minikafka.broker.ledger.requests import completed_lines, failed_line, received_lines
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.rpc import messages
from minikafka.broker.step_gate import AT_BROKER
from minikafka.zookeeper.nodes import election, layout

logger = logging.getLogger(__name__)


class ReceivedRequests:
    """The RoleSource of the controller mode. Its orders are those that the controller's requests contain."""

    def __init__(self, ports: Ports) -> None:
        self._broker_id = ports.broker_id
        self._zookeeper = ports.zookeeper
        self._ledger = ports.ledger
        self._gate = ports.gate
        self._orders: Orders
        self.calls: dict[str, Callable[[Call], Awaitable[dict[str, Any]]]]
        self.calls = dict.fromkeys(messages.STATE_CHANGES, self._on_call)
        self.epoch = self.broker_epoch = NO_EPOCH
        self.brokers: Mapping[BrokerId, Broker] = {}
        """The registered brokers according to the last UpdateMetadata request."""
        self._has_registered = asyncio.Event()
        self._last_whole = (NO_EPOCH, NO_EPOCH)
        """(controller epoch, broker epoch) of the last UpdateMetadata request that named every partition."""

    async def start(self, orders: Orders) -> None:
        """Give the orders of later requests to `orders`."""
        self._orders = orders

    def registered(self, broker_epoch: int) -> None:
        """Refuse requests to earlier registrations, and carry out the requests that waited for this one."""
        self.broker_epoch = broker_epoch
        self._has_registered.set()

    async def _on_call(self, call: Call) -> dict[str, Any]:
        """Carry out a request of the controller.

        A request that arrives before this broker has registered was sent to an earlier process of this broker.
        Such a request waits for the registration, because its broker epoch can be checked only afterwards. Raises
        KafkaError NETWORK_EXCEPTION if ZooKeeper does not answer. The controller then sends the request again.
        """
        request = messages.decode(call.method, call.body)
        await self._has_registered.wait()
        await self._gate.reached(AT_BROKER, call.method)
        try:
            return messages.encode_response(await self.handle(request))
        except CoordinationError as error:
            reason = f"ZooKeeper did not answer: {type(error).__name__} {error}"
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, reason) from error

    async def handle(self, request: ControllerRequest) -> ControllerResponse:
        """Carry out a request of the controller and note it in the ledger.

        Raises CoordinationError when the topics' settings cannot be read.
        """
        self._note(request, received_lines(request))
        try:
            response = ControllerResponse(0, tuple(await self._carry_out(request)))
        except KafkaError as stale:
            response = ControllerResponse(stale.code)
        except CoordinationError as error:
            self._note(request, [failed_line(request, f"{type(error).__name__} {error}")])
            raise
        self._note(request, completed_lines(self._broker_id, request, response))
        return response

    def _note(self, request: ControllerRequest, lines: Iterable[dict[str, Any]]) -> None:
        for fields in lines:
            self._ledger.record(EFFECT, request.cause, fields)

    async def _carry_out(self, request: ControllerRequest) -> OrderResults:
        """Give the orders of a request; return the error codes of its partitions. Raises KafkaError if it is stale."""
        fence = partial(self._fence, request)
        fence()
        if isinstance(request, LeaderAndIsrRequest):
            topic_ids = dict(request.topic_ids)
            return await self._orders.change_roles(
                request.partitions, topic_ids, request.live_leaders, fence
            )
        if isinstance(request, StopReplicaRequest):
            await self._confirm(request)
            return await self._orders.stop_replicas(request.partitions, fence)
        self.brokers = {broker.id: broker for broker in request.live_brokers}
        is_whole = self._names_every_partition(request)
        self._orders.update_metadata(request, is_whole=is_whole)
        confirm = partial(self._confirm, request)
        await self._orders.remove_strays(request, is_whole=is_whole, confirm=confirm)
        # Not earlier: if ZooKeeper did not answer, the controller sends this request again.
        self._last_whole = max(self._last_whole, (request.controller_epoch, request.broker_epoch))
        return []

    def _fence(self, request: ControllerRequest) -> None:
        """Raise KafkaError if the request is from an earlier controller or to an earlier registration."""
        if request.controller_epoch < max(self.epoch, 0):
            logger.warning(
                "refused %s of controller %d: epoch %d is older than %d",
                type(request).__name__,
                request.controller_id,
                request.controller_epoch,
                self.epoch,
            )
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        if 0 <= request.broker_epoch < self.broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        assert request.controller_epoch >= self.epoch
        self.epoch = request.controller_epoch

    async def _confirm(self, request: ControllerRequest) -> None:
        """Raise KafkaError if a later controller has been elected, according to ZooKeeper. Raises CoordinationError."""
        try:
            latest = await election.read_latest_epoch(self._zookeeper)
        except ValueError as fault:
            reason = f"{layout.CONTROLLER_EPOCH} cannot be read: {fault}"
            logger.error("refused to stop or delete replicas: %s", reason)
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, reason) from None
        if request.controller_epoch < latest:
            logger.warning(
                "refused to stop or delete replicas for controller %d with epoch %d: epoch %d was elected",
                request.controller_id,
                request.controller_epoch,
                latest,
            )
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self._fence(request)

    def _names_every_partition(self, request: UpdateMetadataRequest) -> bool:
        """True for a controller's first UpdateMetadata request since this broker registered.

        The first request names every partition.
        """
        return (request.controller_epoch, request.broker_epoch) > self._last_whole
