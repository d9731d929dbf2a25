"""The metrics of the group coordinator under the names of Kafka's JMX beans."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from minikafka.base.metrics import Metrics
from minikafka.groups.coordinator import GroupCoordinator
from minikafka.groups.state.states import GroupState

_BEAN: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="


class GroupGauges:
    """Gauges for the number of groups, in total and by state, and for the number of committed offsets.

    The groups are counted once each time the metrics are read.
    """

    def __init__(self, metrics: Metrics, core: GroupCoordinator) -> None:
        self._core = core
        self._states: Counter[GroupState] = Counter()
        metrics.before_read(self._refresh)
        metrics.gauge(_BEAN + "NumGroups", "Groups of this coordinator.", self._states.total)
        metrics.gauge(_BEAN + "NumOffsets", "Committed offsets of those groups.", self._offsets)
        for state in GroupState:
            metrics.gauge(
                f"{_BEAN}NumGroups{state.value}",
                f"Groups in the state {state.value}.",
                partial(self._states.__getitem__, state),
            )

    def _refresh(self) -> None:
        self._states.clear()
        self._states.update(self._core.state_counts())

    def _offsets(self) -> int:
        return sum(len(group.offsets) for group in self._core.groups.values())
