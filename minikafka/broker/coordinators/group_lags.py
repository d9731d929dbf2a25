"""The lag of consumer groups as a metric of their coordinator.

The coordinator has the committed offsets, but the high watermarks are on the leaders of the partitions. It asks
the leaders when the metrics are read, so that the lag is up to date and costs nothing between two readings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Final

from minikafka.base.metrics import MetricKind, Metrics, Sample
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock
from minikafka.deciders.groups.group import Group

LAGS_MAX: Final = 10_000
"""Maximum number of partitions, counted in each group, whose lag one broker computes."""
REFRESH_MS: Final = 1_000
"""Minimum time between two questions to the leaders."""
_NEVER: Final = -REFRESH_MS

ReadEnds = Callable[[Collection[TopicPartition]], Awaitable[dict[TopicPartition, int]]]


class GroupLags:
    """Lag gauges of the groups that this broker coordinates. `read_ends` asks the leaders for high watermarks.

    The metrics have the names and labels of the usual exporters for Kafka. If a group has more partitions than LAGS_MAX
    leaves for it, it is left out. `kafka_consumergroup_lag_unknown` counts the partitions that are left out.
    """

    def __init__(
        self, metrics: Metrics, groups: Mapping[str, Group], read_ends: ReadEnds, clock: Clock
    ) -> None:
        self._groups = groups
        self._read_ends = read_ends
        self._clock = clock
        self._asked_at = _NEVER
        self._asking = asyncio.Lock()
        self._ends: dict[TopicPartition, int] = {}
        self._chosen: list[str] = []
        metrics.collect(
            "kafka_consumergroup_lag",
            MetricKind.GAUGE,
            "Committed records that the group has not committed yet: high watermark minus committed offset.",
            self._lags,
        )
        metrics.collect(
            "kafka_consumergroup_lag_unknown",
            MetricKind.GAUGE,
            "Partitions of groups without a lag: the leader does not answer, or the broker has too many groups.",
            self._unknown,
        )

    async def refresh(self) -> None:
        """Ask the leaders, at most once in REFRESH_MS. Concurrent calls wait for the same answers."""
        async with self._asking:
            now = self._clock.now()
            if now - self._asked_at < REFRESH_MS:
                return
            self._asked_at = now
            self._chosen = self._choose()
            wanted = {tp for name in self._chosen for tp in self._partitions(name)}
            self._ends = await self._read_ends(wanted) if wanted else {}

    def _choose(self) -> list[str]:
        """Return the ids of the groups whose lags fit into LAGS_MAX, the groups that exist longest first."""
        chosen, room = [], LAGS_MAX
        for name, group in self._groups.items():
            count = len(group.offsets)
            if 0 < count <= room:
                chosen.append(name)
                room -= count
        return chosen

    def _partitions(self, name: str) -> list[TopicPartition]:
        group = self._groups.get(name)
        return [] if group is None else list(group.offsets.partitions())

    def _lags(self) -> Iterator[Sample]:
        for name in self._chosen:
            for tp in self._partitions(name):
                committed = self._groups[name].offsets.fetch(tp)
                end = self._ends.get(tp)
                if end is not None and committed is not None:
                    labels = {
                        "consumergroup": name,
                        "topic": tp.topic,
                        "partition": str(tp.partition),
                    }
                    # A commit after the question can be beyond the end in the answer.
                    yield Sample(labels, max(end - committed.offset, 0))

    def _unknown(self) -> Iterator[Sample]:
        total = sum(len(group.offsets) for group in self._groups.values())
        known = sum(tp in self._ends for name in self._chosen for tp in self._partitions(name))
        yield Sample({}, total - known)
