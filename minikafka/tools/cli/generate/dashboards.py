"""The dashboards of `generate grafana`: panels with their queries, as a table.

Counters of a broker's topics have a value for each topic, and one for all, without the label `topic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

_RATE: Final = "[$__rate_interval]"
_TOPICS: Final = "kafka_server_brokertopicmetrics"
_CONTROLLER: Final = "kafka_controller_kafkacontroller"
_REPLICAS: Final = "kafka_server_replicamanager"
_GROUPS: Final = "kafka_coordinator_group_groupmetadatamanager"
_TRANSACTION_APIS: Final = (
    "InitProducerId|AddPartitionsToTxn|AddOffsetsToTxn|EndTxn|TxnOffsetCommit|WriteTxnMarkers"
)


class Panel(NamedTuple):
    """A panel: its queries, each with the text of its legend. `unit`: Grafana's name. `is_number`: shows one value."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    is_number: bool = False


class Dashboard(NamedTuple):
    """A dashboard. `variables`: name of a variable → the metric and the label that give its values."""

    title: str
    panels: tuple[Panel, ...]
    variables: Mapping[str, tuple[str, str]] = {}


def _number(title: str, query: str) -> Panel:
    return Panel(title, ((query, ""),), is_number=True)


def _of_brokers(metric: str) -> str:
    """Return the query of a counter of topics, by broker."""
    return f'sum by (instance) (rate({_TOPICS}_{metric}_total{{topic=""}}{_RATE}))'


def _of_topics(metric: str) -> str:
    """Return the query of a counter, by the topics that the variable selects."""
    return f'sum by (topic) (rate({_TOPICS}_{metric}_total{{topic=~"$topic"}}{_RATE}))'


def _by_instance(name: str) -> tuple[tuple[str, str], ...]:
    return ((name, "{{instance}}"),)


