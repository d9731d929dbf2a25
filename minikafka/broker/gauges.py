"""The metrics of a broker that are computed when they are read, under the names of Kafka's JMX beans.

Invariant: metrics that only the active controller knows are 0 on every other broker (D11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from minikafka.base.metrics import Kind, Metrics, Number, Sample
from minikafka.base.traffic import Traffic
from minikafka.broker.coordinator import Controller
from minikafka.broker.fetch_sessions import FetchSessions
from minikafka.broker.replicas import ReplicaManager
from minikafka.replication.partition import Partition
from minikafka.replication.throttle import Throttle

CONTROLLER: Final = {
    "ActiveControllerCount": ("is_active", "1 on the active controller, else 0."),
    "OfflinePartitionsCount": ("offline_partition_count", "Partitions without a leader."),
    "PreferredReplicaImbalanceCount": (
        "preferred_replica_imbalance_count",
        "Partitions that their preferred replica does not lead.",
    ),
    "GlobalTopicCount": ("topic_count", "Topics of the cluster."),
    "GlobalPartitionCount": ("partition_count", "Partitions of the cluster."),
    "ReplicasToDeleteCount": (
        "replicas_to_delete",
        "Replicas of topics being deleted that are not deleted yet.",
    ),
    "ReplicasIneligibleToDeleteCount": (
        "replicas_ineligible_for_deletion",
        "Replicas whose deletion waits, for example for their broker, which is down.",
    ),
}
"""Gauges of the active controller: the key in its summary, and the help text."""
CONTROLLER_LISTS: Final = {
    "ActiveBrokerCount": ("brokers", "Live brokers."),
    "TopicsToDeleteCount": ("topics_marked_for_deletion", "Topics being deleted."),
    "TopicsIneligibleToDeleteCount": (
        "topics_ineligible_for_deletion",
        "Topics whose deletion waits, for example for a broker that is down.",
    ),
}
"""Gauges of the active controller that count the entries of a list in its summary."""
CONTROLLER_STATES: Final = {
    "Idle": 0,
    "ControllerChange": 1,
    "BrokerChange": 2,
    "TopicChange": 3,
    "PartitionModifications": 3,
    "TopicDeletion": 4,
    "StopReplicaAnswered": 4,
    "ReassignmentsRequested": 5,
    "ZkPartitionReassignment": 5,
    "PartitionReassignmentIsrChange": 5,
    "RebalanceDue": 6,
    "ElectionRequested": 7,
    "ReplicaLeaderElection": 7,
    "ControlledShutdownRequested": 8,
    "IsrChange": 9,
    "LeaderAndIsrAnswered": 10,
    "LogDirChange": 11,
    "UncleanElectionEnabled": 13,
}
"""Kafka's number of each state in the controller's summary. Kafka has a number of its own, 14, for single topics in
which unclean elections were enabled."""
UNCLEAN: Final = (
    "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
    "Leaders elected outside the ISR by this controller since its election, in all and by partition.",
)
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
"""Counters of all topics together, like TRAFFIC."""
REPLICA: Final[dict[str, tuple[str, Callable[[Partition], int]]]] = {
    "Available": (
        "1 on the broker that leads the partition, else 0; the sum of all replicas is 0 while nobody leads it.",
        lambda partition: partition.is_leader and not partition.offline,
    ),
}
"""Gauges of each partition that this broker hosts, offline ones included."""
PARTITION: Final[dict[str, tuple[str, Callable[[Partition], int]]]] = {
    "UnderReplicated": (
        "1 if the ISR lacks a replica; replicas that a reassignment adds do not count.",
        lambda partition: len(partition.isr) < len(partition.replicas) - len(partition.adding),
    ),
    "UnderMinIsr": (
        "1 if the ISR is below min.insync.replicas.",
        lambda partition: partition.under_min_isr,
    ),
    "AtMinIsr": (
        "1 if the ISR is exactly min.insync.replicas.",
        lambda partition: len(partition.isr) == partition.min_isr,
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
"""Gauges of each partition that this broker hosts."""


def register_gauges(metrics: Metrics, controller: Controller, replicas: ReplicaManager) -> None:
    """Register every metric of the controller, the replicas and the topics that needs no counter of its own."""
    _register_controller(metrics, controller)
    _register_replicas(metrics, replicas)
    _register_logs(metrics, replicas)
    _register_traffic(metrics, replicas)
    _register_fetch_sessions(metrics, replicas.fetch_sessions)
    for table, bean, is_hosted in (
        (REPLICA, "cluster:type=Partition", _always),
        (PARTITION, "cluster:type=Partition", _leads),
        (LOG, "log:type=Log", _is_online),
    ):
        for name, (doc, read) in table.items():
            metrics.collect(
                f"kafka.{bean},name={name}",
                Kind.GAUGE,
                doc,
                _by_partition(replicas, is_hosted, read),
            )


def _register_controller(metrics: Metrics, controller: Controller) -> None:
    summary: dict[str, Any] = {}

    def refresh() -> None:
        summary.clear()
        summary.update(controller.summary())

    def value(key: str) -> Callable[[], Number]:
        return lambda: int(summary[key])

    def length(key: str) -> Callable[[], Number]:
        return lambda: len(summary.get(key, ()))

    metrics.before_read(refresh)
    for name, (key, doc) in CONTROLLER.items():
        metrics.gauge(f"kafka.controller:type=KafkaController,name={name}", doc, value(key))
    for name, (key, doc) in CONTROLLER_LISTS.items():
        metrics.gauge(f"kafka.controller:type=KafkaController,name={name}", doc, length(key))
    metrics.gauge(
        "kafka.controller:type=KafkaController,name=ControllerState",
        "Number of the kind of event that the active controller handles; 0 if it handles none.",
        lambda: CONTROLLER_STATES[summary.get("state", "Idle")],
    )
    metrics.computed_counter(
        UNCLEAN[0],
        UNCLEAN[1],
        lambda: int(summary.get("unclean_elections", 0)),
    )
    metrics.collect(
        UNCLEAN[0],
        Kind.COUNTER,
        UNCLEAN[1],
        lambda: (
            Sample(_labels(name), count)
            for name, count in summary.get("unclean_elections_of", {}).items()
        ),
    )
    metrics.collect(
        "kafka.controller:type=ControllerChannelManager,name=QueueSize",
        Kind.GAUGE,
        "Requests of the controller that this broker has not answered.",
        lambda: (
            Sample({"broker_id": str(broker)}, count)
            for broker, count in controller.backlog().items()
        ),
    )
    metrics.gauge(
        "kafka.controller:type=ControllerEventManager,name=EventQueueSize",
        "Events that wait for the controller.",
        value("queue_size"),
    )
    metrics.gauge(
        "kafka.controller:type=ControllerChannelManager,name=TotalQueueSize",
        "Requests of the controller that brokers have not answered.",
        lambda: sum(controller.backlog().values()),
    )


def _register_replicas(metrics: Metrics, replicas: ReplicaManager) -> None:
    led: list[Partition] = []

    def refresh() -> None:
        led[:] = filter(_leads, replicas.partitions.values())

    def count(name: str) -> Callable[[], Number]:
        read = PARTITION[name][1]
        return lambda: sum(map(read, led))

    metrics.before_read(refresh)
    manager = "kafka.server:type=ReplicaManager,name="
    gauges: dict[str, tuple[str, Callable[[], Number]]] = {
        "PartitionCount": ("Partitions hosted.", lambda: len(replicas.partitions)),
        "LeaderCount": ("Partitions led.", lambda: len(led)),
        "OfflineReplicaCount": (
            "Replicas in log directories that failed.",
            lambda: len(replicas.logs.offline),
        ),
        "UnderReplicatedPartitions": (
            "Partitions led whose ISR lacks a replica; replicas that a reassignment adds do not count.",
            count("UnderReplicated"),
        ),
        "ReassigningPartitions": (
            "Partitions led that are being reassigned.",
            lambda: sum(bool(one.adding or one.removing) for one in led),
        ),
        "UnderMinIsrPartitionCount": (
            "Partitions led whose ISR is below min.insync.replicas.",
            count("UnderMinIsr"),
        ),
        "AtMinIsrPartitionCount": (
            "Partitions led whose ISR is exactly min.insync.replicas.",
            count("AtMinIsr"),
        ),
    }
    for name, (doc, read) in gauges.items():
        metrics.gauge(manager + name, doc, read)
    changes = replicas.isr_changes
    counters: dict[str, tuple[str, Callable[[], Number]]] = {
        "IsrShrinksPerSec": ("ISRs that replicas were removed from.", lambda: changes.shrinks),
        "IsrExpandsPerSec": ("ISRs that a replica was added to.", lambda: changes.expands),
        "FailedIsrUpdatesPerSec": ("ISRs that could not be written.", lambda: changes.failures),
    }
    for name, (doc, read) in counters.items():
        metrics.computed_counter(manager + name, doc, read)
    for type_, throttle, doc in (
        ("LeaderReplication", replicas.throttles.leader, "sent to"),
        ("FollowerReplication", replicas.throttles.follower, "fetched for"),
    ):
        metrics.collect(
            f"kafka.server:type={type_},name=byte-rate",
            Kind.GAUGE,
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
        "Bytes of these segments.",
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
        "Incremental fetch sessions that gave way to others.",
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
        metrics.collect(f"{bean}{name}PerSec", Kind.COUNTER, doc, by_topic(attribute))


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


def _labels(partition: str) -> dict[str, str]:
    topic, _, number = partition.rpartition("-")
    return {"topic": topic, "partition": number}


def _always(_: Partition) -> bool:
    return True


def _leads(partition: Partition) -> bool:
    return partition.is_leader and not partition.offline


def _is_online(partition: Partition) -> bool:
    return not partition.offline
