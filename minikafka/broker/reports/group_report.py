"""Reports of this broker's coordinators for `minikafka why`. The functions only read."""

from __future__ import annotations

from typing import Any

from minikafka.base.model import NO_EPOCH, TopicPartition
from minikafka.base.names import GROUP_TOPIC, TRANSACTION_TOPIC
from minikafka.broker.coordinators.group_host import GroupHost
from minikafka.broker.coordinators.transaction_host import TransactionHost
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.reports.partition_report import leaders_of


def group_report(
    groups: GroupHost, replicas: ReplicaManager, metadata: MetadataCache, group: str, wall_ms: int
) -> dict[str, Any]:
    """Return what this broker knows about a consumer group.

    `time`, which is `wall_ms`, is the clock to which the other times in the answer belong. `leader_epoch`: that of the
    broker's replica of the group's partition, which shows the newest of several brokers that coordinate the group.
    """
    answer = groups.explain(group)
    home = replicas.partition(TopicPartition(GROUP_TOPIC, answer["partition"]))
    return {
        **answer,
        "time": wall_ms,
        "leaders": leaders_of(metadata, answer["group"]),
        "leader_epoch": NO_EPOCH if home is None else home.leader_epoch,
        "skipped_batches": groups.skipped(answer["partition"]),
    }


def skipped_batches(
    groups: GroupHost, transactions: TransactionHost, tp: TopicPartition
) -> list[dict[str, Any]]:
    """Return the corrupt batches of a partition that its coordinator has skipped."""
    if tp.topic == GROUP_TOPIC:
        return groups.skipped(tp.partition)
    return transactions.skipped(tp.partition) if tp.topic == TRANSACTION_TOPIC else []
