"""The rules of `generate prometheus-rules`: alerts, and rates that are computed in advance, as a table.

All sums are by `job`: give each cluster a job of its own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_TOPICS: Final = "kafka_server_brokertopicmetrics"
_CONTROLLER: Final = "kafka_controller_kafkacontroller"
_REPLICAS: Final = "kafka_server_replicamanager"


class RecordedSeries(NamedTuple):
    """A series that Prometheus computes."""

    name: str
    query: str


class Alert(NamedTuple):
    """An alert. `lasts`: the time for which the query must have a value. `text`: may have `{{ }}` of Prometheus."""

    name: str
    query: str
    lasts: str
    severity: str
    text: str


def _rate(name: str, metric: str) -> RecordedSeries:
    query = f'sum by (job, topic) (rate({_TOPICS}_{metric}_total{{topic!=""}}[5m]))'
    return RecordedSeries(f"job_topic:minikafka_{name}:rate5m", query)


RECORDS: Final = (
    _rate("records_in", "messagesin"),
    _rate("bytes_in", "bytesin"),
    _rate("bytes_out", "bytesout"),
    RecordedSeries(
        "job_request:minikafka_requests:rate5m",
        "sum by (job, request) (rate(kafka_network_requestmetrics_requests_total[5m]))",
    ),
    RecordedSeries(
        "job_consumergroup:minikafka_lag:sum",
        "sum by (job, consumergroup) (kafka_consumergroup_lag)",
    ),
)
ALERTS: Final = (
    Alert(
        "UnderReplicatedPartitions",
        f"{_REPLICAS}_underreplicatedpartitions > 0",
        "10s",
        "warning",
        "{{ $value }} partitions that {{ $labels.instance }} leads lack a replica in their ISR",
    ),
    Alert(
        "AbnormalControllerState",
        f"sum by (job) ({_CONTROLLER}_activecontrollercount) != 1",
        "10s",
        "warning",
        "{{ $value }} brokers are the active controller; it must be one",
    ),
    Alert(
        "OfflinePartitions",
        f"sum by (job) ({_CONTROLLER}_offlinepartitionscount) > 0",
        "10s",
        "critical",
        "{{ $value }} partitions have no leader",
    ),
    Alert(
        "UnderMinIsrPartitionCount",
        f"{_REPLICAS}_underminisrpartitioncount > 0",
        "10s",
        "critical",
        "{{ $value }} partitions that {{ $labels.instance }} leads refuse acks=all: too few replicas are in sync",
    ),
    Alert(
        "OfflineLogDirectoryCount",
        "kafka_log_logmanager_offlinelogdirectorycount > 0",
        "10s",
        "critical",
        "{{ $value }} log directories of {{ $labels.instance }} have failed",
    ),
    Alert(
        "ScrapeProblem",
        "absent(kafka_server_kafkaserver_brokerstate)",
        "3m",
        "critical",
        "Prometheus has no metrics of any broker",
    ),
    Alert(
        "BrokerNotRunning",
        "kafka_server_kafkaserver_brokerstate != 3",
        "5m",
        "warning",
        "{{ $labels.instance }} has been starting or stopping for five minutes",
    ),
    Alert(
        "UncleanLeaderElection",
        'sum by (job) (increase(kafka_controller_controllerstats_uncleanleaderelections_total{topic=""}[10m])) > 0',
        "0s",
        "critical",
        "a leader was elected outside of the ISR: records may be lost",
    ),
    Alert(
        "OpenFilesNearLimit",
        "process_open_fds / process_max_fds > 0.9",
        "5m",
        "warning",
        "{{ $labels.instance }} has opened nine tenths of the files that it may",
    ),
    Alert(
        "ClocksDiffer",
        "kafka_server_kafkaserver_maxclockoffsetms > 10000",
        "5m",
        "warning",
        "the clock of {{ $labels.instance }} differs from another broker's by {{ $value }} ms",
    ),
    Alert(
        "ConsumerGroupFallsBehind",
        "sum by (job, consumergroup) (deriv(kafka_consumergroup_lag[15m])) > 0 "
        "and sum by (job, consumergroup) (kafka_consumergroup_lag) > 0",
        "30m",
        "warning",
        "the lag of group {{ $labels.consumergroup }} has grown for half an hour",
    ),
    Alert(
        "TransactionHoldsBackReaders",
        "max by (job, topic, partition) (kafka_cluster_partition_laststableoffsetlag) > 0",
        "20m",
        "warning",
        "an open transaction holds back {{ $value }} records of {{ $labels.topic }}-{{ $labels.partition }}",
    ),
)
