"""ListOffsets for partitions of any topics: one request per leader."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import TopicPartition
from minikafka.client.metadata import Metadata, error_code
from minikafka.client.network import Address, Network, request
from minikafka.client.retries import Retries
from minikafka.kafka.wire.versions import LIST_OFFSETS

EARLIEST: Final = -2
"""Timestamp that asks for the first offset."""
LATEST: Final = -1
"""Timestamp that asks for the high watermark, or with READ_COMMITTED for the last stable offset."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
"""Kafka's isolation levels."""


class LogOffsets:
    """Offsets in the logs of partitions, looked up at the partition leaders."""

    def __init__(
        self,
        network: Network,
        metadata: Metadata,
        retries: Retries,
        request_timeout_ms: int,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._retries = retries
        self._timeout_ms = request_timeout_ms
        self._isolation_level = isolation_level

    async def __call__(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of each partition at a timestamp: EARLIEST, LATEST, or Unix ms.

        The offset is -1 if every record of the partition is older. Raises KafkaError for the first partition
        whose offset cannot be found within the time limit.
        """
        found: dict[TopicPartition, int] = {}

        async def attempt() -> None:
            left = {tp: at for tp, at in wanted.items() if tp not in found}
            offsets, errors = await self.look_up_once(left)
            found.update(offsets)
            for error in errors.values():
                raise error

        await self._retries(attempt, "the leaders of the partitions")
        return {tp: found[tp] for tp in wanted}

    async def look_up_once(
        self, wanted: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
        """Look up offsets without retries; return the offsets, and the errors of the partitions that failed."""
        errors: dict[TopicPartition, KafkaError] = {}
        leaders: defaultdict[Address, dict[TopicPartition, int]] = defaultdict(dict)
        for tp, at in wanted.items():
            try:
                leader = await self._metadata.leader(*tp)
                leaders[leader.address][tp] = at
            except KafkaError as error:
                errors[tp] = error
            except OSError as error:
                errors[tp] = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
        offsets: dict[TopicPartition, int] = {}
        answers = await asyncio.gather(*(self._ask(*asked) for asked in leaders.items()))
        for some, refused in answers:
            offsets |= some
            errors |= refused
        if errors:
            self._metadata.invalidate()
        return offsets, errors

    async def _ask(
        self, address: Address, wanted: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
        """Request offsets from one leader; return the offsets, and the errors of the partitions that failed."""
        topics: defaultdict[str, list[dict[str, int]]] = defaultdict(list)
        for tp, timestamp in wanted.items():
            row = {"partition_index": tp.partition, "timestamp": timestamp}
            topics[tp.topic].append({**row, "current_leader_epoch": -1})
        body: Any = request(
            LIST_OFFSETS,
            replica_id=-1,
            isolation_level=self._isolation_level,
            topics=[{"name": topic, "partitions": some} for topic, some in topics.items()],
        )
        try:
            response = await self._network.call(address, LIST_OFFSETS, self._timeout_ms, body)
        except OSError as error:
            failure = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
            return {}, dict.fromkeys(wanted, failure)
        offsets: dict[TopicPartition, int] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        for topic in response.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                code = error_code(p.error_code)
                if code is ErrorCode.NONE:
                    offsets[tp] = int(p.offset)
                else:
                    errors[tp] = AnsweredError(code, str(tp))
        return offsets, errors
