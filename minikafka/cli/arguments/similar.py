"""Questions with names that are similar to an unknown name, for commands that use the files of the cluster."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.cli.terminal.topic_errors import ASK_MS, did_you_mean

if TYPE_CHECKING:
    from minikafka.client import Client
    from minikafka.cluster.observed import ObservedCluster


def similar_partition(found: ObservedCluster, tp: TopicPartition) -> str:
    """Return a question with topics of the cluster that have similar names, after "; "; "" if there is none."""
    question = did_you_mean([tp.topic], found.directory.topics())
    return f"; {question}" if question else ""


async def similar_groups(client: Client, name: str) -> str:
    """Return a question with the existing groups whose names are similar, after "; "; "" if there is none."""
    import asyncio

    with suppress(KafkaError, TimeoutError):
        async with asyncio.timeout(ASK_MS / 1000):
            known = [listing.group for listing in await client.groups.list_groups()]
            question = did_you_mean([name], known)
            return f"; {question}" if question else ""
    return ""


async def similar_local_group(found: ObservedCluster, name: str) -> str:
    """Return the same as `similar_groups` for the brokers of a cluster on this machine."""
    from minikafka.client import Client

    async with Client(found.bootstrap) as client:
        return await similar_groups(client, name)
