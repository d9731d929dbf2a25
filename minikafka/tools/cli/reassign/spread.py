"""The plan of `reassign --generate`: replicas evenly on the given brokers and racks, with few moves.

A replica moves only if its broker is not among the given ones, if its partition then uses one more rack, or if its
broker has more replicas than another. The functions are pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from minikafka.base.model import Broker, BrokerId, TopicPartition

Replicas: TypeAlias = Mapping[TopicPartition, Sequence[BrokerId]]


def spread(current: Replicas, brokers: Sequence[Broker]) -> dict[TopicPartition, list[BrokerId]]:
    """Return the new replicas of each partition, the preferred leader first.

    No partition may have more replicas than there are brokers. Racks count if every broker has one.
    """
    racks = {broker.id: broker.rack for broker in sorted(brokers, key=lambda broker: broker.id)}
    if None in racks.values():
        racks = dict.fromkeys(racks, "")
    return _Spread(current, racks).plan()


class _Load:
    """The numbers of replicas, or of preferred leaders, on the brokers: of each topic, and in all."""

    def __init__(self) -> None:
        self._of_topics: Counter[tuple[str, BrokerId]] = Counter()
        self._in_all: Counter[BrokerId] = Counter()

    def add(self, topic: str, broker: BrokerId, number: int = 1) -> None:
        self._of_topics[topic, broker] += number
        self._in_all[broker] += number

    def move(self, topic: str, source: BrokerId, target: BrokerId) -> None:
        self.add(topic, source, -1)
        self.add(topic, target)

    def of(self, topic: str, broker: BrokerId) -> tuple[int, int]:
        """Return what orders brokers by their load: of the topic first, then in all."""
        return self._of_topics[topic, broker], self._in_all[broker]

    def is_better_on(self, topic: str, source: BrokerId, target: BrokerId) -> bool:
        """True if a move makes the topic more even, or all topics together without making this one less even."""
        (mine, my_all), (other, others_all) = self.of(topic, source), self.of(topic, target)
        return mine - other > 1 or (mine - other == 1 and my_all - others_all > 1)


class _Spread:
    """A plan in the making."""

    def __init__(self, current: Replicas, racks: Mapping[BrokerId, str | None]) -> None:
        self._racks = racks
        self._plan = {tp: list(replicas) for tp, replicas in sorted(current.items())}
        self._replicas, self._leaders = _Load(), _Load()

    def plan(self) -> dict[TopicPartition, list[BrokerId]]:
        gaps = {tp: self._remove_misplaced(tp) for tp in self._plan}
        for tp, indexes in gaps.items():
            self._fill(tp, indexes)
        while sum(map(self._has_moved_replica, self._plan)):
            pass
        for tp, replicas in self._plan.items():
            self._leaders.add(tp.topic, replicas[0])
        while sum(map(self._has_changed_leader, self._plan)):
            pass
        return self._plan

    def _remove_misplaced(self, tp: TopicPartition) -> list[int]:
        """Count the replicas that stay, and return the places of the others.

        A replica stays if its broker is among the given ones and its rack has no other one, or has to.
        """
        replicas = self._plan[tp]
        used, doubled, gaps = set(), [], []
        for index, broker in enumerate(replicas):
            if broker not in self._racks:
                gaps.append(index)
            elif self._racks[broker] in used:
                doubled.append(index)
            else:
                used.add(self._racks[broker])
        unused = len(set(self._racks.values()) - used)
        free = max(0, unused - len(gaps))
        gaps += doubled[len(doubled) - free :] if free else []
        for index, broker in enumerate(replicas):
            if index not in gaps:
                self._replicas.add(tp.topic, broker)
        return sorted(gaps)

    def _fill(self, tp: TopicPartition, gaps: Sequence[int]) -> None:
        """Give each gap the broker with the smallest load, in a rack without a replica if there is one."""
        replicas = self._plan[tp]
        kept = [broker for index, broker in enumerate(replicas) if index not in gaps]
        for index in gaps:
            used = {self._racks[broker] for broker in kept}
            chosen = min(
                (broker for broker in self._racks if broker not in kept),
                key=lambda broker: (
                    self._racks[broker] in used,
                    self._replicas.of(tp.topic, broker),
                ),
            )
            replicas[index] = chosen
            kept.append(chosen)
            self._replicas.add(tp.topic, chosen)

    def _has_moved_replica(self, tp: TopicPartition) -> bool:
        """Move one replica of the partition to a broker with a smaller load. Return False if there is none."""
        replicas = self._plan[tp]
        for index, source in enumerate(replicas):
            others = {self._racks[broker] for broker in replicas if broker != source}
            targets = [
                broker
                for broker in self._racks
                if broker not in replicas
                and (self._racks[broker] not in others or self._racks[source] in others)
                and self._replicas.is_better_on(tp.topic, source, broker)
            ]
            if targets:
                target = min(targets, key=lambda broker: self._replicas.of(tp.topic, broker))
                replicas[index] = target
                self._replicas.move(tp.topic, source, target)
                return True
        return False

    def _has_changed_leader(self, tp: TopicPartition) -> bool:
        """Put a replica first that leads less than the first one. Return False if there is none."""
        replicas = self._plan[tp]
        first = replicas[0]
        for index, other in enumerate(replicas):
            if self._leaders.is_better_on(tp.topic, first, other):
                replicas[0], replicas[index] = other, first
                self._leaders.move(tp.topic, first, other)
                return True
        return False
