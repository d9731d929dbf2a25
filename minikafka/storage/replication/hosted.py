"""The partitions that a broker hosts, found by topic name or topic id as requests contain them."""

from __future__ import annotations

from minikafka.base.model import TopicPartition
from minikafka.storage.replication.partition import Partition


class HostedPartitions:
    """All partitions of a broker. `partitions`: the partitions by topic and number.

    A log gets its topic id before its partition is added here. The log of an old topic may have none yet.
    """

    __slots__ = ("_by_id", "_by_name", "partitions")

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, Partition] = {}
        self._by_name: dict[tuple[bytes, int], Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}

    def add(self, partition: Partition) -> None:
        """Add a partition."""
        number, topic_id = partition.tp.partition, partition.log.topic_id
        self.partitions[partition.tp] = self._by_name[partition.topic, number] = partition
        if topic_id is not None:
            self._by_id[topic_id, number] = partition

    def remove(self, tp: TopicPartition) -> Partition | None:
        """Remove and return a partition; return None if it is not hosted."""
        partition = self.partitions.pop(tp, None)
        if partition is not None:
            del self._by_name[partition.topic, tp.partition]
            topic_id = partition.log.topic_id
            if topic_id is not None:
                self._by_id.pop((topic_id, tp.partition), None)
        return partition

    def find(self, topic: bytes, number: int) -> Partition | None:
        """Return the partition if it is hosted, else None. `topic` is the topic name in UTF-8."""
        return self._by_name.get((topic, number))

    def find_by_id(self, topic_id: bytes, number: int) -> Partition | None:
        """Return the partition if it is hosted and its log has this topic id, else None."""
        return self._by_id.get((topic_id, number))
