"""Keys of a broker that exist only as dynamic settings: the rates at which replicas are copied."""

from __future__ import annotations

from typing import Final

from minikafka.base.config.keys import LONG_MAX, Key, Kind

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
THROTTLES: Final[dict[str, Key]] = {
    row.name: row
    for row in (
        Key(
            Kind.LONG,
            LONG_MAX,
            "Maximum bytes per second sent to throttled replicas outside of the ISR.",
            low=0,
            name=LEADER_RATE,
        ),
        Key(
            Kind.LONG,
            LONG_MAX,
            "Maximum bytes per second fetched for throttled replicas outside of the ISR.",
            low=0,
            name=FOLLOWER_RATE,
        ),
        Key(
            Kind.LONG,
            LONG_MAX,
            "Maximum bytes per second of moves between log directories.",
            low=0,
            waits_for="moves between log directories",
            name="replica.alter.log.dirs.io.max.bytes.per.second",
        ),
    )
}
"""The keys by name. A broker's configuration file cannot set them."""