_CLUSTER: Final = Dashboard(
    "Kafka: cluster",
    (
        _number("Brokers that run", "count(kafka_server_kafkaserver_brokerstate == 3)"),
        _number("Active controllers", f"sum({_CONTROLLER}_activecontrollercount)"),
        _number("Partitions without leader", f"sum({_CONTROLLER}_offlinepartitionscount)"),
        _number("Under-replicated partitions", f"sum({_REPLICAS}_underreplicatedpartitions)"),
        _number("Partitions under min ISR", f"sum({_REPLICAS}_underminisrpartitioncount)"),
        _number("Failed log directories", "sum(kafka_log_logmanager_offlinelogdirectorycount)"),
        Panel("Records in", ((_of_brokers("messagesin"), "{{instance}}"),), "ops"),
        Panel("Bytes in", ((_of_brokers("bytesin"), "{{instance}}"),), "Bps"),
        Panel("Bytes out", ((_of_brokers("bytesout"), "{{instance}}"),), "Bps"),
        Panel(
            "Replication",
            (
                (f"rate({_TOPICS}_replicationbytesin_total{_RATE})", "{{instance}} in"),
                (f"rate({_TOPICS}_replicationbytesout_total{_RATE})", "{{instance}} out"),
            ),
            "Bps",
        ),
        Panel(
            "Requests",
            (
                (
                    f"topk(10, sum by (request) (rate(kafka_network_requestmetrics_requests_total{_RATE})))",
                    "{{request}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Time of requests, 99 %",
            (
                (
                    'max by (request) (kafka_network_requestmetrics_totaltimems{quantile="0.99", '
                    'request=~"Produce|FetchConsumer|FetchFollower|Metadata|OffsetCommit"})',
                    "{{request}}",
                ),
            ),
            "ms",
        ),
        Panel(
            "Refused batches and reads",
            (
                (_of_brokers("failedproducerequests"), "{{instance}} produce"),
                (_of_brokers("failedfetchrequests"), "{{instance}} fetch"),
            ),
            "ops",
        ),
        Panel(
            "Changes of ISRs",
            (
                (f"rate({_REPLICAS}_isrshrinks_total{_RATE})", "{{instance}} shrinks"),
                (f"rate({_REPLICAS}_isrexpands_total{_RATE})", "{{instance}} expands"),
            ),
            "ops",
        ),
        Panel("Leaders", _by_instance(f"{_REPLICAS}_leadercount")),
        Panel("Replicas", _by_instance(f"{_REPLICAS}_partitioncount")),
        Panel(
            "Open files", (("process_open_fds / process_max_fds", "{{instance}}"),), "percentunit"
        ),
        Panel(
            "Difference of clocks", _by_instance("kafka_server_kafkaserver_maxclockoffsetms"), "ms"
        ),
    ),
)
_TOPIC: Final = Dashboard(
    "Kafka: topics",
    (
        Panel("Records in", ((_of_topics("messagesin"), "{{topic}}"),), "ops"),
        Panel("Bytes in", ((_of_topics("bytesin"), "{{topic}}"),), "Bps"),
        Panel("Bytes out", ((_of_topics("bytesout"), "{{topic}}"),), "Bps"),
        Panel(
            "Refused batches and reads",
            (
                (_of_topics("failedproducerequests"), "{{topic}} produce"),
                (_of_topics("failedfetchrequests"), "{{topic}} fetch"),
            ),
            "ops",
        ),
        Panel(
            "Size of all replicas",
            (('sum by (topic) (kafka_log_log_size{topic=~"$topic"})', "{{topic}}"),),
            "bytes",
        ),
        Panel(
            "Segments of all replicas",
            (('sum by (topic) (kafka_log_log_numlogsegments{topic=~"$topic"})', "{{topic}}"),),
        ),
        Panel(
            "Offsets in the log",
            (
                (
                    'sum by (topic) (max by (topic, partition) (kafka_log_log_logendoffset{topic=~"$topic"}) - '
                    'min by (topic, partition) (kafka_log_log_logstartoffset{topic=~"$topic"}))',
                    "{{topic}}",
                ),
            ),
        ),
        Panel(
            "Replicas in sync",
            (
                (
                    'min by (topic) (kafka_cluster_partition_insyncreplicascount{topic=~"$topic"})',
                    "{{topic}}, fewest of a partition",
                ),
            ),
        ),
        Panel(
            "Under-replicated partitions",
            (
                (
                    'sum by (topic) (kafka_cluster_partition_underreplicated{topic=~"$topic"})',
                    "{{topic}}",
                ),
            ),
        ),
        Panel(
            "Partitions that nobody serves",
            (
                (
                    "sum by (topic) (1 - max by (topic, partition) "
                    '(kafka_cluster_partition_available{topic=~"$topic"}))',
                    "{{topic}}",
                ),
            ),
        ),
    ),
    {"topic": ("kafka_log_log_size", "topic")},
)
_GROUP: Final = Dashboard(
    "Kafka: consumer groups",
    (
        _number("Groups", f"sum({_GROUPS}_numgroups)"),
        _number("Groups that rebalance", f"sum({_GROUPS}_numgroupspreparingrebalance)"),
        _number("Lags that are not known", "sum(kafka_consumergroup_lag_unknown)"),
        Panel(
            "Lag of groups",
            (
                (
                    'sum by (consumergroup) (kafka_consumergroup_lag{consumergroup=~"$group"})',
                    "{{consumergroup}}",
                ),
            ),
        ),
        Panel(
            "Lag of partitions",
            (
                (
                    "topk(20, sum by (consumergroup, topic, partition) "
                    '(kafka_consumergroup_lag{consumergroup=~"$group"}))',
                    "{{consumergroup}} {{topic}}-{{partition}}",
                ),
            ),
        ),
        Panel(
            "States of groups",
            tuple(
                (f"sum({_GROUPS}_numgroups{state})", state)
                for state in (
                    "stable",
                    "empty",
                    "preparingrebalance",
                    "completingrebalance",
                    "dead",
                )
            ),
        ),
        Panel("Committed offsets", _by_instance(f"{_GROUPS}_numoffsets")),
        Panel(
            "Requests of groups",
            (
                (
                    "sum by (request) (rate(kafka_network_requestmetrics_requests_total"
                    f'{{request=~"JoinGroup|SyncGroup|LeaveGroup|Heartbeat|OffsetCommit|OffsetFetch"}}{_RATE}))',
                    "{{request}}",
                ),
            ),
            "ops",
        ),
    ),
    {"group": ("kafka_consumergroup_lag", "consumergroup")},
)
_TRANSACTIONS: Final = Dashboard(
    "Kafka: transactions",
    (
        _number(
            "Records that open transactions hold back",
            "sum(kafka_cluster_partition_laststableoffsetlag)",
        ),
        _number("Producer ids", f"sum({_REPLICAS}_produceridcount)"),
        Panel(
            "Records held back",
            (
                (
                    "topk(20, max by (topic, partition) (kafka_cluster_partition_laststableoffsetlag) > 0)",
                    "{{topic}}-{{partition}}",
                ),
            ),
        ),
        Panel(
            "Requests of transactions",
            (
                (
                    "sum by (request) (rate(kafka_network_requestmetrics_requests_total"
                    f'{{request=~"{_TRANSACTION_APIS}"}}{_RATE}))',
                    "{{request}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Time of requests, 99 %",
            (
                (
                    'max by (request) (kafka_network_requestmetrics_totaltimems{quantile="0.99", '
                    f'request=~"{_TRANSACTION_APIS}"}})',
                    "{{request}}",
                ),
            ),
            "ms",
        ),
        Panel("Producer ids by broker", _by_instance(f"{_REPLICAS}_produceridcount")),
    ),
)
_CONTROL: Final = Dashboard(
    "Kafka: controller",
    (
        _number("Live brokers", f"max({_CONTROLLER}_activebrokercount)"),
        _number("Topics", f"max({_CONTROLLER}_globaltopiccount)"),
        _number("Partitions", f"max({_CONTROLLER}_globalpartitioncount)"),
        _number("Partitions without leader", f"max({_CONTROLLER}_offlinepartitionscount)"),
        Panel("Active controller", _by_instance(f"{_CONTROLLER}_activecontrollercount")),
        Panel(
            "Events that wait",
            _by_instance("kafka_controller_controllereventmanager_eventqueuesize"),
        ),
        Panel(
            "State changes that brokers have not carried out",
            (
                (
                    "max by (broker_id) (kafka_controller_controllerchannelmanager_queuesize)",
                    "broker {{broker_id}}",
                ),
            ),
        ),
        Panel(
            "Partitions not led by their preferred replica",
            ((f"max({_CONTROLLER}_preferredreplicaimbalancecount)", ""),),
        ),
        Panel(
            "Deletions",
            (
                (f"max({_CONTROLLER}_topicstodeletecount)", "topics"),
                (f"max({_CONTROLLER}_topicsineligibletodeletecount)", "topics that wait"),
                (f"max({_CONTROLLER}_replicastodeletecount)", "replicas"),
                (f"max({_CONTROLLER}_replicasineligibletodeletecount)", "replicas that wait"),
            ),
        ),
        Panel("Reassigned partitions", _by_instance(f"{_REPLICAS}_reassigningpartitions")),
        Panel(
            "Unclean elections",
            (
                (
                    'sum(increase(kafka_controller_controllerstats_uncleanleaderelections_total{topic=""}'
                    f"{_RATE}))",
                    "",
                ),
            ),
        ),
        Panel(
            "Suspicions",
            (
                (f"rate(kafka_controller_controllerstats_suspicions_total{_RATE})", "{{instance}}"),
                (
                    f"rate(kafka_controller_controllerstats_falsesuspicions_total{_RATE})",
                    "{{instance}}, false",
                ),
            ),
            "ops",
        ),
    ),
)
DASHBOARDS: Final[Mapping[str, Dashboard]] = {
    "cluster": _CLUSTER,
    "topics": _TOPIC,
    "groups": _GROUP,
    "transactions": _TRANSACTIONS,
    "controller": _CONTROL,
}
"""The dashboards, by the argument of the command."""
