"""Administration requests to a broker: topics, partitions, settings.

`topics.py` creates topics and marks topics for deletion, `auto_create.py` creates topics on metadata
requests, `partitions.py` adds partitions, `configs.py` reads and alters settings, `users.py` credentials,
`quotas.py` quotas. The modules check requests, write through the stores of the coordination mode, and wait for the
results. Requests for reassignments and elections do not use this package: they go directly to the capability
`Administration`.
"""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.broker.admin.auto_create import AutoCreate
from minikafka.broker.admin.configs import ConfigAdmin
from minikafka.broker.admin.partitions import PartitionAdmin
from minikafka.broker.admin.quotas import QuotaAdmin
from minikafka.broker.admin.topics import TopicAdmin
from minikafka.broker.admin.users import UserAdmin
from minikafka.broker.turns import Pauses

__all__ = ["BrokerAdmin"]


@dataclass(frozen=True, slots=True)
class BrokerAdmin:
    """Administration of topics, partitions, settings and users by one broker."""

    topics: TopicAdmin
    auto_create: AutoCreate
    partitions: PartitionAdmin
    configs: ConfigAdmin
    users: UserAdmin
    quotas: QuotaAdmin
    pauses: Pauses
