"""The configuration keys of the coordinators of groups and of transactions, and of the protocol between brokers."""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.config.keys import INT_MAX, ConfigType, key
from minikafka.base.config.passwords import PasswordKeys
from minikafka.base.protocol_versions import VERSION, VERSIONS, Versions, versions_up_to

_, BOOLEAN, STRING, INT, LONG, _, _, _ = ConfigType


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorKeys(PasswordKeys):
    """The keys of the coordinators of one broker and of their calls, a part of `BrokerConfig`."""

    minikafka_inter_broker_protocol_version: str = key(
        STRING,
        VERSION,
        "Highest version of requests and features that this broker uses with other brokers: the lower one while an "
        "upgrade may be undone (docs/upgrades.md).",
        choices=VERSIONS,
    )

    # Consumer groups.
    group_min_session_timeout_ms: int = key(
        INT, 6_000, "Minimum session timeout of a group's member.", low=0
    )
    group_max_session_timeout_ms: int = key(
        INT, 1_800_000, "Maximum session timeout of a group's member.", low=0
    )
    group_initial_rebalance_delay_ms: int = key(
        INT,
        3_000,
        "Time for which the first rebalance of an empty group waits for more members.",
        low=0,
    )
    group_max_size: int = key(INT, INT_MAX, "Maximum number of members of a group.", low=1)
    minikafka_groups_memory_max_bytes: int = key(
        LONG,
        100_663_296,
        "Maximum bytes of memory for all groups of a coordinator and their members, with the metadata and assignments "
        "that clients send. A JoinGroup that needs more gets COORDINATOR_LOAD_IN_PROGRESS; one that needs 32 KiB or "
        "more may use only half.",
        low=65_536,
    )
    minikafka_offsets_memory_max_bytes: int = key(
        LONG,
        134_217_728,
        "Maximum bytes of memory for all committed offsets of a coordinator. An OffsetCommit of new partitions that "
        "needs more gets COORDINATOR_LOAD_IN_PROGRESS; one that needs 32 KiB or more may use only half.",
        low=65_536,
    )
    offset_metadata_max_bytes: int = key(
        INT, 4_096, "Maximum size of the metadata of one committed offset.", low=0
    )
    offsets_topic_num_partitions: int = key(
        INT, 50, "Number of partitions of __consumer_offsets when it is created.", low=1
    )
    offsets_topic_replication_factor: int = key(
        INT,
        3,
        "Replication factor of __consumer_offsets, which is created once this many brokers are live.",
        low=1,
        high=32_767,
    )
    offsets_topic_segment_bytes: int = key(
        INT, 104_857_600, "segment.bytes of __consumer_offsets when it is created.", low=14
    )
    offsets_topic_compression_codec: int = key(
        INT,
        0,
        "Codec of the batches in __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        low=0,
        high=4,
    )
    offsets_load_buffer_size: int = key(
        INT,
        5_242_880,
        "Maximum bytes that a coordinator reads at once while it loads a partition of __consumer_offsets.",
        low=1,
    )
    offsets_commit_timeout_ms: int = key(
        INT, 5_000, "Maximum time until a commit is on all in-sync replicas.", low=1
    )
    offsets_retention_minutes: int = key(
        INT,
        10_080,
        "Time after which a committed offset expires if no member of the group uses it.",
        low=1,
    )
    offsets_retention_check_interval_ms: int = key(
        LONG, 600_000, "Interval at which expired offsets are removed.", low=1
    )

    # Transactions.
    transaction_max_timeout_ms: int = key(
        INT,
        900_000,
        "Maximum timeout of a transaction that a producer may ask for. A transaction that is open for longer than its "
        "timeout is aborted.",
        low=1,
    )
    transactional_id_expiration_ms: int = key(
        INT,
        604_800_000,
        "Time after which a transactional id is removed if its producer does nothing. An open transaction prevents it.",
        low=1,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        INT,
        10_000,
        "Interval at which transactions that have timed out are aborted.",
        low=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        INT,
        3_600_000,
        "Interval at which expired transactional ids are removed.",
        low=1,
    )
    transaction_partition_verification_enable: bool = key(
        BOOLEAN,
        True,
        "If true, the leader of a partition refuses a transactional batch unless the transaction coordinator knows "
        "that the partition is part of the transaction.",
    )
    transaction_state_log_num_partitions: int = key(
        INT,
        50,
        "Number of partitions of __transaction_state when it is created.",
        low=1,
    )
    transaction_state_log_replication_factor: int = key(
        INT,
        3,
        "Replication factor of __transaction_state, which is created once this many brokers are live.",
        low=1,
        high=32_767,
    )
    transaction_state_log_min_isr: int = key(
        INT,
        2,
        "min.insync.replicas of __transaction_state when it is created.",
        low=1,
    )
    transaction_state_log_segment_bytes: int = key(
        INT,
        104_857_600,
        "segment.bytes of __transaction_state when it is created.",
        low=14,
    )
    transaction_state_log_load_buffer_size: int = key(
        INT,
        5_242_880,
        "Maximum bytes that a coordinator reads at once while it loads a partition of __transaction_state.",
        low=1,
    )

    @property
    def protocol_versions(self) -> Versions:
        """The versions of the protocol between brokers that this broker uses."""
        return versions_up_to(self.minikafka_inter_broker_protocol_version)
