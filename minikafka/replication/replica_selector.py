"""Kafka's RackAwareReplicaSelector: which replica a consumer should read from (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from minikafka.base.model import BrokerId
from minikafka.replication.partition import Partition

_READING_MS: Final = 600_000
"""Time after which a consumer that was sent to a follower has asked the leader again or stopped reading.

It is twice the default of the consumer's metadata.max.age.ms."""
LEADER: Final = -1
"""Returned when the consumer should read from the leader."""


def preferred_read_replica(
    partition: Partition,
    offset: int,
    rack: str,
    rack_of: Callable[[BrokerId], str | None],
    now: int,
) -> BrokerId:
    """Return the broker from which a consumer should read: a follower in its rack, or LEADER for this broker.

    Of the followers that are in the ISR and have the offset, the one with the most records is chosen. From
    now on the leader sends that follower the high watermark promptly. `rack_of` returns the rack of a live
    broker that the consumer can connect to, else None. `now`: monotonic ms.
    """
    if not rack or not partition.is_leader or rack_of(partition.broker_id) == rack:
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
    """Forget the followers to which no consumer was sent for ten minutes; `now`: monotonic ms.

    The leader then no longer sends them its high watermark promptly.
    """
    former = [one for one, at in partition.remote_readers.items() if now - at > _READING_MS]
    for progress in former:
        del partition.remote_readers[progress]
