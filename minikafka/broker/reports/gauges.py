"""The metrics of replicas, logs and topics under the names of Kafka's JMX beans, computed when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from minikafka.base.metrics import MetricKind, Metrics, Number, Sample
from minikafka.base.traffic import Traffic
from minikafka.broker.replicas.fetch_sessions import FetchSessions
from minikafka.broker.replicas.isr_changes import IsrChanges
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.replicas.throttles import ReplicationThrottles
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.throttle import Throttle

Led = list[Partition]
"""The partitions that this broker leads and can serve."""


def _is_under_replicated(partition: Partition) -> bool:
    return len(partition.isr) < len(partition.replicas) - len(partition.adding)


def _is_at_min_isr(partition: Partition) -> bool:
    return len(partition.isr) == partition.min_isr


MANAGER: Final[dict[str, tuple[str, Callable[[ReplicaManager, Led], int]]]] = {
    "PartitionCount": ("Partitions hosted.", lambda replicas, led: len(replicas.partitions)),
    "LeaderCount": ("Partitions that this broker leads.", lambda replicas, led: len(led)),
    "OpeningPartitionCount": (
        "Partitions that this broker leads and that are not open to clients yet.",
        lambda replicas, led: sum(not one.is_open for one in led),
    ),
    "ProducerIdCount": (
        "Producer ids that this broker keeps, counted for each partition.",
        lambda replicas, led: replicas.logs.producer_room.count,
    ),
    "OfflineReplicaCount": (
        "Replicas in log directories that failed.",
        lambda replicas, led: len(replicas.logs.offline),
    ),
    "UnderReplicatedPartitions": (
        "Led partitions whose ISR lacks a replica; replicas that a reassignment adds do not count.",
        lambda replicas, led: sum(map(_is_under_replicated, led)),
    ),
    "ReassigningPartitions": (
        "Led partitions that are being reassigned.",
        lambda replicas, led: sum(bool(one.adding or one.removing) for one in led),
    ),
    "UnderMinIsrPartitionCount": (
        "Led partitions whose ISR is below min.insync.replicas.",
        lambda replicas, led: sum(one.under_min_isr for one in led),
    ),
    "AtMinIsrPartitionCount": (
        "Led partitions whose ISR is exactly min.insync.replicas.",
        lambda replicas, led: sum(map(_is_at_min_isr, led)),
    ),
}
"""Gauges of the broker, computed from all replicas and from the partitions that it leads."""
ISR_CHANGES: Final[dict[str, tuple[str, Callable[[IsrChanges], int]]]] = {
    "IsrShrinksPerSec": ("Times that an ISR lost replicas.", lambda changes: changes.shrinks),
    "IsrExpandsPerSec": ("Times that an ISR gained a replica.", lambda changes: changes.expands),
    "FailedIsrUpdatesPerSec": (
        "ISR changes that could not be written.",
        lambda changes: changes.failures,
    ),
}
"""Counters of the changes that this broker made to the ISRs of partitions that it led."""
TRAFFIC: Final = {
    "MessagesIn": ("messages_in", "Records appended by producers."),
    "BytesIn": ("bytes_in", "Bytes of record batches appended by producers."),
    "BytesOut": ("bytes_out", "Bytes of record batches sent to consumers."),
    "TotalProduceRequests": ("produce_requests", "Record batches appended by producers."),
    "TotalFetchRequests": ("fetch_requests", "Reads of a partition by consumers."),
    "FailedProduceRequests": ("failed_produce_requests", "Record batches refused."),
    "BytesRejected": ("bytes_rejected", "Bytes of record batches refused as too large."),
    "FailedFetchRequests": ("failed_fetch_requests", "Reads of a partition refused."),
}
"""Counters of all topics and of each topic: the attribute of Traffic, and the help text."""
REPLICATION: Final = {
    "ReplicationBytesIn": ("replication_bytes_in", "Bytes fetched from leaders."),
    "ReplicationBytesOut": ("replication_bytes_out", "Bytes sent to followers."),
}
"""Counters of replication traffic, for all topics together. The values have the same form as in TRAFFIC."""
REPLICA: Final[dict[str, tuple[str, Callable[[Partition], int]]]] = {
    "Available": (
        "1 on the broker that serves clients as leader, else 0; the sum of all replicas is 0 while nobody does.",
        lambda partition: partition.is_open and not partition.offline,
    ),
}
"""Gauges of each partition that this broker hosts, including offline partitions."""
PARTITION: Final[dict[str, tuple[str, Callable[[Partition], int]]]] = {
    "UnderReplicated": (
        "1 if the ISR lacks a replica; replicas that a reassignment adds do not count.",
        _is_under_replicated,
    ),
    "UnderMinIsr": (
        "1 if the ISR is below min.insync.replicas.",
        lambda partition: partition.under_min_isr,
    ),
    "AtMinIsr": (
        "1 if the ISR is exactly min.insync.replicas.",
        _is_at_min_isr,
    ),
    "InSyncReplicasCount": ("Replicas in the ISR.", lambda partition: len(partition.isr)),
    "WaitingProduces": (
        "Produce requests that wait until the ISR has their records.",
        lambda partition: sum(
            waiter.waiting_for(partition) for waiter in partition.produce_waiting
        ),
    ),
    "ReplicasCount": ("Replicas of the partition.", lambda partition: len(partition.replicas)),
    "LastStableOffsetLag": (
        "Records between the last stable offset and the high watermark.",
        lambda partition: partition.high_watermark - partition.last_stable_offset,
    ),
}
"""Gauges of each partition that this broker leads."""
LOG: Final[dict[str, tuple[str, Callable[[Partition], int]]]] = {
    "Size": (
        "Bytes of the log.",
        lambda partition: partition.log.size,
    ),
    "NumLogSegments": ("Segments of the log.", lambda partition: len(partition.log.segments)),
    "LogStartOffset": ("First offset of the log.", lambda partition: partition.log_start_offset),
    "LogEndOffset": (
        "Offset of the next record.",
        lambda partition: partition.log.written_log_end_offset,
    ),
}
"""Gauges of the log of each partition that this broker hosts."""


def register_gauges(metrics: Metrics, replicas: ReplicaManager) -> None:
    """Register the metrics of replicas, logs, topics, throttles and fetch sessions."""
    _register_manager(metrics, replicas)
    _register_throttles(metrics, replicas.throttles)
    _register_logs(metrics, replicas)
    _register_traffic(metrics, replicas)
    _register_fetch_sessions(metrics, replicas.fetch_sessions)
    _register_partitions(metrics, replicas)


def _register_manager(metrics: Metrics, replicas: ReplicaManager) -> None:
    led: Led = []

    def refresh() -> None:
        led[:] = filter(_leads, replicas.partitions.values())

    metrics.before_read(refresh)
    bean = "kafka.server:type=ReplicaManager,name="
    for name, (doc, read) in MANAGER.items():
        metrics.gauge(bean + name, doc, partial(read, replicas, led))
    for name, (doc, count) in ISR_CHANGES.items():
        metrics.computed_counter(bean + name, doc, partial(count, replicas.isr_changes))


def _register_partitions(metrics: Metrics, replicas: ReplicaManager) -> None:
    for table, bean, is_shown in (
        (REPLICA, "cluster:type=Partition", _always),
        (PARTITION, "cluster:type=Partition", _leads),
        (LOG, "log:type=Log", _is_online),
    ):
        for name, (doc, read) in table.items():
            samples = _by_partition(replicas, is_shown, read)
            metrics.collect(f"kafka.{bean},name={name}", MetricKind.GAUGE, doc, samples)


def _register_throttles(metrics: Metrics, throttles: ReplicationThrottles) -> None:
    for type_, throttle, doc in (
        ("LeaderReplication", throttles.leader, "sent to"),
        ("FollowerReplication", throttles.follower, "fetched for"),
    ):
        metrics.collect(
            f"kafka.server:type={type_},name=byte-rate",
            MetricKind.GAUGE,
            f"Bytes per second {doc} throttled replicas.",
            partial(_rate, throttle),
        )


def _register_logs(metrics: Metrics, replicas: ReplicaManager) -> None:
    manager = "kafka.log:type=LogManager,name="
    metrics.gauge(
        manager + "OfflineLogDirectoryCount",
        "Log directories that failed.",
        lambda: replicas.logs.failed_directories,
    )
    upkeep = replicas.upkeep
    metrics.computed_counter(
        manager + "DeletedSegmentsPerSec",
        "Segments removed by retention, or below the log start offset.",
        lambda: upkeep.deleted_segments,
    )
    metrics.computed_counter(
        manager + "DeletedBytesPerSec",
        "Bytes of the segments removed by retention, or below the log start offset.",
        lambda: upkeep.deleted_bytes,
    )


def _register_fetch_sessions(metrics: Metrics, sessions: FetchSessions) -> None:
    bean = "kafka.server:type=FetchSessionCache,name="
    metrics.gauge(
        bean + "NumIncrementalFetchSessions",
        "Incremental fetch sessions of consumers and followers.",
        lambda: len(sessions.consumers),
    )
    metrics.gauge(
        bean + "NumIncrementalFetchPartitionsCached",
        "Partitions in the incremental fetch sessions.",
        sessions.partition_count,
    )
    metrics.computed_counter(
        bean + "IncrementalFetchSessionEvictionsPerSec",
        "Incremental fetch sessions evicted to make room for others.",
        lambda: sessions.consumers.evictions,
    )


def _register_traffic(metrics: Metrics, replicas: ReplicaManager) -> None:
    total = Traffic()
    topics = replicas.traffic

    def refresh() -> None:
        nonlocal total
        total = topics.total({tp.topic for tp in replicas.partitions})

    def of_all(attribute: str) -> Callable[[], Number]:
        return lambda: int(getattr(total, attribute))

    def by_topic(attribute: str) -> Callable[[], Iterator[Sample]]:
        return lambda: (
            Sample({"topic": topic}, getattr(traffic, attribute))
            for topic, traffic in tuple(topics.by_topic.items())
        )

    metrics.before_read(refresh)
    bean = "kafka.server:type=BrokerTopicMetrics,name="
    for name, (attribute, doc) in {**TRAFFIC, **REPLICATION}.items():
        metrics.computed_counter(f"{bean}{name}PerSec", doc, of_all(attribute))
    for name, (attribute, doc) in TRAFFIC.items():
        metrics.collect(f"{bean}{name}PerSec", MetricKind.COUNTER, doc, by_topic(attribute))


def _by_partition(
    replicas: ReplicaManager,
    is_shown: Callable[[Partition], bool],
    read: Callable[[Partition], int],
) -> Callable[[], Iterator[Sample]]:
    return lambda: (
        Sample({"topic": tp.topic, "partition": str(tp.partition)}, int(read(partition)))
        for tp, partition in tuple(replicas.partitions.items())
        if is_shown(partition)
    )


def _rate(throttle: Throttle) -> Iterator[Sample]:
    yield Sample({}, throttle.rate())


def _always(_: Partition) -> bool:
    return True


def _leads(partition: Partition) -> bool:
    return partition.is_leader and not partition.offline


def _is_online(partition: Partition) -> bool:
    return not partition.offline
