"""Requests to the coordinator of a group, which is found by FindCoordinator.

It is used until it fails or returns NOT_COORDINATOR.
"""

from __future__ import annotations

from typing import Any

from minikafka.base.model import Node
from minikafka.client.coordinators import GROUP, read_coordinator
from minikafka.client.metadata import Metadata
from minikafka.client.network import Address, Network, request
from minikafka.wire import versions


class CoordinatorClient:
    """A client of the broker that coordinates one group."""

    def __init__(
        self, group: str, network: Network, metadata: Metadata, request_timeout_ms: int
    ) -> None:
        self.group = group
        self._network = network
        self._metadata = metadata
        self._timeout_ms = request_timeout_ms
        self._node: Node | None = None

    def forget(self) -> None:
        """Forget the coordinator, so that the next request finds it again."""
        self._node = None

    async def node(self) -> Node:
        """Return the group's coordinator. Raises KafkaError, for example COORDINATOR_NOT_AVAILABLE, and OSError."""
        if self._node is None:
            self._node = await self._find()
        return self._node

    async def call(self, api: int, body: Any) -> Any:
        """Send a request and return its response. Raises OSError, or KafkaError if no coordinator is found.

        After an OSError the next call finds the coordinator again.
        """
        node = await self.node()
        try:
            address = Address(node.host, node.port)
            return await self._network.call(address, api, self._timeout_ms, body)
        except OSError:
            self.forget()
            raise

    async def _find(self) -> Node:
        body = request(
            versions.FIND_COORDINATOR, key_type=GROUP.number, coordinator_keys=[self.group]
        )
        address = await self._metadata.any_address()
        api = versions.FIND_COORDINATOR
        response = await self._network.call(address, api, self._timeout_ms, body)
        return read_coordinator(response.coordinators[0])
