"""A function that creates a topic again after the deletion of the topic was requested."""

from __future__ import annotations

import asyncio

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.client import Client, NewTopic


async def create_again(client: Client, topic: NewTopic) -> None:
    """Create a topic again as soon as its deletion is complete."""
    while True:
        try:
            return await client.create_topics(topic)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            await asyncio.sleep(0.1)
