"""Calls of this broker to the active controller, over the control plane."""

from __future__ import annotations

from typing import Any

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.ports import ControlPlane
from minikafka.broker.cluster.metadata import MetadataCache
from minikafka.broker.coordinator import Controller


class ControllerClient:
    """Client of the active controller. It takes the controller's address from the metadata.

    A call is cancelled when the controller changes. `listener` is the name of the control listener, which is
    the same on all brokers.
    """

    def __init__(
        self,
        controller: Controller,
        metadata: MetadataCache,
        control_plane: ControlPlane,
        listener: str,
    ) -> None:
        self._controller = controller
        self._metadata = metadata
        self._control_plane = control_plane
        self._listener = listener

    async def call(self, method: str, body: dict[str, Any], timeout_ms: int) -> dict[str, Any]:
        """Return the controller's response.

        Raises OSError if no response arrives within `timeout_ms`. Raises KafkaError with the controller's error,
        or with NOT_CONTROLLER if no controller is known or the controller changes before it responds.
        """
        controller = self._metadata.brokers.get(self._controller.controller_id)
        endpoint = controller.endpoint(self._listener) if controller else None
        if controller is None or endpoint is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known")
        call = self._control_plane.call(
            endpoint.host,
            endpoint.port,
            method,
            body,
            target_id=controller.id,
            timeout_ms=timeout_ms,
        )
        return await self._controller.wait_while_controller(call)
