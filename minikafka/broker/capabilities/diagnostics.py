"""The state of the cluster's coordination, for metrics and for the commands `status`, `why` and `plan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from minikafka.base.model import TopicPartition


class Diagnostics(Protocol):
    """The state that people see. All results can be encoded as JSON."""

    @property
    def is_active(self) -> bool:
        """True if this broker is the active controller; always False in a mode without one."""

    @property
    def epoch(self) -> int:
        """Controller epoch of the last controller election that this broker won; -1 if it has won none."""

    def summary(self) -> dict[str, Any]:
        """Return a summary of the controller's state. If this broker is not the controller, all counts are 0 (B5, D11).

        Metrics and `minikafka status` need these keys: controller_id, is_active, epoch, queue_size, topic_count,
        partition_count, offline_partition_count, preferred_replica_imbalance_count, replicas_to_delete and
        replicas_ineligible_for_deletion.
        """

    def view(self, tp: TopicPartition) -> dict[str, Any] | None:
        """Return the mode's state of a partition: the active controller's; None if this broker is not the controller.

        In a mode without a controller: the state of this broker's replica, None if it has none.
        """

    def backlog(self) -> dict[str, int]:
        """Return the number of state changes that each broker has not carried out, by broker id (C39).

        They are the requests of the controller that a broker has not answered, and the result is empty if this broker
        is not the controller. In a mode without a controller, they are the requests that wait for the broker.
        """

    async def plan(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the actions that an operation would cause, as ledger lines. `question`: operation and arguments.

        Raises KafkaError: NOT_CONTROLLER, REQUEST_TIMED_OUT if the controller stays busy, INVALID_REQUEST.
        """
