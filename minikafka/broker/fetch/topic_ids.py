"""The topics of a Fetch request that names topic ids (KIP-516, from version 13).

A request, a session and a response use the id wherever an earlier version uses the name. A replica has a name, and
its log has the id of the topic for which it was created. A topic that was deleted and created again has another id, so
no consumer reads the records of the new topic at an offset of the old one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.replication.partition import Partition

_UNKNOWN_ID: Final = int(ErrorCode.UNKNOWN_TOPIC_ID)
_OTHER_ID: Final = int(ErrorCode.INCONSISTENT_TOPIC_ID)


class TopicIds:
    """The topics of one fetch. `names`: the topic names in UTF-8 by id; None for an id that is unknown."""

    __slots__ = ("_replicas", "names")

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self.names: dict[bytes, bytes | None] = {}

    def name(self, topic_id: bytes) -> bytes | None:
        """Return the name of the topic that has this id according to the metadata, None if there is none."""
        name = self._replicas.metadata.snapshot.topic_names.get(topic_id)
        return None if name is None else name.encode()

    def resolve(self, topic_ids: Iterable[bytes]) -> None:
        """Add the current names of these topics."""
        for topic_id in topic_ids:
            self.names[topic_id] = self.name(topic_id)

    def find(self, topic_id: bytes, number: int) -> Partition | None:
        """Return the partition if it is hosted and its log has this topic id, or none yet; else None."""
        name = self.names.get(topic_id)
        if name is None:
            return None
        partition = self._replicas.find(name, number)
        if partition is None:
            return None
        found = partition.log.topic_id
        return partition if found == topic_id or found is None else None

    def error(self, topic_id: bytes, number: int) -> int:
        """Return the error code for a partition that `find` does not return."""
        name = self.names.get(topic_id)
        if name is None:
            return _UNKNOWN_ID
        is_hosted = self._replicas.find(name, number) is not None
        return _OTHER_ID if is_hosted else self._replicas.error_for_wire(name, number)
