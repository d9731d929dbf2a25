"""The queues of state-change requests: one persistent parent per broker, one sequential node per request.

Anyone may add an entry. An entry is deleted by the broker that it is addressed to, or when a full queue is shrunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from minikafka.base.model import BrokerId
from minikafka.base.names import parse_number
from minikafka.base.ports import Create, Delete
from minikafka.deciders.leaders.model import StateChange
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import layout
from minikafka.zookeeper.nodes.reader import NodeReader

DIRECTORY: Final = layout.QUEUES
"""Parent of the brokers' queues. The name of each queue is the broker id."""

path_of = layout.queue_path


def brokers(names: Iterable[str], faults: Faults) -> list[BrokerId]:
    """Return the broker ids among `names`, the children of `DIRECTORY`. Report other names to `faults`."""
    found = []
    for name in names:
        try:
            found.append(parse_number(name))
        except ValueError as fault:
            faults.report(f"{DIRECTORY}/{name}", fault)
    return found


def creation(broker_id: BrokerId) -> Create:
    """Return the operation that creates a broker's queue. A broker without a queue cannot take part."""
    return Create(layout.queue_path(broker_id), b"")


def queue_removal(broker_id: BrokerId) -> Delete:
    """Return the operation that removes the queue of a broker, which must be empty."""
    return Delete(layout.queue_path(broker_id), -1)


def entry(broker_id: BrokerId, request: StateChange) -> Create:
    """Return the operation that adds a request to the queue of a broker."""
    path = f"{layout.queue_path(broker_id)}/{layout.ENTRY_PREFIX}"
    return Create(path, layout.encode_request(request), sequential=True)


def removal(broker_id: BrokerId, name: str) -> Delete:
    """Return the operation that removes the entry with this name from the queue of a broker."""
    return Delete(f"{layout.queue_path(broker_id)}/{name}", -1)


def in_order(broker_id: BrokerId, names: Iterable[str], faults: Faults) -> list[str]:
    """Return the entries among the children of a broker's queue, the oldest first. Report other names to `faults`."""
    found = []
    for name in names:
        try:
            layout.entry_number(name)
        except ValueError as fault:
            faults.report(f"{layout.queue_path(broker_id)}/{name}", fault)
        else:
            found.append(name)
    return layout.in_order(found)


async def read(
    nodes: NodeReader, broker_id: BrokerId, names: Sequence[str], faults: Faults
) -> dict[str, StateChange | None]:
    """Return the requests of the entries that exist, None for an unreadable one, in the order of `names`.

    Raises CoordinationError.
    """
    paths = [f"{layout.queue_path(broker_id)}/{name}" for name in names]
    requests: dict[str, StateChange | None] = {}
    for name, path, node in zip(names, paths, await nodes.get_many(paths), strict=True):
        if node is None:
            continue
        try:
            requests[name] = layout.decode_request(node.data)
        except ValueError as fault:
            faults.report(path, fault)
            requests[name] = None
    return requests
