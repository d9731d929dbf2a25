"""The configuration keys of a broker, and their checked values.

Every key except `minikafka.…` has the name, type, default and range of Kafka 3.9. However, a value that cannot
work, such as a negative interval, is refused even if Kafka accepts the value.
Invariant: an existing config object is valid. An invalid value raises ConfigError, whose text names
the key and the fix. `docs/configuration.md` is generated from the tables of keys.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from minikafka.base.config.authorizer import check_authorizer
from minikafka.base.config.keys import (
    LONG_MAX,
    ConfigType,
    Key,
    first_set,
    flatten,
    key,
    parse_all,
    table,
    unknown_key,
)
from minikafka.base.config.listeners import Listeners, parse_listeners
from minikafka.base.config.passwords import check_passwords
from minikafka.base.config.quotas import per_ip_overrides
from minikafka.base.config.replication import ReplicationKeys, check_replication
from minikafka.base.config.security import (
    PREFIX,
    SecurityKeys,
    listener_key,
    parse_prefixed,
    security_of,
)
from minikafka.base.config.unread_security import unread_security
from minikafka.base.config.zookeeper import check_zookeeper
from minikafka.base.coordination import CONTROLLER, LEADERS, MODES
from minikafka.base.endpoints import Endpoint, SecurityProtocol
from minikafka.base.errors import ConfigError
from minikafka.base.toml import read_toml, table_of

_, BOOLEAN, STRING, INT, LONG, DOUBLE, LIST, PASSWORD = ConfigType

HOUR_MS: Final = 3_600_000
RETENTION: Final = (
    ("log.retention.ms", 1),
    ("log.retention.minutes", 60_000),
    ("log.retention.hours", HOUR_MS),
)
"""The keys of the same value in order of precedence, each with its unit in milliseconds."""
_CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_DEDUPE_BYTES_MIN: Final = 1 << 20
_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")


_KAFKA_VERSION: Final = (
    r"(0[.](8[.][0-2]|9[.]0|10[.][0-2]|11[.]0)|1[.][01]|2[.][0-8]|3[.][0-9])([.][0-9]+|-IV[0-9])?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(ReplicationKeys):
    """Settings of one broker. The attribute of a key is the key's name with `_` instead of `.`."""

    # Identity and listeners.
    broker_id: int = key(INT, -1, "Id of this broker in the cluster; required.", low=0)
    broker_rack: str | None = key(
        STRING,
        None,
        "Rack of the broker; replicas of a partition are spread over racks, and with replica.selector.class set, "
        "consumers read from a replica in their rack.",
    )
    listeners: tuple[str, ...] = key(
        LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Addresses to listen on, as NAME://host:port: one or more for Kafka clients, and one for the control plane, "
        "which gets a free port without an entry. Port 0: a free port.",
    )
    advertised_listeners: tuple[str, ...] = key(
        LIST, (), "Addresses to register for clients and brokers, if they differ from listeners."
    )
    listener_security_protocol_map: tuple[str, ...] = key(
        LIST,
        (*(f"{item.value}:{item.value}" for item in SecurityProtocol), "CONTROLLER:PLAINTEXT"),
        "Security protocol of each listener name, as NAME:PROTOCOL.",
    )
    inter_broker_listener_name: str | None = key(
        STRING,
        None,
        "Listener that followers fetch from; if not set, the listener with the name of security.inter.broker.protocol.",
    )
    security_inter_broker_protocol: str = key(
        STRING,
        "PLAINTEXT",
        "Security protocol between brokers, in the place of inter.broker.listener.name.",
        choices=tuple(item.value for item in SecurityProtocol),
    )
    connection_failed_authentication_delay_ms: int = key(
        INT,
        100,
        "Time after which a client that has not authenticated gets its answer, and is disconnected.",
        low=0,
    )
    minikafka_handshake_timeout_ms: int = key(
        INT,
        30_000,
        "Time that a client has for the TLS handshake and for its authentication.",
        low=1_000,
    )
    control_plane_listener_name: str = key(
        STRING, "CONTROLLER", "Listener that receives the controller's requests."
    )
    minikafka_control_listener: str | None = key(
        STRING,
        None,
        "Listener of the control plane, as in listeners; without a host, its address is that of the listener between "
        "brokers.",
    )
    minikafka_source_address: str | None = key(
        STRING,
        None,
        "Address of this machine from which the broker connects to other brokers and to ZooKeeper; without it, the "
        "system chooses. What stands between brokers then knows which broker connects.",
    )
    minikafka_cluster_secret: str = key(
        PASSWORD,
        "",
        "Secret shared by the brokers of one cluster; signs requests and answers on the control plane.",
        low=16,
    )

    minikafka_metrics_enable: bool = key(
        BOOLEAN,
        True,
        "Whether the control listener serves /metrics, Prometheus text. Anyone who connects can read it, until an "
        "authorizer is set or brokers authenticate to each other: then readers need TLS and a user (docs/security.md).",
    )
    minikafka_records_check_enable: bool = key(
        BOOLEAN,
        True,
        "If true, the broker reads the records of every produced batch, and refuses a batch that consumers could not "
        "read. If false, it reads only the batches of topics that are compacted, set a codec or limit timestamps.",
    )
    minikafka_fast_failover_enable: bool = key(
        BOOLEAN,
        True,
        "If true, a broker whose control listener refuses connections loses its leaderships at once. If false, it "
        "keeps them until its ZooKeeper session expires.",
        mode=CONTROLLER,
    )
    minikafka_coordination: str = key(
        STRING,
        CONTROLLER,
        "Who elects leaders and changes replicas: one broker as the controller, or the leader of each partition "
        "(docs/architecture.md). All brokers of a cluster have the same mode, from its first start on.",
        choices=MODES,
    )
    minikafka_leaders_election_wait_ms: int = key(
        INT,
        1_000,
        "Pause before a replica repeats an election that was refused, looks again at nodes that it could not read, or "
        "holds an unclean election, in which a member of the ISR may return meanwhile.",
        low=10,
        high=60_000,
        mode=LEADERS,
    )
    minikafka_leaders_preferred_wait_ms: int = key(
        INT,
        1_000,
        "Time for which another replica leaves an election to the preferred replica, if that one can lead. Longer than "
        "brokers need to notice the same death, and short against a session timeout.",
        low=0,
        high=60_000,
        mode=LEADERS,
    )
    minikafka_leaders_queue_max: int = key(
        INT,
        10_000,
        "Maximum number of state-change requests in the queue of one broker; a full queue is shrunk before the next "
        "request. ZooKeeper must be able to list the queue in one answer of 1 MiB.",
        low=2,
        high=50_000,
        mode=LEADERS,
    )

    # Topics.
    num_partitions: int = key(INT, 1, "Default number of partitions of a new topic.", low=1)
    default_replication_factor: int = key(
        INT, 1, "Default replication factor of a new topic.", low=1, high=32_767
    )
    auto_create_topics_enable: bool = key(
        BOOLEAN, True, "If true, a metadata request for an unknown topic creates it."
    )
    delete_topic_enable: bool = key(BOOLEAN, True, "If false, topics cannot be deleted.")
    min_insync_replicas: int = key(
        INT, 1, "Minimum size of the ISR; with a smaller ISR, acks=all writes are refused.", low=1
    )
    unclean_leader_election_enable: bool = key(
        BOOLEAN,
        False,
        "If true, a replica outside the ISR may become leader, which loses acknowledged records.",
    )
    compression_type: str = key(
        STRING,
        "producer",
        "Compression codec of the log; `producer` keeps the codec of each producer's batches.",
        choices=_CODECS,
    )
    compression_gzip_level: int = key(
        INT, -1, "Compression level of gzip.", low=-1, high=9, excluded=0
    )
    compression_lz4_level: int = key(INT, 9, "Compression level of lz4.", low=1, high=17)
    compression_zstd_level: int = key(INT, 3, "Compression level of zstd.", low=-131_072, high=22)
    message_max_bytes: int = key(INT, 1_048_588, "Maximum size of a record batch in bytes.", low=0)

    # The log.
    log_dir: str = key(STRING, "/tmp/kafka-logs", "Directory of the logs, if log.dirs is not set.")  # noqa: S108 - Kafka's default
    log_dirs: tuple[str, ...] = key(LIST, (), "Directories of the logs.")
    log_segment_bytes: int = key(
        INT, 1_073_741_824, "Size in bytes at which a new segment is started.", low=14
    )
    log_roll_ms: int | None = key(LONG, None, "Age at which a new segment is started.", low=1)
    log_roll_hours: int = key(
        INT, 168, "As log.roll.ms, in hours; log.roll.ms takes precedence.", low=1
    )
    log_roll_jitter_ms: int | None = key(
        LONG, None, "Maximum random time subtracted from log.roll.ms.", low=0
    )
    log_roll_jitter_hours: int = key(INT, 0, "As log.roll.jitter.ms, in hours.", low=0)
    log_index_size_max_bytes: int = key(
        INT, 10_485_760, "Maximum size of a segment's index in bytes.", low=4
    )
    log_index_interval_bytes: int = key(
        INT, 4_096, "Bytes of log between two index entries.", low=0
    )
    log_message_timestamp_type: str = key(
        STRING,
        "CreateTime",
        "Source of a record's timestamp: the producer or the append.",
        choices=_TIMESTAMP_TYPES,
    )
    log_message_format_version: str = key(
        STRING,
        "3.0-IV1",
        "Version of Kafka whose record format is stored. It is always the format of Kafka 0.11 and later.",
        form=_KAFKA_VERSION,
        waits_for="record formats before Kafka 0.11",
    )
    log_message_timestamp_difference_max_ms: int = key(
        LONG,
        LONG_MAX,
        "Limit for log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms if they are not set.",
        low=0,
    )
    log_message_timestamp_before_max_ms: int = key(
        LONG, LONG_MAX, "Maximum age of a record's timestamp at the append.", low=0
    )
    log_message_timestamp_after_max_ms: int = key(
        LONG, LONG_MAX, "Maximum distance of a record's timestamp into the future.", low=0
    )
    log_message_downconversion_enable: bool = key(
        BOOLEAN,
        True,
        "If true, old consumers receive records in the old formats that they can read.",
        waits_for="versions 0 to 3 of Fetch, which return old record formats",
    )
    log_preallocate: bool = key(
        BOOLEAN,
        False,
        "If true, segments are created at their full size.",
        waits_for="segment files that are allocated before they are written",
    )
    log_flush_interval_messages: int = key(
        LONG,
        LONG_MAX,
        "A log is fsynced after this number of records, before the last of them is acknowledged.",
        low=1,
    )
    log_flush_interval_ms: int | None = key(
        LONG,
        None,
        "Maximum time without an fsync of a log with new records; checked every 500 ms.",
        low=0,
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        INT, 60_000, "Interval at which recovery points and log start offsets are written.", low=1
    )
    log_cleanup_policy: tuple[str, ...] = key(
        LIST,
        ("delete",),
        "Treatment of old records: deleted by retention, compacted, or both. Empty: all are kept.",
        choices=("delete", "compact"),
    )
    log_retention_bytes: int = key(
        LONG,
        -1,
        "Size in bytes above which a log loses its oldest segments; at least this much stays. -1: no limit.",
        low=-1,
    )
    log_retention_ms: int | None = key(
        LONG,
        None,
        "A segment is deleted when its newest record has this age; -1: no limit.",
        low=-1,
    )
    log_retention_minutes: int | None = key(INT, None, "As log.retention.ms, in minutes.", low=-1)
    log_retention_hours: int = key(INT, 168, "As log.retention.ms, in hours.", low=-1)
    log_retention_check_interval_ms: int = key(
        LONG, 300_000, "Interval between checks for old segments.", low=1
    )
    log_initial_task_delay_ms: int = key(
        LONG, 30_000, "Time from the broker's start to the first check for old segments.", low=0
    )
    log_segment_delete_delay_ms: int = key(
        LONG, 60_000, "Time between removing a file from the log and deleting it.", low=0
    )
    log_cleaner_enable: bool = key(
        BOOLEAN, True, "If true, logs are compacted; if false, compacted topics keep all records."
    )
    log_cleaner_threads: int = key(INT, 1, "Number of logs that are compacted at once.", low=1)
    log_cleaner_dedupe_buffer_size: int = key(
        LONG, 134_217_728, "Memory in bytes for the keys of all logs that are being compacted."
    )
    log_cleaner_io_buffer_size: int = key(
        INT, 524_288, "Bytes that compaction reads and writes at once, over all threads.", low=0
    )
    log_cleaner_io_buffer_load_factor: float = key(
        DOUBLE, 0.9, "Share of log.cleaner.dedupe.buffer.size that may be filled.", low=0
    )
    log_cleaner_io_max_bytes_per_second: float = key(
        DOUBLE,
        sys.float_info.max,
        "Maximum bytes per second that all threads of compaction together read and write.",
        low=1,
    )
    log_cleaner_backoff_ms: int = key(
        LONG, 15_000, "Pause of compaction while no log is dirty enough.", low=0
    )
    log_cleaner_delete_retention_ms: int = key(
        LONG,
        86_400_000,
        "Time for which compaction keeps a delete marker.",
        low=0,
    )
    log_cleaner_min_compaction_lag_ms: int = key(
        LONG,
        0,
        "Minimum age of a record before compaction may remove it.",
        low=0,
    )
    log_cleaner_max_compaction_lag_ms: int = key(
        LONG,
        LONG_MAX,
        "Maximum age of a record before its log must be compacted.",
        low=1,
    )
    log_cleaner_min_cleanable_ratio: float = key(
        DOUBLE,
        0.5,
        "Minimum ratio of uncompacted bytes in a log before compaction.",
        low=0,
        high=1,
    )
    producer_id_expiration_ms: int = key(
        INT, 86_400_000, "Time for which the sequence numbers of an idle producer are kept.", low=1
    )
    minikafka_producer_ids_max: int = key(
        INT,
        250_000,
        "Maximum number of producer ids whose sequence numbers a broker keeps, counted for each partition; a new one "
        "takes about 180 bytes. If three quarters are reached, those that have been idle for the longest are forgotten "
        "early. A leader that has reached the maximum refuses batches of new ids with LEADER_NOT_AVAILABLE.",
        low=1,
    )
    minikafka_producer_ids_keep_ms: int = key(
        INT,
        600_000,
        "Time after its last append for which a producer id is not forgotten early; must be longer than the time for "
        "which producers retry (delivery.timeout.ms).",
        low=0,
    )

    # Controlled shutdown.
    auto_leader_rebalance_enable: bool = key(
        BOOLEAN,
        True,
        "If true, leaderships are regularly moved back to preferred replicas.",
    )
    leader_imbalance_per_broker_percentage: int = key(
        INT,
        10,
        "Maximum percentage of a broker's preferred partitions that other brokers may lead.",
        low=0,
        mode=CONTROLLER,
    )
    leader_imbalance_check_interval_seconds: int = key(
        LONG, 300, "Interval at which the leader balance is checked.", low=1
    )
    controlled_shutdown_enable: bool = key(
        BOOLEAN, True, "If true, a broker moves its leaderships to other brokers before it exits."
    )
    controlled_shutdown_max_retries: int = key(
        INT, 3, "Maximum attempts to move the leaderships before the broker exits.", low=0
    )
    controlled_shutdown_retry_backoff_ms: int = key(
        LONG, 5_000, "Pause between attempts of a controlled shutdown.", low=0
    )

    given: frozenset[str] = frozenset()
    """The keys that were set explicitly, as opposed to defaults."""
    listener_keys: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The values of the keys `listener.name.…` by full name."""

    @classmethod
    def keys(cls) -> dict[str, Key]:
        """Return every broker key by its Kafka name, such as `log.retention.ms`."""
        return _BROKER_KEYS

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> BrokerConfig:
        """Create a config from TOML values, or values in Kafka's text form, by Kafka key name. Raises ConfigError."""
        own = {name: value for name, value in values.items() if not name.startswith(PREFIX)}
        prefixed = parse_prefixed(values)
        config = cls(**parse_all(_BROKER_KEYS, own), given=frozenset(own), listener_keys=prefixed)
        _check_broker(config)
        return config

    @classmethod
    def parse(cls, text: str) -> BrokerConfig:
        """Parse a broker's file: TOML with a `[broker]` table of Kafka keys. Raises ConfigError."""
        document = read_toml(text)
        for name in document:
            if name != "broker":
                raise unknown_key(name, ["broker"])
        return cls.from_mapping(flatten(table_of(document, "broker")))

    def text(self, name: str) -> str | None:
        """Return the value of a key in Kafka's text form; None if it is unset or secret."""
        prefixed = listener_key(name)
        if prefixed is not None:
            return prefixed.text(self.listener_keys.get(name))
        row = _BROKER_KEYS[name]
        return row.text(getattr(self, row.attribute))

    def has(self, name: str) -> bool:
        """Return True if the key was set explicitly."""
        return name in self.given or name in self.listener_keys

    def first_set(self, keys: tuple[tuple[str, int], ...]) -> Any:
        """Return the value of the first of these keys that is set, times its factor; None if no key is set."""
        return first_set({name: getattr(self, name.replace(".", "_")) for name, _ in keys}, keys)

    @property
    def unread_keys(self) -> dict[str, str]:
        """The reason for each key that was set explicitly and is not read.

        Another coordination mode reads it, or listeners with TLS or SASL.
        """
        modes = {name: _BROKER_KEYS[name].mode for name in sorted(self.given)}
        own = self.minikafka_coordination
        others = {name: mode for name, mode in modes.items() if mode not in ("", own)}
        listeners, given = self.endpoints, sorted({*self.given, *self.listener_keys})
        calls_with_tls = self.security_of(listeners.inter_broker).has_truststore
        return {
            **dict.fromkeys(others, f"minikafka.coordination is {own}"),
            **unread_security(given, listeners, calls_with_tls=calls_with_tls),
        }

    @property
    def endpoints(self) -> Listeners:
        """The addresses at which the broker listens, and the endpoints that it registers for them."""
        own = self.minikafka_control_listener
        return parse_listeners(
            (*self.listeners, own) if own else self.listeners,
            self.advertised_listeners,
            self.listener_security_protocol_map,
            self.control_plane_listener_name,
            self.inter_broker_listener_name or self.security_inter_broker_protocol,
        )

    def security_of(self, listener: str, mechanism: str = "") -> SecurityKeys:
        """Return the keys of TLS and SASL for a listener, and for one of its SASL mechanisms."""
        return security_of(self, self.listener_keys, listener, mechanism)

    @property
    def exposed_listeners(self) -> dict[str, str]:
        """The listeners that other machines can connect to, as NAME://host:port → what they lack.

        The calls of the control listener are signed, so that it lacks at most encryption.
        """
        found = self.endpoints
        lacks = {str(item): self._lacks(item) for item in found.kafka if not item.is_loopback}
        if not found.control.is_loopback and not found.control.security.is_encrypted:
            lacks[str(found.control)] = "encryption"
        return {listener: what for listener, what in lacks.items() if what}

    def _lacks(self, endpoint: Endpoint) -> str:
        """Return what a Kafka listener lacks, "" if it has encryption and authentication."""
        is_encrypted = endpoint.security.is_encrypted
        missing = {"encryption": is_encrypted, "authentication": self._authenticates(endpoint)}
        return " and ".join(what for what, is_there in missing.items() if not is_there)

    def _authenticates(self, endpoint: Endpoint) -> bool:
        """True if all clients of a Kafka listener must authenticate."""
        asks = self.security_of(endpoint.name).ssl_client_auth == "required"
        return endpoint.security.is_sasl or (endpoint.security.is_encrypted and asks)

    @property
    def is_secured(self) -> bool:
        """True if an authorizer decides, or brokers authenticate to each other. Then /metrics needs TLS and a login."""
        found = self.endpoints
        between = [item for item in found.kafka if item.name == found.inter_broker]
        return bool(self.authorizer_class_name) or any(map(self._authenticates, between))


