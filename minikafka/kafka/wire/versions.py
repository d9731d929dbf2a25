"""The APIs and versions that a broker serves.

Invariant: every API in `SERVED` has a handler, and a request of another API or version is not decoded.
"""

from __future__ import annotations

from typing import Final

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
WRITE_TXN_MARKERS: Final = 27
TXN_OFFSET_COMMIT: Final = 28
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
ALTER_REPLICA_LOG_DIRS: Final = 34
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
CREATE_DELEGATION_TOKEN: Final = 38
RENEW_DELEGATION_TOKEN: Final = 39
EXPIRE_DELEGATION_TOKEN: Final = 40
DESCRIBE_DELEGATION_TOKEN: Final = 41
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
UPDATE_FEATURES: Final = 57
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
INSPECT_BROKER: Final = 27755

SERVED: Final[dict[int, tuple[int, int]]] = {
    PRODUCE: (0, 11),
    FETCH: (4, 17),
    LIST_OFFSETS: (0, 9),
    METADATA: (0, 12),
    OFFSET_COMMIT: (0, 9),
    OFFSET_FETCH: (0, 9),
    FIND_COORDINATOR: (0, 6),
    JOIN_GROUP: (0, 9),
    HEARTBEAT: (0, 4),
    LEAVE_GROUP: (0, 5),
    SYNC_GROUP: (0, 5),
    DESCRIBE_GROUPS: (0, 5),
    LIST_GROUPS: (0, 5),
    SASL_HANDSHAKE: (0, 1),
    API_VERSIONS: (0, 4),
    CREATE_TOPICS: (0, 7),
    DELETE_TOPICS: (0, 6),
    DELETE_RECORDS: (0, 2),
    INIT_PRODUCER_ID: (0, 5),
    OFFSET_FOR_LEADER_EPOCH: (0, 4),
    ADD_PARTITIONS_TO_TXN: (0, 5),
    ADD_OFFSETS_TO_TXN: (0, 4),
    END_TXN: (0, 4),
    WRITE_TXN_MARKERS: (0, 1),
    TXN_OFFSET_COMMIT: (0, 4),
    DESCRIBE_ACLS: (0, 3),
    CREATE_ACLS: (0, 3),
    DELETE_ACLS: (0, 3),
    DESCRIBE_CONFIGS: (0, 4),
    ALTER_CONFIGS: (0, 2),
    ALTER_REPLICA_LOG_DIRS: (0, 2),
    DESCRIBE_LOG_DIRS: (0, 4),
    SASL_AUTHENTICATE: (0, 2),
    CREATE_PARTITIONS: (0, 3),
    CREATE_DELEGATION_TOKEN: (0, 3),
    RENEW_DELEGATION_TOKEN: (0, 2),
    EXPIRE_DELEGATION_TOKEN: (0, 2),
    DESCRIBE_DELEGATION_TOKEN: (0, 3),
    DELETE_GROUPS: (0, 2),
    ELECT_LEADERS: (0, 2),
    INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ALTER_PARTITION_REASSIGNMENTS: (0, 0),
    LIST_PARTITION_REASSIGNMENTS: (0, 0),
    OFFSET_DELETE: (0, 0),
    DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ALTER_CLIENT_QUOTAS: (0, 1),
    DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    UPDATE_FEATURES: (0, 1),
    DESCRIBE_CLUSTER: (0, 1),
    DESCRIBE_PRODUCERS: (0, 0),
    DESCRIBE_TRANSACTIONS: (0, 0),
    LIST_TRANSACTIONS: (0, 1),
    INSPECT_BROKER: (0, 0),
}
"""API key → (lowest, highest) version. Produce 0–2 are advertised but refused. Without them in the ApiVersions
response, older librdkafka sends its batches uncompressed instead of with gzip, snappy or lz4 (KAFKA-18659)."""

NOT_SERVED: Final[dict[tuple[int, int, int], str]] = {
    (PRODUCE, 0, 2): "they carry the message formats 0 and 1, and logs here contain only format 2",
    (
        FETCH,
        0,
        3,
    ): "their clients read the message formats 0 and 1, to which brokers here do not convert records",
}
"""(API key, lowest, highest version) of each range that Kafka 3.9 serves and a broker here does not → the reason."""

