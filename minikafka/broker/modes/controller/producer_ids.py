"""The blocks of producer ids in ZooKeeper."""

from __future__ import annotations

from typing import Final

from minikafka.base.model import BrokerId
from minikafka.base.ports import ZooKeeper
from minikafka.zk.nodes import ids

PRODUCER_ID_BLOCK: Final = 1000
"""Number of producer ids that a broker claims at a time, as in Kafka."""


class ZooKeeperProducerIds:
    """ZooKeeper implementation of the capability ProducerIdStore."""

    def __init__(self, zookeeper: ZooKeeper, broker_id: BrokerId) -> None:
        self._zookeeper = zookeeper
        self._broker_id = broker_id

    async def claim(self) -> tuple[int, int]:
        """Claim a block of producer ids; return its first and last id (R72)."""
        return await ids.claim_producer_ids(self._zookeeper, self._broker_id, PRODUCER_ID_BLOCK)
