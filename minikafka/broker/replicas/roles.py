"""The roles of the partitions that this broker hosts. Changes are reported to listeners, such as coordinators.

Invariant: every change is reported to every listener exactly once, in the order of the changes. The leader epoch
of a partition never decreases from one report to the next. After `stopped`, the next report may have any epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from minikafka.base.model import TopicPartition

logger = logging.getLogger(__name__)


class RoleListener(Protocol):
    """A component that loads and unloads state when roles change, such as a group coordinator.

    The methods are called synchronously while an order of the coordination mode is carried out, so each method must
    return within a millisecond. A listener spawns a task for longer work, such as reading the partition.
    """

    def became_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Called when this broker has become leader of the partition in this epoch, and can append to it.

        Called again, without a call of `stopped` in between, when this broker is still the leader in a later epoch.
        """

    def became_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Called when another broker, or no broker, leads the partition in this epoch.

        Also called when this broker leads the partition but is not open to clients. `became_leader` follows when it
        opens, in the same epoch.
        """

    def stopped(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Called when this broker no longer hosts the partition. `leader_epoch` is the last reported epoch.

        Reasons: StopReplica, deletion of the topic, an offline log directory, shutdown of the broker.
        """


class Roles:
    """The leader epoch last reported for each hosted partition, and the RoleListeners that receive the reports."""

    def __init__(self) -> None:
        self._listeners: list[RoleListener] = []
        self._epochs: dict[TopicPartition, int] = {}

    def add(self, listener: RoleListener) -> None:
        """Add a listener for role changes. Must be called before the broker starts."""
        assert not self._epochs, "a role listener must be added before the broker starts"
        self._listeners.append(listener)

    def leads(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Report to every RoleListener that this broker has become leader of the partition."""
        self._epochs[tp] = leader_epoch
        self._report(lambda listener: listener.became_leader(tp, leader_epoch))

    def follows(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Report to every RoleListener that this broker does not serve clients as leader of the partition."""
        self._epochs[tp] = leader_epoch
        self._report(lambda listener: listener.became_follower(tp, leader_epoch))

    def stopped(self, tp: TopicPartition) -> None:
        """Report to every RoleListener, once, that this broker no longer hosts the partition."""
        leader_epoch = self._epochs.pop(tp, None)
        if leader_epoch is not None:
            self._report(lambda listener: listener.stopped(tp, leader_epoch))

    def stopped_all(self) -> None:
        """Report to every RoleListener that this broker no longer hosts any partition."""
        for tp in tuple(self._epochs):
            self.stopped(tp)

    def _report(self, call: Callable[[RoleListener], None]) -> None:
        """Call every listener. An exception in a listener is logged and does not affect the other listeners."""
        for listener in self._listeners:
            try:
                call(listener)
            except Exception:
                logger.exception("%s failed on a change of roles", type(listener).__name__)
