"""Let other brokers lead the partitions of one broker, so that its stop moves no leadership.

    python move_leaders.py BOOTSTRAP BROKER

The broker becomes the last replica of the partitions that it leads, and their first replica is elected. No data are
copied. The exit code is 1 if an election failed, because the first replica is not in sync.
"""

from __future__ import annotations

import asyncio
import sys

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client import Client


async def orders_without(client: Client, broker: int) -> dict[TopicPartition, list[int]]:
    """Return the partitions that the broker leads or would lead, with the broker as the last of their replicas."""
    topics = await client.admin.describe_topics(await client.list_topics())
    return {
        TopicPartition(topic.name, number): [*others, broker]
        for topic in topics.values()
        for number, partition in topic.partitions.items()
        if broker in (partition.leader, partition.replicas[0])
        if (others := [replica for replica in partition.replicas if replica != broker])
    }


async def main(bootstrap: str, broker: int) -> str | None:
    """Move the leaderships. Return what is wrong, None if nothing is."""
    async with Client(bootstrap) as client:
        orders = await orders_without(client, broker)
        if not orders:
            return None
        await client.admin.alter_reassignments(orders)
        async for _ in client.admin.follow_reassignments(orders):
            pass
        outcomes = await client.admin.elect_leaders(orders)
    failed = [
        f"{tp}: {outcome}"
        for tp, outcome in outcomes.items()
        if outcome.code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    ]
    return "\n".join(failed) or None


sys.exit(asyncio.run(main(sys.argv[1], int(sys.argv[2]))))
