"""The classes of a Kafka distribution: their scripts and options, and the module that does their work.

This table is the only place that knows which of Kafka's options exist. An option that has no effect here, and whose
effect a caller needs, is not in the table: it is refused as an unknown one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

KAFKA: Final = "kafka.Kafka"
ZOOKEEPER: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_TOOLS: Final = "org.apache.kafka.tools"
_CLIENT: Final = "bootstrap-server command-config"
_KRAFT: Final = "minikafka runs with ZooKeeper, without KRaft"
_STREAMS: Final = "minikafka has no Java, and Kafka Streams needs it"
_CONNECT: Final = "minikafka has no Kafka Connect"
_OWN_CLIENT: Final = "use the script of a Kafka distribution, which works with brokers of minikafka"


class Tool(NamedTuple):
    """One class. `work`: MODULE.FUNCTION below `tools`, "" if the class is refused, for the reason `refusal`.

    `flags` and `values`: the options without and with a value. `optional`: those that may have one. `lists`: those
    with all words up to the next option. `fixed`: what the script puts before its arguments.
    `failure`: what Kafka prints in front of an error's text; "" for the text alone.
    """

    script: str
    work: str = ""
    flags: str = ""
    values: str = ""
    optional: str = ""
    lists: str = ""
    fixed: str = ""
    failure: str = ""
    has_rest: bool = False
    refusal: str = ""


CLASSES: Final[Mapping[str, Tool]] = {
    f"{_TOOLS}.TopicCommand": Tool(
        "kafka-topics.sh",
        "topics.run",
        "alter at-min-isr-partitions create delete describe exclude-internal if-exists if-not-exists list "
        "topics-with-overrides unavailable-partitions under-min-isr-partitions under-replicated-partitions",
        f"{_CLIENT} config partition-size-limit-per-response partitions replica-assignment replication-factor "
        "topic topic-id",
        failure="Error while executing topic command : ",
    ),
    "kafka.admin.ConfigCommand": Tool(
        "kafka-configs.sh",
        "configs.alter_or_describe",
        "all alter broker-defaults client-defaults describe entity-default force ip-defaults user-defaults",
        f"{_CLIENT} add-config add-config-file broker client delete-config entity-name entity-type ip topic user "
        "zk-tls-config-file zookeeper",
    ),
    "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka": Tool(
        "zookeeper-shell.sh", "zookeeper_shell.run", fixed="-server"
    ),
    f"{_TOOLS}.consumer.group.ConsumerGroupCommand": Tool(
        "kafka-consumer-groups.sh",
        "groups.run",
        "all-groups all-topics delete delete-offsets describe dry-run execute export list members offsets "
        "reset-offsets to-current to-earliest to-latest verbose",
        f"{_CLIENT} by-duration from-file group shift-by timeout to-datetime to-offset topic",
        optional="state type",
        failure="\nError: ",
    ),
    "kafka.admin.AclCommand": Tool(
        "kafka-acls.sh",
        "acls.run",
        "add cluster consumer force idempotent list producer remove",
        f"{_CLIENT} allow-host allow-principal delegation-token deny-host deny-principal group operation principal "
        "resource-pattern-type topic transactional-id user-principal",
        failure="Error while executing ACL command: ",
    ),
    "kafka.tools.ConsoleProducer": Tool(
        "kafka-console-producer.sh",
        "console.produce",
        "sync",
        "batch-size bootstrap-server broker-list line-reader max-block-ms max-memory-bytes max-partition-memory-bytes "
        "message-send-max-retries metadata-expiry-ms producer-property producer.config property "
        "request-required-acks request-timeout-ms retry-backoff-ms socket-buffer-size timeout topic",
        optional="compression-codec",
    ),
    f"{_TOOLS}.consumer.ConsoleConsumer": Tool(
        "kafka-console-consumer.sh",
        "console.consume",
        "enable-systest-events from-beginning skip-message-on-error",
        "bootstrap-server consumer-property consumer.config group include isolation-level max-messages offset "
        "partition property timeout-ms topic whitelist",
    ),
    f"{_TOOLS}.LeaderElectionCommand": Tool(
        "kafka-leader-election.sh",
        "partitions.elect",
        "all-topic-partitions",
        "admin.config bootstrap-server election-type partition path-to-json-file topic",
    ),
    f"{_TOOLS}.reassign.ReassignPartitionsCommand": Tool(
        "kafka-reassign-partitions.sh",
        "reassign.run",
        "additional cancel disable-rack-aware execute generate list preserve-throttles verify",
        f"{_CLIENT} broker-list reassignment-json-file throttle timeout topics-to-move-json-file",
        failure="Error: ",
    ),
    f"{_TOOLS}.LogDirsCommand": Tool(
        "kafka-log-dirs.sh",
        "partitions.log_dirs",
        "describe",
        f"{_CLIENT} broker-list topic-list",
    ),
    f"{_TOOLS}.DeleteRecordsCommand": Tool(
        "kafka-delete-records.sh", "partitions.delete_records", "", f"{_CLIENT} offset-json-file"
    ),
    f"{_TOOLS}.GetOffsetShell": Tool(
        "kafka-get-offsets.sh",
        "partitions.get_offsets",
        "exclude-internal-topics",
        f"{_CLIENT} broker-list partitions time topic topic-partitions",
    ),
    "kafka.admin.BrokerApiVersionsCommand": Tool(
        "kafka-broker-api-versions.sh", "brokers.api_versions", "", _CLIENT
    ),
    f"{_TOOLS}.ClusterTool": Tool(
        "kafka-cluster.sh", "brokers.cluster", "", f"{_CLIENT} config", has_rest=True
    ),
    f"{_TOOLS}.TransactionsCommand": Tool(
        "kafka-transactions.sh",
        "transaction_tool.run",
        "",
        f"{_CLIENT} broker-id duration-filter partition start-offset topic transactional-id",
        has_rest=True,
    ),
    f"{_TOOLS}.VerifiableProducer": Tool(
        "kafka-verifiable-producer.sh",
        "load.verifiable_producer",
        "",
        "acks bootstrap-server broker-list max-messages message-create-time producer.config repeating-keys "
        "throughput topic value-prefix",
    ),
    f"{_TOOLS}.ProducerPerformance": Tool(
        "kafka-producer-perf-test.sh",
        "load.producer_perf",
        "print-metrics",
        "num-records payload-delimiter payload-file producer.config record-size throughput topic",
        lists="producer-props",
    ),
    f"{_TOOLS}.ConsumerPerformance": Tool(
        "kafka-consumer-perf-test.sh",
        "load.consumer_perf",
        "from-latest hide-header print-metrics show-detailed-stats",
        "bootstrap-server broker-list consumer.config date-format fetch-size group messages num-fetch-threads "
        "reporting-interval socket-buffer-size threads timeout topic",
    ),
    f"{_TOOLS}.VerifiableConsumer": Tool("kafka-verifiable-consumer.sh", refusal=_OWN_CLIENT),
    f"{_TOOLS}.EndToEndLatency": Tool("kafka-e2e-latency.sh", refusal=_OWN_CLIENT),
    f"{_TOOLS}.ReplicaVerificationTool": Tool("kafka-replica-verification.sh", refusal=_OWN_CLIENT),
    f"{_TOOLS}.DelegationTokenCommand": Tool("kafka-delegation-tokens.sh", refusal=_OWN_CLIENT),
    f"{_TOOLS}.ConnectPluginPath": Tool("connect-plugin-path.sh", refusal=_CONNECT),
    "kafka.admin.ZkSecurityMigrator": Tool(
        "zookeeper-security-migration.sh", refusal="set zookeeper.set.acl before the first start"
    ),
    "kafka.tools.StorageTool": Tool("kafka-storage.sh", refusal=_KRAFT),
    f"{_TOOLS}.MetadataQuorumCommand": Tool("kafka-metadata-quorum.sh", refusal=_KRAFT),
    "org.apache.kafka.shell.MetadataShell": Tool("kafka-metadata-shell.sh", refusal=_KRAFT),
    f"{_TOOLS}.StreamsResetter": Tool("kafka-streams-application-reset.sh", refusal=_STREAMS),
    "org.apache.kafka.connect.cli.ConnectDistributed": Tool(
        "connect-distributed.sh", refusal=_CONNECT
    ),
    "org.apache.kafka.connect.cli.ConnectStandalone": Tool(
        "connect-standalone.sh", refusal=_CONNECT
    ),
    "org.apache.kafka.connect.mirror.MirrorMaker": Tool(
        "connect-mirror-maker.sh", refusal=_CONNECT
    ),
    "kafka.tools.MirrorMaker": Tool(
        "kafka-mirror-maker.sh", refusal="pipe `minikafka consume` into `minikafka produce`"
    ),
    f"{_TOOLS}.JmxTool": Tool(
        "kafka-jmx.sh", refusal="minikafka has no JMX: read /metrics of the control listener"
    ),
    f"{_TOOLS}.ClientMetricsCommand": Tool(
        "kafka-client-metrics.sh", refusal="minikafka does not collect metrics of clients"
    ),
    f"{_TOOLS}.FeatureCommand": Tool(
        "kafka-features.sh", refusal="a cluster with ZooKeeper has no features to change"
    ),
    "kafka.tools.DumpLogSegments": Tool(
        "kafka-dump-log.sh",
        refusal="the segments have Kafka's format: use the script of a Kafka distribution",
    ),
}