_BROKER_KEYS: Final = table(BrokerConfig)


def _check_broker(config: BrokerConfig) -> None:
    """Check rules that involve several keys, and set an empty `log_dirs` from `log_dir`. Raises ConfigError."""
    if "broker.id" not in config.given:
        raise ConfigError("broker.id is required: give each broker a different number from 0")
    if not config.log_dirs:
        object.__setattr__(config, "log_dirs", (config.log_dir,))
    if twice := sorted(path for path in config.log_dirs if config.log_dirs.count(path) > 1):
        raise ConfigError(f"log.dirs contains {twice[0]} twice; remove one")
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError(
            "group.min.session.timeout.ms must be at most group.max.session.timeout.ms"
        )
    check_replication(config)
    check_cleaner(config)
    if {"inter.broker.listener.name", "security.inter.broker.protocol"} <= config.given:
        raise ConfigError(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
        )
    check_authorizer(config)
    check_passwords(config)
    _ = config.endpoints  # raises ConfigError for listeners that contradict each other
    check_zookeeper(config)
    per_ip_overrides(config)
    check_inherited(config)


def check_cleaner(config: BrokerConfig) -> None:
    """Raise ConfigError if the log cleaner's buffer is too small for its threads, as Kafka does."""
    if config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads <= _DEDUPE_BYTES_MIN:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size must be above 1 MiB (1048576) for each of log.cleaner.threads"
        )


def check_inherited(config: BrokerConfig) -> None:
    """Check the settings that topics inherit from this broker. Raises ConfigError."""
    if config.log_cleaner_min_compaction_lag_ms > config.log_cleaner_max_compaction_lag_ms:
        raise ConfigError(
            "log.cleaner.min.compaction.lag.ms must be at most log.cleaner.max.compaction.lag.ms"
        )
    if config.first_set(RETENTION) == 0:
        raise ConfigError(
            "log.retention.ms, log.retention.minutes and log.retention.hours must be -1 (no limit) or at least 1; "
            "only a topic's retention.ms may be 0"
        )
