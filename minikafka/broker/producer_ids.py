"""Producer ids for idempotent producers, unique in the cluster (R72).

Invariant: an id is handed out by at most one broker, once: blocks of 1000 are claimed by compare-and-set
on one znode, and a block whose claim's outcome is unknown is not used.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from minikafka.base.errors import BadVersion, CoordinationError
from minikafka.base.model import BrokerId
from minikafka.base.ports import Coordination
from minikafka.zk.layout import PRODUCER_ID_BLOCK, decode_producer_ids, encode_producer_ids

BLOCK: Final = 1000


class ProducerIds:
    """The block of producer ids that this broker holds."""

    def __init__(self, coordination: Coordination, broker_id: BrokerId) -> None:
        self._coordination = coordination
        self._broker_id = broker_id
        self._lock = asyncio.Lock()
        self._next = 0
        self._last = -1

    async def prepare(self) -> None:
        """Claim the first block, so that producers can begin while ZooKeeper is away.

        `next` tries again if that failed, also because the node is no block, and tells why.
        """
        async with self._lock:
            if self._next > self._last:
                with suppress(CoordinationError, ValueError):
                    self._next, self._last = await self._claim()

    async def next(self) -> int:
        """A producer id no one else has. Raises CoordinationError when no block could be claimed."""
        async with self._lock:
            if self._next > self._last:
                self._next, self._last = await self._claim()
            producer_id = self._next
            self._next += 1
            return producer_id

    async def _claim(self) -> tuple[int, int]:
        """(first, last) of a new block."""
        while True:
            data, stat = await self._coordination.get(PRODUCER_ID_BLOCK)
            first = decode_producer_ids(data)[2] + 1 if data else 0
            last = first + BLOCK - 1
            block = encode_producer_ids(self._broker_id, first, last)
            try:
                await self._coordination.set(PRODUCER_ID_BLOCK, block, stat.version)
            except BadVersion:
                continue
            return first, last
