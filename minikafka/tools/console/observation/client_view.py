"""What every client may see of a broker, in the form of its answer to `state`: for users without the right Describe.

Brokers refuse their state to users without this right on the cluster, and Apache Kafka's brokers do not know the
question. Their metadata and the offsets of the partitions that they lead are then all that is seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

from minikafka.base.coordination import CONTROLLER
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import NO_EPOCH, TopicPartition
from minikafka.client import Client, TopicInfo
from minikafka.client.log_offsets import EARLIEST, LATEST

LIMITED: Final = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)
"""The errors of brokers that answer only the questions of ordinary clients."""

Offsets = Mapping[TopicPartition, int]


async def state_for_clients(client: Client, broker: int) -> dict[str, Any]:
    """Return the replicas of a broker, with the offsets of those that it leads. Raises KafkaError."""
    info, topics = await client.admin.describe(retries=False)
    led = [
        TopicPartition(topic.name, number)
        for topic in topics
        for number, partition in topic.partitions.items()
        if partition.leader == broker
    ]
    look_up = client.log_offsets.look_up_once
    (starts, _), (ends, _) = await asyncio.gather(
        look_up(dict.fromkeys(led, EARLIEST)), look_up(dict.fromkeys(led, LATEST))
    )
    return {
        "replicas": [row for topic in topics for row in _rows(broker, topic, starts, ends)],
        "controller_epoch": NO_EPOCH,
        "is_controller": info.controller_id == broker,
        "coordination": CONTROLLER,
        "session_state": None,
        "metrics": {},
    }


def _rows(
    broker: int, topic: TopicInfo, starts: Offsets, ends: Offsets
) -> Iterator[dict[str, Any]]:
    for number, partition in topic.partitions.items():
        if broker not in partition.replicas:
            continue
        tp = TopicPartition(topic.name, number)
        start, end = starts.get(tp, 0), ends.get(tp, 0)
        yield {
            "topic": topic.name,
            "partition": number,
            "role": "leader" if partition.leader == broker else "follower",
            "opening": None,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "log_start_offset": start,
            "high_watermark": end,
            "log_end_offset": end,
            "last_stable_offset": end,
            "size": None,
        }


def refusal(error: KafkaError) -> str:
    """Return why a broker answers only the questions of ordinary clients, "" if `error` says something else."""
    return error.detail if error.code in LIMITED else ""
