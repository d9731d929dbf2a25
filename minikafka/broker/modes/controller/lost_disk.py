"""The start of a broker whose log directories are all empty, although partitions still count on its records.

The controller takes a dead broker out of every ISR that has another living member. A broker that still is in an ISR
may be elected as the leader of the partition. With an empty log, it would make the other replicas drop every record.
So it waits, before it registers, until it is in no ISR of a partition that has other replicas.
"""

from __future__ import annotations

import logging
from typing import Final

from minikafka.base.errors import NotConnected, StaleSession
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.names import listed
from minikafka.base.ports import Clock, ZooKeeper
from minikafka.broker.modes.zookeeper.registration import refuse_second, wait_until_gone
from minikafka.zookeeper.nodes import layout, partition_states, topics
from minikafka.zookeeper.nodes.faults import Faults

logger = logging.getLogger(__name__)

_POLL_MS: Final = 500
_AGAIN_MS: Final = 60_000
"""Interval (ms) between log lines about the wait."""
_LISTED_MAX: Final = 10


async def wait_until_in_no_isr(zookeeper: ZooKeeper, broker_id: BrokerId, clock: Clock) -> None:
    """Return when no ISR of a partition with other replicas has the broker. `zookeeper` must be connected.

    Raises CoordinationError, and ConfigError if another broker with this id is alive.
    """
    faults = Faults()
    if not await _counted_on(zookeeper, broker_id, faults):
        return
    if await wait_until_gone(zookeeper, broker_id, clock):
        await refuse_second(zookeeper, broker_id)
    say_at = clock.now()
    while True:
        try:
            await zookeeper.connected()
            partitions = await _counted_on(zookeeper, broker_id, faults)
        except (NotConnected, StaleSession):
            continue
        if not partitions:
            return
        if clock.now() >= say_at:
            logger.warning(_WAITS, broker_id, listed(partitions, _LISTED_MAX))
            say_at = clock.now() + _AGAIN_MS
        await clock.sleep(_POLL_MS)


_WAITS: Final = (
    "broker %d has empty log directories, but is in the ISR of %s, and would lead with empty logs. It waits until the "
    "controller has elected another member of the ISR. If no other member is left: restore its log directories, or, "
    "if they are lost, let another replica lead, with the records that it has: "
    "`minikafka elect TOPIC-PARTITION --unclean`"
)


async def _counted_on(
    zookeeper: ZooKeeper, broker_id: BrokerId, faults: Faults
) -> list[TopicPartition]:
    """Return the partitions that have other replicas, and the broker in their ISRs."""
    names = await topics.names(zookeeper)
    nodes = await zookeeper.get_many([layout.topic_path(name) for name in names])
    shared = []
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            continue
        try:
            assignment = topics.decode(node.data).assignment
        except ValueError as fault:
            faults.report(layout.topic_path(name), fault)
            continue
        for number, assigned in assignment.items():
            if broker_id in assigned.replicas and len(assigned.replicas) > 1:
                shared.append(TopicPartition(name, number))
    states = await partition_states.read(zookeeper, shared, faults)
    return [tp for tp, state in states.items() if broker_id in state.isr]
