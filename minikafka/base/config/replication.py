"""The configuration keys of replication: followers' fetches, and the requests of the controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from minikafka.base.config.keys import ConfigType, key
from minikafka.base.config.quotas import QuotaKeys
from minikafka.base.coordination import CONTROLLER
from minikafka.base.errors import ConfigError

_, _, STRING, INT, LONG, _, _, _ = ConfigType

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationKeys(QuotaKeys):
    """The keys of replication, a part of `BrokerConfig`."""

    replica_lag_time_max_ms: int = key(
        LONG, 30_000, "Maximum time for which a follower may lag and stay in the ISR.", low=1
    )
    replica_fetch_max_bytes: int = key(
        INT, 1_048_576, "Maximum bytes per partition in a follower's fetch.", low=0
    )
    replica_fetch_response_max_bytes: int = key(
        INT, 10_485_760, "Maximum bytes in a follower's fetch.", low=0
    )
    replica_fetch_wait_max_ms: int = key(
        INT, 500, "Maximum time for which the leader holds a follower's fetch.", low=0
    )
    replica_fetch_min_bytes: int = key(
        INT, 1, "Minimum bytes before the leader answers a follower's fetch.", low=0
    )
    replica_fetch_backoff_ms: int = key(
        INT, 1_000, "Pause of a follower's fetcher after an error.", low=0
    )
    replica_socket_timeout_ms: int = key(
        INT,
        30_000,
        "Time after which a follower connects again if the leader has not answered a fetch.",
        low=1,
    )
    replica_high_watermark_checkpoint_interval_ms: int = key(
        LONG, 5_000, "Interval at which high watermarks are written.", low=1
    )
    replica_selector_class: str | None = key(
        STRING,
        None,
        "Class that chooses the replica from which a consumer reads; RackAwareReplicaSelector: a replica in the "
        "consumer's rack. If not set, consumers read from the leader.",
        choices=(RACK_AWARE_SELECTOR,),
    )
    replication_quota_window_num: int = key(
        INT, 11, "Number of windows over which the rate of throttled replicas is averaged.", low=1
    )
    replication_quota_window_size_seconds: int = key(
        INT, 1, "Length of each window of replication.quota.window.num.", low=1
    )
    controller_socket_timeout_ms: int = key(
        INT,
        30_000,
        "Time after which the controller sends a request again that a broker has not answered.",
        low=1,
        mode=CONTROLLER,
    )


def check_replication(config: ReplicationKeys) -> None:
    """Raise ConfigError if two of the keys contradict each other."""
    if config.replica_fetch_wait_max_ms > config.replica_lag_time_max_ms:
        raise ConfigError("replica.fetch.wait.max.ms must be at most replica.lag.time.max.ms")
    if config.replica_fetch_wait_max_ms > config.replica_socket_timeout_ms:
        raise ConfigError("replica.fetch.wait.max.ms must be at most replica.socket.timeout.ms")
