"""Administration requests to a broker: topics, partitions, settings.

`topics.py` creates topics and marks them for deletion, `auto_create.py` creates topics on metadata
requests, `partitions.py` adds partitions, `configs.py` shows and alters settings. They check
requests, write through the ports in `broker/coordinator.py`, and wait for results. Reassignments and
elections do not pass through this package but go directly to the controller.
"""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.broker.admin.auto_create import AutoCreate
from minikafka.broker.admin.configs import ConfigAdmin
from minikafka.broker.admin.partitions import PartitionAdmin
from minikafka.broker.admin.topics import TopicAdmin
from minikafka.broker.give_way import GiveWay

__all__ = ["Admin"]


@dataclass(frozen=True, slots=True)
class Admin:
    """Administration of topics, partitions and settings by one broker."""

    topics: TopicAdmin
    auto_create: AutoCreate
    partitions: PartitionAdmin
    configs: ConfigAdmin
    give_way: GiveWay
