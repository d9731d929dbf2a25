"""The logs of topics as the leaders serve them: all records and markers below the high watermarks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

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


class ReadLogs(NamedTuple):
    """The logs of partitions by broker, their first offsets, and the committed offsets of groups."""

    replicas: dict[TopicPartition, dict[int, list[Stored]]]
    starts: dict[TopicPartition, int]
    committed: dict[Reader, int]
    missing: set[str]
    """The topics that do not exist."""


async def read(access: BrokerAccess, topics: Collection[str], groups: Collection[str]) -> ReadLogs:
    """Return the logs of these topics and the offsets of these groups. Raises KafkaError."""
    found = ReadLogs({}, {}, {}, set())
    servers, connector = access
    async with Client(
        servers, connector=connector, delivery_timeout_ms=_READ_MS, api_timeout_ms=_READ_MS
    ) as client:
        existing = set(await client.list_topics())
        found.missing.update(set(topics) - existing)
        for topic in sorted(existing.intersection(topics)):
            for partition, start in (await client.list_offsets(topic, "earliest")).items():
                tp = TopicPartition(topic, partition)
                found.starts[tp] = start
                found.replicas[tp] = {LEADER: await _read_log(client, tp, start)}
        for group in sorted(groups):
            found.committed.update(await _committed(client, group))
    return found


async def _read_log(client: Client, tp: TopicPartition, start: int) -> list[Stored]:
    entries: list[Stored] = []
    position = start
    while True:
        batches, high_watermark, _ = await client.fetch_batches(*tp, position)
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
