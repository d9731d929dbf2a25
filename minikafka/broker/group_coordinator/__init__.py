"""The group coordinator of a broker: `minikafka.groups` with the logs, clients, clock and ledger of the broker."""

from minikafka.broker.group_coordinator.offsets_topic import OffsetsTopic
from minikafka.broker.group_coordinator.service import GroupService

__all__ = ["GroupService", "OffsetsTopic"]
