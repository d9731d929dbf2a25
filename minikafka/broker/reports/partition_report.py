"""Reports on this broker's replicas for `minikafka status`, and on a partition or group for `minikafka why`.

The functions only read. Offsets are current. The times when a follower last fetched and was last caught
up are given as ages in milliseconds, by this broker's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minikafka.base.config import BrokerConfig
from minikafka.base.config.keys import LONG_MAX
from minikafka.base.errors import ErrorCode, KafkaError, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.replicas.orders import missing_members
from minikafka.storage.log.retention import earliest_timestamp
from minikafka.storage.replication.isr import Committed, PendingExpand
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.progress import FollowerProgress

CompactionOf = Callable[[Partition], dict[str, Any] | None]
"""The type of `LogCleaner.report`, which returns the compaction state of a log; None if it is not compacted."""


def partition_asked(body: dict[str, Any]) -> TopicPartition:
    """Return the partition named in the body of an RPC call. Raises KafkaError INVALID_REQUEST."""
    topic, number = body.get("topic"), body.get("partition")
    if not isinstance(topic, str) or not isinstance(number, int):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "name a topic (text) and a partition (number)")
    return TopicPartition(topic, number)


def group_asked(body: dict[str, Any]) -> str:
    """Return the group named in the body of an RPC call. Raises KafkaError INVALID_REQUEST."""
    group = body.get("group")
    if not isinstance(group, str):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "name a group (text)")
    return group


def leaders_of(metadata: MetadataCache, group: dict[str, Any] | None) -> list[list[Any]]:
    """Return [topic, partition, leader] for the partitions that a group reads, from this broker's metadata.

    A group reads all partitions of the topics to which its members subscribe. If there are no such topics, it
    reads all partitions of the topics with committed offsets. `group`: the group's report
    (`deciders/groups/report.py`), None if this broker does not have the group.
    """
    if group is None:
        return []
    topics = group["topics"] or sorted({topic for topic, *_ in group["offsets"]})
    return [
        [topic, number, state.leader]
        for topic in topics
        for number, state in sorted(metadata.topics.get(topic, {}).items())
    ]


def replica_of(
    replicas: ReplicaManager,
    compaction_of: CompactionOf,
    config: BrokerConfig,
    tp: TopicPartition,
    now: int,
    wall_ms: int,
) -> dict[str, Any] | None:
    """Return the state of this broker's replica of the partition, None if the broker has no replica.

    `now`: monotonic ms. `wall_ms`: Unix ms.
    """
    partition = replicas.partition(tp)
    if partition is None:
        if tp not in replicas.logs.offline:
            return None
        return {"role": "offline", "leader_epoch": -1, "isr": [], "replicas": []}
    return {
        "role": _role(partition),
        "opening": _opening(partition),
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "pending_isr": _pending(partition),
        "min_isr": min(partition.min_isr, len(partition.replicas)),
        "log_start_offset": partition.log.log_start_offset,
        "log_end_offset": partition.log.log_end_offset,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "open_transactions": _open_transactions(partition, wall_ms),
        "epoch_start_offset": partition.epoch_start_offset,
        "epochs": [list(entry) for entry in partition.log.epochs.entries],
        "waiting_connections": len(partition.produce_waiting),
        "followers": [_follower(progress, now) for progress in partition.followers.values()],
        "lag_max_ms": config.replica_lag_time_max_ms,
        "compaction": compaction_of(partition),
        "throttles": _throttles(partition),
    }


def _throttles(partition: Partition) -> dict[str, int]:
    """Return the rates in bytes per second that limit this replica, by the key of the broker's setting."""
    throttle = partition.leader_throttle if partition.is_leader else partition.follower_throttle
    role = "leader" if partition.is_leader else "follower"
    if throttle is None or throttle.limit == LONG_MAX:
        return {}
    return {f"{role}.replication.throttled.rate": throttle.limit}


