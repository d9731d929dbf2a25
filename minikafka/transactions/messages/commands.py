"""The commands of the transaction coordinator to its host: those of every coordinator, and three of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from minikafka.base.coordinators import Answer, Append
from minikafka.base.model import TopicPartition


class AllocateProducerId(NamedTuple):
    """Allocate a new producer id.

    The host then calls `TransactionCoordinator.allocated(token, producer_id, error, now)` exactly once.
    """

    token: int


class SendMarkers(NamedTuple):
    """Write the marker that ends a transaction to each of these partitions, and try again until it is written.

    The host calls `TransactionCoordinator.markers_written(ended, partitions, now)` for partitions whose log has the
    marker, or that were deleted. It calls `fenced(ended, now)` if a partition's leader knows a later
    coordinator. `partition`: the partition of `__transaction_state` of the transactional id.
    """

    partition: int
    ended: EndedTransaction
    partitions: Sequence[TopicPartition]


class DropMarkers(NamedTuple):
    """Stop sending markers for the transactional ids of this partition of `__transaction_state`."""

    partition: int


class EndedTransaction(NamedTuple):
    """What the markers of one ended transaction contain. `coordinator_epoch`: the coordinator's leader epoch.

    `number` is not in the markers. It tells the transactions of one epoch apart: a host returns it as it got it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    number: int = 0


Command: TypeAlias = Answer | Append | AllocateProducerId | SendMarkers | DropMarkers
