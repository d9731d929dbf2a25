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


class Tool(NamedTuple):
    """One class. `work`: MODULE.FUNCTION below `tools`, "" if the class is refused, for the reason `refusal`.

    `flags` and `values`: the options without and with a value. `fixed`: what the script puts before its arguments.
    `failure`: what Kafka prints in front of an error's text; "" for the text alone.
    """

    script: str
    work: str = ""
    flags: str = ""
    values: str = ""
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
