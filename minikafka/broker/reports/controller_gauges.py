"""The metrics of the controller, computed when they are read, under the names of Kafka's JMX beans.

Invariant: metrics that only the active controller knows are 0 on every other broker (D11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from minikafka.base.metrics import MetricKind, Metrics, Sample
from minikafka.broker.capabilities import Diagnostics

Summary = dict[str, Any]
"""The result of `Diagnostics.summary`, which is read once for all metrics."""

CONTROLLER_STATES: Final = {
    "Idle": 0,
    "ControllerChange": 1,
    "BrokerChange": 2,
    "BrokerSuspected": 2,
    "SuspicionEnded": 2,
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
"""Kafka's number for each state in the controller's summary. UncleanElectionEnabled is always 13
here; Kafka uses 14 if unclean elections were enabled for a single topic."""
GAUGES: Final[dict[str, tuple[str, Callable[[Summary], int]]]] = {
    "KafkaController,name=ActiveControllerCount": (
        "1 on the active controller, else 0.",
        lambda summary: int(summary["is_active"]),
    ),
    "KafkaController,name=OfflinePartitionsCount": (
        "Partitions without a leader.",
        lambda summary: int(summary["offline_partition_count"]),
    ),
    "KafkaController,name=PreferredReplicaImbalanceCount": (
        "Partitions whose leader is not their preferred replica.",
        lambda summary: int(summary["preferred_replica_imbalance_count"]),
    ),
    "KafkaController,name=GlobalTopicCount": (
        "Topics of the cluster.",
        lambda summary: int(summary["topic_count"]),
    ),
    "KafkaController,name=GlobalPartitionCount": (
        "Partitions of the cluster.",
        lambda summary: int(summary["partition_count"]),
    ),
    "KafkaController,name=ReplicasToDeleteCount": (
        "Replicas of topics being deleted that are not deleted yet.",
        lambda summary: int(summary["replicas_to_delete"]),
    ),
    "KafkaController,name=ReplicasIneligibleToDeleteCount": (
        "Replicas whose deletion waits, for example for their broker, which is down.",
        lambda summary: int(summary["replicas_ineligible_for_deletion"]),
    ),
    "KafkaController,name=ActiveBrokerCount": (
        "Live brokers.",
        lambda summary: len(summary.get("brokers", ())),
    ),
    "KafkaController,name=TopicsToDeleteCount": (
        "Topics being deleted.",
        lambda summary: len(summary.get("topics_marked_for_deletion", ())),
    ),
    "KafkaController,name=TopicsIneligibleToDeleteCount": (
        "Topics whose deletion waits, for example for a broker that is down.",
        lambda summary: len(summary.get("topics_ineligible_for_deletion", ())),
    ),
    "KafkaController,name=ControllerState": (
        "Kafka's number for the kind of event that the active controller is handling; 0: none.",
        lambda summary: CONTROLLER_STATES[summary.get("state", "Idle")],
    ),
    "ControllerEventManager,name=EventQueueSize": (
        "Events that wait for the controller.",
        lambda summary: int(summary["queue_size"]),
    ),
}
"""Gauges computed from the controller's summary, by Kafka's type and name."""
_UNCLEAN: Final = "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec"
_UNCLEAN_DOC: Final = (
    "Leaders elected outside the ISR by this controller since its election: total and by partition."
)
_SUSPICIONS: Final = (
    (
        "kafka.controller:type=ControllerStats,name=SuspicionsPerSec",
        "Brokers that this controller suspected to have died, since its election.",
        "suspicions",
    ),
    (
        "kafka.controller:type=ControllerStats,name=FalseSuspicionsPerSec",
        "Suspicions of this controller that ended because the broker answered.",
        "false_suspicions",
    ),
)
_CHANNELS: Final = "kafka.controller:type=ControllerChannelManager,name="


def register_controller_gauges(metrics: Metrics, diagnostics: Diagnostics) -> None:
    """Register every metric of the controller."""
    summary: Summary = {}

    def refresh() -> None:
        summary.clear()
        summary.update(diagnostics.summary())

    metrics.before_read(refresh)
    for name, (doc, read) in GAUGES.items():
        metrics.gauge(f"kafka.controller:type={name}", doc, partial(read, summary))
    metrics.computed_counter(_UNCLEAN, _UNCLEAN_DOC, partial(_count, summary, "unclean_elections"))
    metrics.collect(
        _UNCLEAN, MetricKind.COUNTER, _UNCLEAN_DOC, partial(_unclean_elections, summary)
    )
    for name, doc, key in _SUSPICIONS:
        metrics.computed_counter(name, doc, partial(_count, summary, key))
    metrics.collect(
        f"{_CHANNELS}QueueSize",
        MetricKind.GAUGE,
        "State changes that a broker has not carried out: requests of the controller that it has not answered, or the "
        "requests in its queue in the mode leaders.",
        partial(_queue_sizes, diagnostics),
    )
    metrics.gauge(
        f"{_CHANNELS}TotalQueueSize",
        "State changes that brokers have not carried out, the sum of QueueSize.",
        lambda: sum(diagnostics.backlog().values()),
    )


def _count(summary: Summary, key: str) -> int:
    return int(summary.get(key, 0))


def _unclean_elections(summary: Summary) -> Iterator[Sample]:
    for partition, count in summary.get("unclean_elections_of", {}).items():
        topic, _, number = partition.rpartition("-")
        yield Sample({"topic": topic, "partition": number}, count)


def _queue_sizes(diagnostics: Diagnostics) -> Iterator[Sample]:
    for broker, count in diagnostics.backlog().items():
        yield Sample({"broker_id": str(broker)}, count)
