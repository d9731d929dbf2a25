"""What the handler of a Kafka request may use: one object per broker, given to every handler.

Invariant: a handler reaches the rest of the broker only through here, and through the few members that
the protocols below name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from minikafka.base.config import BrokerConfig
from minikafka.base.model import BrokerId, PartitionResult, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Clock, ControlPlane, Rng
from minikafka.broker.admin import Admin
from minikafka.broker.dynamic_config import DynamicConfig
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.producer_ids import ProducerIds
from minikafka.log.manager import Directory
from minikafka.replication.partition import Partition


class Replicas(Protocol):
    """The replicas of this broker, as handlers see them (`broker/replicas.py`)."""

    def partition(self, tp: TopicPartition) -> Partition | None:
        """The hosted replica, None when there is none."""

    def error_for(self, tp: TopicPartition) -> int:
        """0 for a leader here, else NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION or KAFKA_STORAGE_ERROR."""

    def log_directories(self) -> list[Directory]:
        """Every log directory and the replicas in it."""

    def room(self, directory: str) -> tuple[int, int]:
        """(total, usable) bytes of its disk. Raises StorageFailed."""


class Controller(Protocol):
    """The controller candidate of this broker, as handlers see it (`broker/zk_controller/`)."""

    @property
    def controller_id(self) -> BrokerId:
        """Who rules; -1 when nobody."""

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    ) -> dict[TopicPartition, PartitionResult]:
        """Start, replace or (None) cancel reassignments. Raises KafkaError(NOT_CONTROLLER)."""

    def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Partitions that are being reassigned. Raises KafkaError(NOT_CONTROLLER)."""

    async def elect_leaders(
        self, *, unclean: bool, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionResult]:
        """Elect leaders of these, None: of all. Raises KafkaError(NOT_CONTROLLER)."""


@dataclass(slots=True)
class Services:
    """Everything an API handler may use."""

    broker_id: BrokerId
    cluster_id: str
    config: BrokerConfig
    settings: DynamicConfig
    clock: Clock
    rng: Rng
    replicas: Replicas
    metadata: MetadataCache
    admin: Admin
    producer_ids: ProducerIds
    controller: Controller
    control_plane: ControlPlane


Entity: TypeAlias = Any
Handler: TypeAlias = Callable[[Services, Entity, int], Entity | bytes | Awaitable[Entity | bytes]]
"""(services, request entity, version) → response entity, or its body already encoded; sync unless it must wait."""