def row_of(partition: Partition, compaction_of: CompactionOf) -> dict[str, Any]:
    """Return the state of a replica that this broker hosts (B1, B2).

    The dictionary has role, leader, ISR, offsets, bytes, waiting produce requests, log directory and compaction.
    `opening` has the members of the ISR for which an opening leader waits; it is None for every other replica.
    """
    return {
        "topic": partition.tp.topic,
        "partition": partition.tp.partition,
        "role": _role(partition),
        "opening": _opening(partition),
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
        "replicas": list(partition.replicas),
        "adding": list(partition.adding),
        "removing": list(partition.removing),
        "log_end_offset": partition.log.log_end_offset,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "log_start_offset": partition.log.log_start_offset,
        "size": partition.log.size,
        "earliest_timestamp": _earliest_timestamp(partition),
        "waiting_produces": sum(
            waiter.waiting_for(partition) for waiter in partition.produce_waiting
        ),
        "directory": partition.log.directory,
        "compaction": compaction_of(partition),
    }


def _open_transactions(partition: Partition, wall_ms: int) -> list[dict[str, int]]:
    """Return the producers with a transaction that has no marker in the log."""
    return [
        {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "start_offset": producer.transaction_start,
            "last_record_ms": max(wall_ms - producer.last_timestamp, 0),
        }
        for producer in partition.log.producers.active()
        if producer.transaction_start >= 0
    ]


def _role(partition: Partition) -> str:
    if partition.offline:
        return "offline"
    return "leader" if partition.is_leader else "follower"


def _opening(partition: Partition) -> list[int] | None:
    """Return the live members of the ISR for which an opening leader waits; None for every other replica."""
    if not partition.is_leader or partition.is_open or partition.offline:
        return None
    return sorted(filter(partition.is_alive, missing_members(partition)))


def _earliest_timestamp(partition: Partition) -> int | None:
    """Return the timestamp (Unix ms) of the log's first batch, None if the log is empty or cannot be read."""
    try:
        timestamp = -1 if partition.offline else earliest_timestamp(partition.log)
    except StorageFailed:
        return None
    return timestamp if timestamp >= 0 else None


def _pending(partition: Partition) -> dict[str, Any] | None:
    """Return the ISR change that is being written, None if there is none."""
    state = partition.isr_state
    if isinstance(state, Committed):
        return None
    change = "expand" if isinstance(state, PendingExpand) else "shrink"
    return {"change": change, "isr": list(state.proposed)}


def _follower(progress: FollowerProgress, now: int) -> dict[str, Any]:
    """Return the leader's state of one follower. The offset is None until the follower fetches in this leader epoch."""
    last_fetch = progress.item.last_fetch() if progress.item is not None else None
    return {
        "broker": progress.broker_id,
        "log_end_offset": progress.offset if progress.offset >= 0 else None,
        "last_fetch_ms": None if last_fetch is None else now - last_fetch,
        "last_caught_up_ms": now - progress.last_caught_up,
    }


def settings_of(
    replicas: ReplicaManager, config: BrokerConfig, tp: TopicPartition
) -> dict[str, Any]:
    """Return the settings that `minikafka why` shows, by Kafka key.

    The settings of the topic are included only if this broker hosts the partition.
    """
    settings = {
        "delete.topic.enable": config.delete_topic_enable,
        "auto.leader.rebalance.enable": config.auto_leader_rebalance_enable,
        "leader.imbalance.check.interval.seconds": config.leader_imbalance_check_interval_seconds,
        "replica.lag.time.max.ms": config.replica_lag_time_max_ms,
    }
    if replicas.partition(tp) is not None:
        own = replicas.configs.get(tp.topic)
        settings["unclean.leader.election.enable"] = own.unclean_leader_election_enable
        settings["min.insync.replicas"] = own.min_insync_replicas
    return settings


def metadata_of(metadata: MetadataCache, tp: TopicPartition) -> dict[str, Any] | None:
    """Return the state of the partition in this broker's metadata, None if the metadata lacks the partition."""
    state = metadata.topics.get(tp.topic, {}).get(tp.partition)
    if state is None:
        return None
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "replicas": list(state.replicas),
        "offline": list(state.offline),
    }
