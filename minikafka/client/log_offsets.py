"""ListOffsets for partitions of any topics: one request per leader."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client.metadata import Leader, Metadata, error_code
from minikafka.client.network import Address, Network, request
from minikafka.client.retries import Retries
from minikafka.wire.versions import LIST_OFFSETS

EARLIEST: Final = -2
"""Timestamp that asks for the first offset."""
LATEST: Final = -1
"""Timestamp that asks for the high watermark."""


class LogOffsets:
    """Offsets in the logs of partitions, looked up at their leaders."""

    def __init__(
        self, network: Network, metadata: Metadata, retries: Retries, request_timeout_ms: int
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._retries = retries
        self._timeout_ms = request_timeout_ms

    async def __call__(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of each partition at a timestamp: EARLIEST, LATEST, or Unix ms.

        The offset is -1 where every record is older. Raises KafkaError for the first partition whose offset
        cannot be found within the time limit.
        """
        found: dict[TopicPartition, int] = {}

        async def attempt() -> None:
            left = {tp: at for tp, at in wanted.items() if tp not in found}
            leaders: defaultdict[Leader, dict[TopicPartition, int]] = defaultdict(dict)
            for tp, at in left.items():
                leader = await self._metadata.leader(*tp)
                leaders[leader._replace(leader_epoch=-1)][tp] = at
            asked = (self._ask(leader.address, some) for leader, some in leaders.items())
            codes: dict[TopicPartition, ErrorCode] = {}
            for offsets, refused in await asyncio.gather(*asked):
                found.update(offsets)
                codes.update(refused)
            for tp, code in codes.items():
                raise KafkaError(code, str(tp))

        await self._retries(attempt)
        return {tp: found[tp] for tp in wanted}

    async def _ask(
        self, address: Address, wanted: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ErrorCode]]:
        """Return the offsets that one leader knows, and the codes of the others."""
        topics: defaultdict[str, list[dict[str, int]]] = defaultdict(list)
        for tp, timestamp in wanted.items():
            topics[tp.topic].append(
                {
                    "partition_index": tp.partition,
                    "current_leader_epoch": -1,
                    "timestamp": timestamp,
                }
            )
        body: Any = request(
            LIST_OFFSETS,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": topic, "partitions": some} for topic, some in topics.items()],
        )
        response = await self._network.call(address, LIST_OFFSETS, self._timeout_ms, body)
        offsets: dict[TopicPartition, int] = {}
        codes: dict[TopicPartition, ErrorCode] = {}
        for topic in response.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                code = error_code(p.error_code)
                if code is ErrorCode.NONE:
                    offsets[tp] = int(p.offset)
                else:
                    codes[tp] = code
        return offsets, codes
