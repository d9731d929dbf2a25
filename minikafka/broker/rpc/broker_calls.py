"""Calls to registered brokers, in the highest version of the protocol that both have."""

from __future__ import annotations

from typing import Any

from minikafka.base.model import Broker
from minikafka.base.ports import ControlPlane
from minikafka.broker.rpc.envelope import version_for


async def call_broker(
    control_plane: ControlPlane,
    broker: Broker,
    listener: str,
    method: str,
    body: dict[str, Any],
    timeout_ms: int,
) -> dict[str, Any]:
    """Make one call to a broker at its control listener, and return the answer.

    Raises OSError and KafkaError like `ControlPlane.call`; ConnectionError too if the broker has no such listener, and
    UNSUPPORTED_VERSION if it has no version in common with this process.
    """
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        raise ConnectionError(f"broker {broker.id} has no listener {listener}")
    return await control_plane.call(
        endpoint,
        method,
        body,
        target_id=broker.id,
        timeout_ms=timeout_ms,
        version=version_for(control_plane.versions, broker),
    )
