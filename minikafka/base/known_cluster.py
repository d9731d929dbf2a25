"""What a client has read about a cluster: the brokers, the controller, and the leaders of partitions.

The client (`client/metadata.py`) and the Spark package (`spark/wire/leaders.py`) request metadata, and keep the
responses here. Invariant: as long as a topic keeps its id, a response with an older leader epoch does not replace a
known leader, because the metadata of a broker may be outdated (KIP-320).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeAlias, TypeVar

from minikafka.base.model import NO_LEADER, BrokerId, TopicPartition

Address: TypeAlias = tuple[str, int]
"""Host and port of a broker."""
TopicId: TypeAlias = bytes | str


class LedPartition(Protocol):
    """One partition in a metadata response."""

    @property
    def leader(self) -> BrokerId:
        """Id of the leader, -1 if there is none."""

    @property
    def leader_epoch(self) -> int:
        """Leader epoch of the partition."""


P = TypeVar("P", bound=LedPartition)


class KnownCluster(Generic[P]):
    """The newest knowledge from the metadata responses of several brokers."""

    def __init__(self) -> None:
        self.brokers: Mapping[BrokerId, Address] = {}
        """The live brokers."""
        self.controller: Address | None = None
        """None if no live broker is the controller."""
        self._topic_ids: dict[str, TopicId] = {}
        self._topics: dict[str, dict[int, P]] = {}

    def learn_brokers(
        self, brokers: Mapping[BrokerId, Address], controller: Address | None
    ) -> None:
        """Replace the known brokers by the brokers in a response."""
        self.brokers = brokers
        self.controller = controller

    def learn_topic(self, name: str, topic_id: TopicId, received: Mapping[int, P]) -> dict[int, P]:
        """Add the partitions in a response; return all partitions of the topic as they are known now.

        `topic_id`: empty, or all zeros, if the topic has none.
        """
        known_id, known = self._topic_ids.get(name, ""), self._topics.get(name, {})
        if any(known_id) and any(topic_id) and known_id != topic_id:
            known = {}  # the topic was created again, and its leader epochs begin at 0 again
        # A topic loses no partition: a response that lacks a known one is outdated.
        partitions = {**known, **received}
        partitions |= {
            number: old for number, old in known.items() if _is_newer(old, than=partitions[number])
        }
        self._topic_ids[name], self._topics[name] = topic_id, partitions
        return partitions

    def forget_topic(self, name: str) -> None:
        """Forget a topic that does not exist in the last response."""
        self._topic_ids.pop(name, None)
        self._topics.pop(name, None)

    def forget_topics(self) -> None:
        """Forget all topics. They may be created again, with lower leader epochs."""
        self._topic_ids.clear()
        self._topics.clear()

    def topic_id(self, name: str) -> TopicId:
        """Return the id of a topic; "" if the topic is unknown."""
        return self._topic_ids.get(name, "")

    def partitions(self, names: Iterable[str]) -> list[TopicPartition]:
        """Return all known partitions of these topics, sorted."""
        known = {name: self._topics.get(name, {}) for name in names}
        return sorted(TopicPartition(name, n) for name, found in known.items() for n in found)

    def partition(self, tp: TopicPartition) -> P | None:
        """Return a partition as it is known; None if it is unknown."""
        return self._topics.get(tp.topic, {}).get(tp.partition)

    def address(self, tp: TopicPartition) -> Address | None:
        """Return the address of the partition's leader; None if no live leader is known."""
        known = self.partition(tp)
        return None if known is None else self.brokers.get(known.leader)


def _is_newer(known: LedPartition, than: LedPartition) -> bool:
    """True if the known leader is newer than the other. A partition without a leader is never newer."""
    return known.leader_epoch > than.leader_epoch and known.leader != NO_LEADER
