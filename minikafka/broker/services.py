"""What the handler of a Kafka request may use: one object per broker, given to every handler.

Invariant: a handler reaches the rest of the broker only through here, and through the few members that
the protocols below name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from minikafka.base.config import BrokerConfig
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import Clock, ControlPlane, Rng
from minikafka.broker.admin import Controller, TopicAdmin
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.producer_ids import ProducerIds
from minikafka.replication.partition import Partition


class Replicas(Protocol):
    """The replicas of this broker, as handlers see them (`broker/replicas.py`)."""

    def partition(self, tp: TopicPartition) -> Partition | None:
        """The hosted replica, None when there is none."""

    def error_for(self, tp: TopicPartition) -> int:
        """0 for a leader here, else NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION or KAFKA_STORAGE_ERROR."""


@dataclass(slots=True)
class Services:
    """Everything an API handler may use."""

    broker_id: BrokerId
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    rng: Rng
    replicas: Replicas
    metadata: MetadataCache
    admin: TopicAdmin
    producer_ids: ProducerIds
    controller: Controller
    control_plane: ControlPlane


Entity: TypeAlias = Any
Handler: TypeAlias = Callable[[Services, Entity, int], Entity | bytes | Awaitable[Entity | bytes]]
"""(services, request entity, version) → response entity, or its body already encoded; sync unless it must wait."""
