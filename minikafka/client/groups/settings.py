"""Settings of a group consumer: Kafka's names in snake case, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from minikafka.base.errors import ConfigError
from minikafka.client.groups.assignors import choose_assignors

OffsetReset: TypeAlias = Literal["earliest", "latest", "none"]


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a consumer in its group; times are in milliseconds. Raises ConfigError.

    `assignors`: in order of preference; all members of a group need one assignor in common. If all are
    cooperative, members keep their partitions during a rebalance. `group_instance_id`: makes the member
    static: it keeps its partitions if it rejoins within the session timeout. `auto_offset_reset`: where to
    begin in a partition without a committed offset; "none" raises `NoOffset`.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    group_instance_id: str | None = None
    assignors: tuple[str, ...] = ("range", "roundrobin")
    auto_offset_reset: OffsetReset = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    metadata_max_age_ms: int = 300_000
    fetch_max_wait_ms: int = 500

    def __post_init__(self) -> None:
        choose_assignors(self.assignors)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be below "
                f"session_timeout_ms ({self.session_timeout_ms})"
            )
