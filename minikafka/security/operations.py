"""The rights that each request needs, as brokers of Kafka 3.9 with ZooKeeper ask for them.

Every handler takes its `Need` from the table with `need(api, operation, resource)`. A need that the table lacks raises
KeyError when the handler's module is imported.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from minikafka.base.errors import ErrorCode
from minikafka.security.acls import ERRORS, AclOperation, AclResourceType

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
)
CLUSTER_ACTION: Final = AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS: Final = AclOperation.DESCRIBE_CONFIGS
ALTER_CONFIGS: Final = AclOperation.ALTER_CONFIGS
CREATE_TOKENS: Final = AclOperation.CREATE_TOKENS
DESCRIBE_TOKENS: Final = AclOperation.DESCRIBE_TOKENS
IDEMPOTENT_WRITE: Final = AclOperation.IDEMPOTENT_WRITE
TOPIC: Final = AclResourceType.TOPIC
GROUP: Final = AclResourceType.GROUP
CLUSTER: Final = AclResourceType.CLUSTER
TRANSACTIONAL_ID: Final = AclResourceType.TRANSACTIONAL_ID
DELEGATION_TOKEN: Final = AclResourceType.DELEGATION_TOKEN
USER: Final = AclResourceType.USER


class Need(NamedTuple):
    """A right that a request needs. `when`: for what the request needs it.

    `is_logged`: whether a denial is logged. It is not where the request then takes another way, or leaves rows out.
    """

    api: str
    operation: AclOperation
    resource: AclResourceType
    when: str
    is_logged: bool = True

    @property
    def error(self) -> ErrorCode:
        """The error code for a client without the right."""
        return ERRORS[self.resource]

    @property
    def message(self) -> str:
        """Kafka's text for a client without the right."""
        return f"{self.resource.name.replace('_', ' ').capitalize()} authorization failed."


