"""Admin requests that pipelines send from the driver to a cluster."""

from __future__ import annotations

import asyncio

from minikafka.base.errors import KafkaError
from minikafka.client import Client
from minikafka.client.admin_results import Resource, ResourceType


def topic_settings(servers: str, topic: str) -> dict[str, str | None]:
    """Return the settings of a topic by name. Raises KafkaError."""

    async def ask() -> dict[str, str | None]:
        async with Client(servers) as client:
            resource = Resource(ResourceType.TOPIC, topic)
            found = (await client.admin.describe_configs([resource]))[resource]
            if not found.outcome.ok:
                raise KafkaError(found.outcome.code, f"{topic}: {found.outcome.reason}")
            return {entry.name: entry.value for entry in found.entries}

    return asyncio.run(ask())
