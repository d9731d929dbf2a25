"""The replication throttles of this broker: the throttled replicas and the two rates (KIP-73).

The topic keys `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` name the
throttled replicas, as partition:broker or `*`. The rates are dynamic keys of the broker. A third rate limits moves
between the log directories of the broker (KIP-113).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.model import BrokerId
from minikafka.base.ports import Clock
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.throttle import Throttle

_EVERY_REPLICA: Final = "*"


class ReplicationThrottles:
    """The throttles of one broker: `leader` for sending, `follower` for fetching, `moves` between its directories."""

    def __init__(self, broker_id: BrokerId, config: BrokerConfig, clock: Clock) -> None:
        self._broker_id = broker_id
        windows = config.replication_quota_window_num
        window_ms = config.replication_quota_window_size_seconds * 1000
        self.leader = Throttle(clock, windows, window_ms)
        self.follower = Throttle(clock, windows, window_ms)
        self.moves = Throttle(clock, windows, window_ms)

    def set_rates(self, leader: int, follower: int, moves: int) -> None:
        """Set the limits of the throttles, in bytes per second."""
        self.leader.set_limit(leader)
        self.follower.set_limit(follower)
        self.moves.set_limit(moves)

    def apply(self, partition: Partition, config: TopicConfig) -> None:
        """Set or remove the throttles of one replica, according to the settings of its topic."""
        own = f"{partition.tp.partition}:{self._broker_id}"
        leaders = config.leader_replication_throttled_replicas
        followers = config.follower_replication_throttled_replicas
        partition.leader_throttle = self.leader if _names(leaders, own) else None
        partition.follower_throttle = self.follower if _names(followers, own) else None


def _names(replicas: Collection[str], own: str) -> bool:
    return own in replicas or _EVERY_REPLICA in replicas
