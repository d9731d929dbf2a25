"""The requests of administrators, and the broker that may carry them out."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol, TypeVar

from minikafka.base.config import BrokerConfig
from minikafka.base.model import BrokerId, PartitionResult, ReplicaAssignment, TopicPartition

Result = TypeVar("Result")


class Administration(Protocol):
    """The requests of administrators. Each mode decides which broker may carry them out.

    On every other broker the requests raise KafkaError NOT_CONTROLLER.
    """

    @property
    def controller_id(self) -> BrokerId:
        """Id of the broker to which clients and brokers send these requests, -1 if there is none.

        In a mode in which every broker may carry them out, this is the broker's own id.
        """

    def check_may_act(self) -> None:
        """Raise KafkaError NOT_CONTROLLER if this broker may not carry out requests now."""

    async def wait_while_controller(self, call: Awaitable[Result]) -> Result:
        """Return the result of a call to the broker `controller_id`.

        Cancels the call and raises KafkaError NOT_CONTROLLER as soon as `controller_id` changes.
        """

    async def controlled_shutdown(
        self, broker_id: BrokerId, broker_epoch: int
    ) -> list[TopicPartition]:
        """Move the leaderships of a broker to other brokers; return the partitions that it still leads (R23).

        Raises KafkaError: NOT_CONTROLLER also if this broker resigns during the call, STALE_BROKER_EPOCH for an
        earlier registration, BROKER_NOT_AVAILABLE for an unregistered broker.
        """

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    ) -> dict[TopicPartition, PartitionResult]:
        """Start or replace reassignments (KIP-455, R57). A target of None cancels the reassignment."""

    async def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the partitions that are being reassigned. Raises KafkaError."""

    async def elect_leaders(
        self, *, unclean: bool, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionResult]:
        """Elect preferred or unclean leaders for these partitions (None: all partitions) (KIP-460, R61)."""

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        """Replace the broker settings that topics inherit and that decide about elections (KIP-226)."""
