"""A broker's gauges under Kafka's own names, computed when somebody asks.

Invariant: what only the active controller knows is 0 everywhere else (D11).
"""

from __future__ import annotations

from minikafka.broker.coordinator import Controller
from minikafka.broker.replicas import ReplicaManager


def gauges(controller: Controller, replicas: ReplicaManager) -> dict[str, int]:
    """Name -> value; the names are those of Kafka's JMX beans, without type and domain."""
    ruled = controller.summary()
    hosted = list(replicas.partitions.values())
    led = [partition for partition in hosted if partition.is_leader and not partition.offline]
    return {
        "ActiveControllerCount": int(ruled["is_active"]),
        "OfflinePartitionsCount": ruled["offline_partition_count"],
        "PreferredReplicaImbalanceCount": ruled["preferred_replica_imbalance_count"],
        "GlobalTopicCount": ruled["topic_count"],
        "GlobalPartitionCount": ruled["partition_count"],
        "EventQueueSize": ruled["queue_size"],
        "PartitionCount": len(hosted),
        "LeaderCount": len(led),
        "OfflineReplicaCount": len(replicas.logs.offline),
        "UnderReplicatedPartitions": sum(len(p.isr) < len(p.replicas) for p in led),
        "UnderMinIsrPartitionCount": sum(p.under_min_isr for p in led),
    }
