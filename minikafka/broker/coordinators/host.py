"""The host of a coordinator: it connects the coordinator to its internal topic, and to the roles of this broker.

Invariants: every append has exactly one outcome: committed, failed, or timed out. The state of a partition is dropped
in the same call that ends this broker's leadership, so that no request is answered from the state of an earlier epoch.
"""

from __future__ import annotations

from typing import Any, Final

from minikafka.base.coordinators import (
    Append,
    LeadershipBegun,
    LeadershipEnded,
    LoadPartition,
    TransactionEnded,
)
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Tasks
from minikafka.broker.coordinators.internal_topic import InternalTopic
from minikafka.broker.coordinators.loading import Loader
from minikafka.broker.host import CommandTable, Host, send_answer
from minikafka.broker.replicas.internal_appends import CoordinatorAppends
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.deciders.decider import Answer, Decider
from minikafka.kafka.records.transactions import Marker

_SKIPPED_MAX: Final = 10
"""Maximum number of corrupt batches of one partition in a report."""


class CoordinatorHost(Host):
    """The host of one coordinator of a broker. It must be created before the broker starts.

    `own`: the table of the commands that only this coordinator returns.
    """

    def __init__(
        self,
        coordinator: Decider,
        topic: InternalTopic,
        replicas: ReplicaManager,
        clock: Clock,
        tasks: Tasks,
        own: CommandTable,
    ) -> None:
        self.topic = topic
        self._name = topic.settings.name
        loading = replicas.turns.loading
        self._loader = Loader(self.handle, topic, replicas.reader, loading, clock, tasks)
        settings = topic.settings
        self._appends = CoordinatorAppends(
            replicas.appends,
            clock,
            settings.name,
            settings.codec,
            settings.append_timeout_ms,
            self.handle,
        )
        table: CommandTable = {
            Answer: send_answer,
            Append: self._appends.add,
            LoadPartition: self._loader.start,
            **own,
        }
        super().__init__(coordinator, table, clock)
        replicas.roles.add(self)
        replicas.appends.on_marker.append(self._marker_committed)

    def skipped(self, partition: int | None = None) -> list[dict[str, Any]]:
        """Return the batches without which the state of a partition (None: of all) was loaded, for diagnosis."""
        return [
            batch._asdict()
            for number, batches in self._loader.skipped.items()
            if partition in (None, number)
            for batch in batches[:_SKIPPED_MAX]
        ]

    def became_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Tell the coordinator that this broker has begun to lead a partition of the topic."""
        if tp.topic == self._name:
            self.handle(LeadershipBegun(tp.partition, leader_epoch))

    def became_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Tell the coordinator that this broker no longer leads a partition of the topic."""
        if tp.topic == self._name:
            self._loader.cancel(tp.partition)
            self.handle(LeadershipEnded(tp.partition))
            # Only now: the coordinator has answered the callers, and drops the outcomes of these appends.
            self._appends.drop(tp.partition)

    stopped = became_follower

    def _marker_committed(self, tp: TopicPartition, marker: Marker) -> None:
        """Tell the coordinator that a transaction has ended. A load in progress reads the marker from the log."""
        if tp.topic == self._name and not self._loader.is_loading(tp.partition):
            self.handle(TransactionEnded(tp.partition, *marker))
