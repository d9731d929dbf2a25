"""The topics of a Fetch request that names topic ids (KIP-516, from version 13).

A request, a session and a response use the id wherever an earlier version uses the name. A replica has a name, and
its log has the id of the topic for which it was created. A topic that was deleted and created again has another id, so
no consumer reads the records of the new topic at an offset of the old one.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.replication.partition import Partition

_UNKNOWN_ID: Final = int(ErrorCode.UNKNOWN_TOPIC_ID)
_OTHER_ID: Final = int(ErrorCode.INCONSISTENT_TOPIC_ID)


class TopicIds:
    """Finds topics and partitions by topic id, for the fetches of one connection."""

    __slots__ = ("_find_by_id", "_replicas")

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._find_by_id = replicas.hosted.find_by_id

    def name(self, topic_id: bytes) -> bytes | None:
        """Return the name of the topic that has this id according to the metadata, None if there is none."""
        name = self._replicas.metadata.snapshot.topic_names.get(topic_id)
        return None if name is None else name.encode()

    def find(self, topic_id: bytes, number: int) -> Partition | None:
        """Return the partition if it is hosted and its log has this topic id, or none yet; else None."""
        partition = self._find_by_id(topic_id, number)
        return partition if partition is not None else self._find_without_id(topic_id, number)

    def _find_without_id(self, topic_id: bytes, number: int) -> Partition | None:
        name = self.name(topic_id)
        partition = None if name is None else self._replicas.find(name, number)
        return None if partition is None or partition.log.topic_id is not None else partition

    def error(self, name: bytes | None, number: int) -> int:
        """Return the error code for a partition that `find` does not return. `name`: of the topic, None if unknown."""
        if name is None:
            return _UNKNOWN_ID
        is_hosted = self._replicas.find(name, number) is not None
        return _OTHER_ID if is_hosted else self._replicas.error_for_wire(name, number)
