"""The logs of topics as the leaders serve them: all records and markers below the high watermarks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.checks.isolation.groups import Reader
from minikafka.checks.isolation.logs import Stored, stored
from minikafka.client import Client
from minikafka.tools.cluster.observation.access import BrokerAccess

_READ_MS: Final = 20_000
"""Time to find the leader of a partition and to read from it."""
LEADER: Final = -1
"""Stands for the broker of a log that its leader has served."""


@dataclass(slots=True)
class ReadLogs:
    """The logs of partitions by broker, their first offsets, and the committed offsets of groups.

    `missing`: the topics that do not exist. `unreadable`: why some logs could not be read.
    """

    replicas: dict[TopicPartition, dict[int, list[Stored]]] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[Reader, int] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    unreadable: list[str] = field(default_factory=list)


async def read(access: BrokerAccess, topics: Collection[str], groups: Collection[str]) -> ReadLogs:
    """Return the logs of these topics and the offsets of these groups, as far as the brokers answer."""
    found = ReadLogs()
    servers, connector = access
    try:
        async with Client(
            servers, connector=connector, delivery_timeout_ms=_READ_MS, api_timeout_ms=_READ_MS
        ) as client:
            existing = set(await client.list_topics())
            found.missing.update(set(topics) - existing)
            readable = sorted(existing.intersection(topics))
            await asyncio.gather(*(_read_topic(client, topic, found) for topic in readable))
            for group in sorted(groups):
                found.committed.update(await _committed(client, group))
    except (KafkaError, OSError) as error:
        found.unreadable.append(f"the logs on {servers} cannot be read: {error}")
    return found


async def _read_topic(client: Client, topic: str, found: ReadLogs) -> None:
    """Add the logs of a topic, or the reason why they cannot be read."""
    logs: dict[TopicPartition, list[Stored]] = {}
    starts: dict[TopicPartition, int] = {}
    try:
        ends = await client.list_offsets(topic, "latest")
        for partition, start in (await client.list_offsets(topic, "earliest")).items():
            tp = TopicPartition(topic, partition)
            starts[tp], logs[tp] = start, await _read_log(client, tp, start, ends.get(partition, 0))
    except (KafkaError, OSError) as error:
        found.unreadable.append(f"the log of {topic} cannot be read: {error}")
        return
    found.starts.update(starts)
    found.replicas.update({tp: {LEADER: log} for tp, log in logs.items()})


async def _read_log(client: Client, tp: TopicPartition, start: int, end: int) -> list[Stored]:
    """Return the log below the high watermark. `end`: the latest offset.

    A new leader may serve less than is committed, until it knows the high watermark. It does not tell the latest offset
    before (KIP-207), so the latest offset is asked again if a leader serves less.
    """
    entries: list[Stored] = []
    position = start
    while True:
        batches, high_watermark, _ = await client.fetch_batches(*tp, position)
        if high_watermark < end:
            end = (await client.list_offsets(tp.topic, "latest", [tp.partition]))[tp.partition]
            continue
        found = stored(batches, tp)
        entries += [entry for entry in found if position <= entry.offset < high_watermark]
        reached = entries[-1].offset + 1 if entries else start
        if reached <= position or reached >= high_watermark:
            return entries
        position = reached


async def _committed(client: Client, group: str) -> dict[Reader, int]:
    """Return the committed offsets of a group; nothing if its coordinator does not answer."""
    try:
        offsets = await client.groups.offsets(group)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED or error.code.retriable:
            return {}
        raise
    return {(f"group {group}", tp): one.offset for tp, one in offsets.items() if one.offset >= 0}