NAMES: Final[dict[int, str]] = {
    PRODUCE: "Produce",
    FETCH: "Fetch",
    LIST_OFFSETS: "ListOffsets",
    METADATA: "Metadata",
    OFFSET_COMMIT: "OffsetCommit",
    OFFSET_FETCH: "OffsetFetch",
    FIND_COORDINATOR: "FindCoordinator",
    JOIN_GROUP: "JoinGroup",
    HEARTBEAT: "Heartbeat",
    LEAVE_GROUP: "LeaveGroup",
    SYNC_GROUP: "SyncGroup",
    DESCRIBE_GROUPS: "DescribeGroups",
    LIST_GROUPS: "ListGroups",
    SASL_HANDSHAKE: "SaslHandshake",
    API_VERSIONS: "ApiVersions",
    CREATE_TOPICS: "CreateTopics",
    DELETE_TOPICS: "DeleteTopics",
    DELETE_RECORDS: "DeleteRecords",
    INIT_PRODUCER_ID: "InitProducerId",
    OFFSET_FOR_LEADER_EPOCH: "OffsetForLeaderEpoch",
    ADD_PARTITIONS_TO_TXN: "AddPartitionsToTxn",
    ADD_OFFSETS_TO_TXN: "AddOffsetsToTxn",
    END_TXN: "EndTxn",
    WRITE_TXN_MARKERS: "WriteTxnMarkers",
    TXN_OFFSET_COMMIT: "TxnOffsetCommit",
    DESCRIBE_ACLS: "DescribeAcls",
    CREATE_ACLS: "CreateAcls",
    DELETE_ACLS: "DeleteAcls",
    DESCRIBE_CONFIGS: "DescribeConfigs",
    ALTER_CONFIGS: "AlterConfigs",
    ALTER_REPLICA_LOG_DIRS: "AlterReplicaLogDirs",
    DESCRIBE_LOG_DIRS: "DescribeLogDirs",
    SASL_AUTHENTICATE: "SaslAuthenticate",
    CREATE_PARTITIONS: "CreatePartitions",
    CREATE_DELEGATION_TOKEN: "CreateDelegationToken",
    RENEW_DELEGATION_TOKEN: "RenewDelegationToken",
    EXPIRE_DELEGATION_TOKEN: "ExpireDelegationToken",
    DESCRIBE_DELEGATION_TOKEN: "DescribeDelegationToken",
    DELETE_GROUPS: "DeleteGroups",
    ELECT_LEADERS: "ElectLeaders",
    INCREMENTAL_ALTER_CONFIGS: "IncrementalAlterConfigs",
    ALTER_PARTITION_REASSIGNMENTS: "AlterPartitionReassignments",
    LIST_PARTITION_REASSIGNMENTS: "ListPartitionReassignments",
    OFFSET_DELETE: "OffsetDelete",
    DESCRIBE_CLIENT_QUOTAS: "DescribeClientQuotas",
    ALTER_CLIENT_QUOTAS: "AlterClientQuotas",
    DESCRIBE_USER_SCRAM_CREDENTIALS: "DescribeUserScramCredentials",
    ALTER_USER_SCRAM_CREDENTIALS: "AlterUserScramCredentials",
    UPDATE_FEATURES: "UpdateFeatures",
    DESCRIBE_CLUSTER: "DescribeCluster",
    DESCRIBE_PRODUCERS: "DescribeProducers",
    DESCRIBE_TRANSACTIONS: "DescribeTransactions",
    LIST_TRANSACTIONS: "ListTransactions",
    INSPECT_BROKER: "InspectBroker",
}
OWN: Final = frozenset({INSPECT_BROKER})
"""The APIs that Kafka does not have. Their keys, the letters "mk", are far above Kafka's."""


def is_served(api: int, version: int) -> bool:
    """Return True if requests of this API and version are served."""
    bounds = SERVED.get(api)
    return bounds is not None and bounds[0] <= version <= bounds[1]