NEEDS: Final = (
    Need("Produce", WRITE, TRANSACTIONAL_ID, "the id of the producer, for a transactional batch"),
    Need("Produce", WRITE, TOPIC, "each topic"),
    Need("Fetch", READ, TOPIC, "each topic"),
    Need("Fetch", CLUSTER_ACTION, CLUSTER, "a request with a replica id: a follower's"),
    Need("ListOffsets", DESCRIBE, TOPIC, "each topic"),
    Need("Metadata", DESCRIBE, TOPIC, "each topic; others are left out if all are requested"),
    Need("Metadata", CREATE, CLUSTER, "the automatic creation of topics", False),
    Need(
        "Metadata", CREATE, TOPIC, "the automatic creation of the topic, without the right before"
    ),
    Need("Metadata", DESCRIBE, CLUSTER, "the authorized operations on the cluster"),
    Need("OffsetCommit", READ, GROUP, "the group"),
    Need("OffsetCommit", READ, TOPIC, "each topic"),
    Need("OffsetFetch", DESCRIBE, GROUP, "each group"),
    Need("OffsetFetch", DESCRIBE, TOPIC, "each topic; others are left out if all are requested"),
    Need("FindCoordinator", DESCRIBE, GROUP, "each group"),
    Need("FindCoordinator", DESCRIBE, TRANSACTIONAL_ID, "each transactional id"),
    Need("JoinGroup", READ, GROUP, "the group"),
    Need("SyncGroup", READ, GROUP, "the group"),
    Need("Heartbeat", READ, GROUP, "the group"),
    Need("LeaveGroup", READ, GROUP, "the group"),
    Need("DescribeGroups", DESCRIBE, GROUP, "each group"),
    Need("ListGroups", DESCRIBE, CLUSTER, "all groups", False),
    Need("ListGroups", DESCRIBE, GROUP, "each group, without the right before", False),
    Need("DeleteGroups", DELETE, GROUP, "each group"),
    Need("OffsetDelete", DELETE, GROUP, "the group"),
    Need("OffsetDelete", READ, TOPIC, "each topic"),
    Need("CreateTopics", CREATE, CLUSTER, "all topics", False),
    Need("CreateTopics", CREATE, TOPIC, "each topic, without the right before"),
    Need("CreateTopics", DESCRIBE_CONFIGS, TOPIC, "the settings in the response", False),
    Need("DeleteTopics", DELETE, TOPIC, "each topic"),
    Need("DeleteTopics", DESCRIBE, TOPIC, "the name of a topic that is given by id"),
    Need("CreatePartitions", ALTER, TOPIC, "each topic"),
    Need("DeleteRecords", DELETE, TOPIC, "each topic"),
    Need("OffsetForLeaderEpoch", CLUSTER_ACTION, CLUSTER, "all topics", False),
    Need("OffsetForLeaderEpoch", DESCRIBE, TOPIC, "each topic, without the right before"),
    Need("InitProducerId", WRITE, TRANSACTIONAL_ID, "the transactional id"),
    Need("InitProducerId", IDEMPOTENT_WRITE, CLUSTER, "a producer without transactions", False),
    Need("InitProducerId", WRITE, TOPIC, "any topic, without the right before"),
    Need("AddPartitionsToTxn", WRITE, TRANSACTIONAL_ID, "the transactional id, up to version 3"),
    Need("AddPartitionsToTxn", WRITE, TOPIC, "each topic, up to version 3"),
    Need("AddPartitionsToTxn", CLUSTER_ACTION, CLUSTER, "from version 4, which brokers send"),
    Need("AddOffsetsToTxn", WRITE, TRANSACTIONAL_ID, "the transactional id"),
    Need("AddOffsetsToTxn", READ, GROUP, "the group"),
    Need("EndTxn", WRITE, TRANSACTIONAL_ID, "the transactional id"),
    Need("TxnOffsetCommit", WRITE, TRANSACTIONAL_ID, "the transactional id"),
    Need("TxnOffsetCommit", READ, GROUP, "the group"),
    Need("TxnOffsetCommit", READ, TOPIC, "each topic"),
    Need("WriteTxnMarkers", ALTER, CLUSTER, "an administrator", False),
    Need("WriteTxnMarkers", CLUSTER_ACTION, CLUSTER, "without the right before"),
    Need("DescribeProducers", READ, TOPIC, "each topic"),
    Need("DescribeTransactions", DESCRIBE, TRANSACTIONAL_ID, "each transactional id"),
    Need(
        "DescribeTransactions", DESCRIBE, TOPIC, "each topic of a transaction; others are left out"
    ),
    Need("ListTransactions", DESCRIBE, TRANSACTIONAL_ID, "each transaction; others are left out"),
    Need("DescribeConfigs", DESCRIBE_CONFIGS, TOPIC, "each topic"),
    Need("DescribeConfigs", DESCRIBE_CONFIGS, CLUSTER, "each broker and its loggers"),
    Need("AlterConfigs", ALTER_CONFIGS, TOPIC, "each topic"),
    Need("AlterConfigs", ALTER_CONFIGS, CLUSTER, "each broker"),
    Need("IncrementalAlterConfigs", ALTER_CONFIGS, TOPIC, "each topic"),
    Need("IncrementalAlterConfigs", ALTER_CONFIGS, CLUSTER, "each broker and its loggers"),
    Need("DescribeCluster", DESCRIBE, CLUSTER, "the authorized operations on the cluster"),
    Need("DescribeLogDirs", DESCRIBE, CLUSTER, "the request"),
    Need("AlterReplicaLogDirs", ALTER, CLUSTER, "the request"),
    Need("ElectLeaders", ALTER, CLUSTER, "the request"),
    Need("InspectBroker", DESCRIBE, CLUSTER, "the request, also for topics and groups"),
    Need("AlterPartitionReassignments", ALTER, CLUSTER, "the request"),
    Need("ListPartitionReassignments", DESCRIBE, CLUSTER, "the request"),
    Need("UpdateFeatures", ALTER, CLUSTER, "the request"),
    Need("DescribeAcls", DESCRIBE, CLUSTER, "the request"),
    Need("CreateAcls", ALTER, CLUSTER, "the request"),
    Need("DeleteAcls", ALTER, CLUSTER, "the request"),
    Need("DescribeClientQuotas", DESCRIBE_CONFIGS, CLUSTER, "the request"),
    Need("AlterClientQuotas", ALTER_CONFIGS, CLUSTER, "the request"),
    Need("DescribeUserScramCredentials", DESCRIBE, CLUSTER, "the request"),
    Need("AlterUserScramCredentials", ALTER, CLUSTER, "the request"),
    Need("CreateDelegationToken", CREATE_TOKENS, USER, "an owner that is not the client"),
    Need("DescribeDelegationToken", DESCRIBE, DELEGATION_TOKEN, "each token of others"),
    Need("DescribeDelegationToken", DESCRIBE_TOKENS, USER, "its owner, without the right before"),
)
"""Every right that a request needs."""
NO_NEEDS: Final = frozenset(
    {
        "ApiVersions",
        "SaslHandshake",
        "SaslAuthenticate",
        "RenewDelegationToken",
        "ExpireDelegationToken",
    }
)
"""The requests that everyone may send."""

METRICS: Final = Need("/metrics", DESCRIBE, CLUSTER, "the page of the control listener")
"""The right of a reader of metrics. The page is no request of Kafka."""
_TABLE: Final = {(one.api, one.operation, one.resource): one for one in NEEDS}


def need(api: str, operation: AclOperation, resource: AclResourceType) -> Need:
    """Return the row of the table with this API, operation and type of resource. Raises KeyError."""
    return _TABLE[api, operation, resource]
