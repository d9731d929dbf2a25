"""Adding brokers to a cluster, and removing them (C26).

A broker takes part as long as it has a queue of state-change requests, which its first start creates too.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ConfigError, MultiFailed, NodeExists
from minikafka.base.model import BrokerId
from minikafka.base.ports import MultiOp, ZooKeeper
from minikafka.zookeeper.nodes import registrations
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import partitions, queues, tree

_ATTEMPTS: Final = 5
_REMOVED_AT_ONCE: Final = 500
_NAMED: Final = 10
"""Partitions that a refusal names."""


async def add_broker(zookeeper: ZooKeeper, broker_id: BrokerId) -> bool:
    """Create the queue of a broker; return False if it exists. Raises CoordinationError."""
    await tree.ensure(zookeeper)
    try:
        await zookeeper.multi([queues.creation(broker_id)])
    except MultiFailed as failed:
        if isinstance(failed.error, NodeExists):
            return False
        raise
    return True


async def remove_broker(zookeeper: ZooKeeper, broker_id: BrokerId) -> bool:
    """Remove the queue of a broker with its requests; return False if the broker has none.

    Raises ConfigError if the broker is running or hosts replicas, and CoordinationError.
    """
    path = queues.path_of(broker_id)
    for _ in range(_ATTEMPTS):
        await zookeeper.sync(path)
        await _check_unused(zookeeper, broker_id)
        [names] = await zookeeper.children_many([path])
        if names is None:
            return False
        multi: list[MultiOp] = [queues.removal(broker_id, name) for name in names]
        multi.append(queues.queue_removal(broker_id))
        try:
            for first in range(0, len(multi), _REMOVED_AT_ONCE):
                await zookeeper.multi(multi[first : first + _REMOVED_AT_ONCE])
        except MultiFailed:
            continue  # a request was added or removed meanwhile
        return True
    raise ConfigError(f"broker {broker_id}: its queue is being changed by other brokers; retry")


async def _check_unused(zookeeper: ZooKeeper, broker_id: BrokerId) -> None:
    """Raise ConfigError if the broker is registered, or in the replicas or the reassignment of a partition."""
    faults = Faults()
    if await registrations.stat(zookeeper, broker_id, tree.REGISTRATIONS) is not None:
        raise ConfigError(f"broker {broker_id} is running; stop it before it is removed")
    tps = await partitions.list_partitions(zookeeper, faults)
    hosts = await partitions.read_hosts(zookeeper, tps, faults)
    hosted = [str(tp) for tp, ids in hosts.items() if broker_id in ids]
    if hosted:
        more = f" and {len(hosted) - _NAMED} more" if len(hosted) > _NAMED else ""
        raise ConfigError(
            f"broker {broker_id} hosts replicas of {', '.join(hosted[:_NAMED])}{more}; reassign these partitions "
            "to other brokers first"
        )
