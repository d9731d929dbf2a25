"""The choice of the replica that a consumer should read from, as in Kafka's RackAwareReplicaSelector (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from minikafka.base.model import BrokerId
from minikafka.storage.replication.partition import Partition

_READING_MS: Final = 600_000
"""Time within which a consumer that reads from a follower asks the leader again, unless it has stopped reading.

The value is twice the default of the consumer's metadata.max.age.ms."""
LEADER: Final = -1
"""Result of `preferred_read_replica` if the consumer should read from the leader."""


def preferred_read_replica(
    partition: Partition,
    offset: int,
    rack: str,
    rack_of: Callable[[BrokerId], str | None],
    now: int,
) -> BrokerId:
    """Return the broker from which a consumer should read: a follower in its rack, or LEADER for this broker.

    Among the followers that are in the ISR and have the offset, the follower with the most records is chosen.
    From now on the leader sends the high watermark promptly to this follower. `rack_of` returns the rack of a
    live broker that the consumer can connect to, None for other brokers. `now`: monotonic ms.
    """
    if not rack or not partition.is_open or rack_of(partition.broker_id) == rack:
        return LEADER
    nearby = [
        progress
        for progress in partition.followers.values()
        if progress.broker_id in partition.isr
        and progress.log_start_offset <= offset <= progress.offset
        and rack_of(progress.broker_id) == rack
    ]
    if not nearby:
        return LEADER
    chosen = max(nearby, key=lambda one: (one.offset, one.last_caught_up, one.broker_id))
    partition.remote_readers[chosen] = now
    return chosen.broker_id


def forget_former_readers(partition: Partition, now: int) -> None:
    """Forget each follower to which the leader has sent no consumer for ten minutes; `now`: monotonic ms.

    The leader then stops sending its high watermark promptly to these followers.
    """
    former = [one for one, at in partition.remote_readers.items() if now - at > _READING_MS]
    for progress in former:
        del partition.remote_readers[progress]
