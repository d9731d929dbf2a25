"""The keys of a broker that exist only as dynamic settings: the rates at which replicas are copied."""

from __future__ import annotations

from typing import Final

from minikafka.base.config.keys import LONG_MAX, ConfigType, Key

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
MOVE_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
THROTTLES: Final[dict[str, Key]] = {
    row.name: row
    for row in (
        Key(
            ConfigType.LONG,
            LONG_MAX,
            "Maximum bytes per second sent to throttled replicas outside of the ISR.",
            low=0,
            name=LEADER_RATE,
        ),
        Key(
            ConfigType.LONG,
            LONG_MAX,
            "Maximum bytes per second fetched for throttled replicas outside of the ISR.",
            low=0,
            name=FOLLOWER_RATE,
        ),
        Key(
            ConfigType.LONG,
            LONG_MAX,
            "Maximum bytes per second of moves between log directories.",
            low=0,
            name=MOVE_RATE,
        ),
    )
}
"""The keys of a broker that exist only as dynamic settings, by name: the rates at which replicas are copied."""
