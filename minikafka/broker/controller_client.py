"""Calls of this broker to the broker that carries out administrators' requests, which may be this broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import BrokerId
from minikafka.base.ports import Call, ControlPlane
from minikafka.broker.capabilities import Administration
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.rpc.broker_calls import call_broker


class ControllerClient:
    """Client of the controller: the broker that `administration` names. Its address comes from the metadata.

    `handle` handles a call if this broker is the controller. A call to another broker is cancelled when the
    controller changes. `listener` is the name of the control listener, which is the same on all brokers.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        administration: Administration,
        metadata: MetadataCache,
        control_plane: ControlPlane,
        listener: str,
        handle: Callable[[Call], Awaitable[dict[str, Any]]],
    ) -> None:
        self._broker_id = broker_id
        self._administration = administration
        self._metadata = metadata
        self._control_plane = control_plane
        self._listener = listener
        self._handle = handle

    async def call(self, method: str, body: dict[str, Any], timeout_ms: int) -> dict[str, Any]:
        """Return the controller's response.

        Raises OSError if no response arrives within `timeout_ms`. Raises KafkaError with the controller's error,
        or with NOT_CONTROLLER if no controller is known or the controller changes before it responds.
        """
        controller_id = self._administration.controller_id
        if controller_id == self._broker_id:
            return await self._handle(Call(method, body))
        controller = self._metadata.brokers.get(controller_id)
        if controller is None or controller.endpoint(self._listener) is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known")
        call = call_broker(
            self._control_plane, controller, self._listener, method, body, timeout_ms
        )
        return await self._administration.wait_while_controller(call)
