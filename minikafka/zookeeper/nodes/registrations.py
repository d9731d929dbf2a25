"""Broker registrations: ephemeral nodes, in the controller mode under `/brokers/ids` (A1).

`directory`: the parent of the registrations, which each coordination mode has in its own subtree.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from minikafka.base.model import Broker, BrokerId
from minikafka.base.names import parse_number
from minikafka.base.ports import Stat, ZooKeeper
from minikafka.base.protocol_versions import VERSIONS, common_version, mismatch
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.reader import NodeReader


def ids(names: Sequence[str], faults: Faults, directory: str = layout.BROKER_IDS) -> list[BrokerId]:
    """Return the broker ids among `names`, the children of `directory`. Report other names to `faults`."""
    faults.keep(directory, names)
    found = []
    for name in names:
        try:
            found.append(parse_number(name))
        except ValueError as fault:
            faults.report(f"{directory}/{name}", fault)
    return found


async def read(
    nodes: NodeReader,
    broker_ids: Sequence[BrokerId],
    faults: Faults,
    directory: str = layout.BROKER_IDS,
) -> dict[BrokerId, Broker]:
    """Return the registered brokers among `broker_ids`. Report unreadable registrations to `faults`.

    Raises CoordinationError.
    """
    found = await nodes.get_many([layout.broker_path(id_, directory) for id_ in broker_ids])
    brokers = {}
    for id_, node in zip(broker_ids, found, strict=True):
        if node is None:
            continue
        try:
            brokers[id_] = _usable(layout.decode_broker(id_, *node))
        except ValueError as fault:
            faults.report(layout.broker_path(id_, directory), fault)
    return brokers


async def find_mismatch(
    zookeeper: ZooKeeper, own: Broker, directory: str = layout.BROKER_IDS
) -> str | None:
    """Return why a broker cannot join the registered ones, and the remedy; None if it can.

    Registrations that cannot be read are ignored. Raises CoordinationError.
    """
    [names] = await zookeeper.children_many([directory])
    others = [id_ for id_ in ids(names or [], Faults(), directory) if id_ != own.id]
    paths = [layout.broker_path(id_, directory) for id_ in others]
    for id_, node in zip(others, await zookeeper.get_many(paths), strict=True):
        with suppress(ValueError):
            other = None if node is None else layout.decode_broker(id_, *node)
            if other is not None and common_version(own.versions, other.versions) is None:
                return mismatch(f"broker {own.id}", own.versions, f"broker {id_}", other.versions)
    return None


def _usable(broker: Broker) -> Broker:
    """Return the broker. Raises ValueError if it has no version of the protocol that this release has."""
    if common_version(VERSIONS, broker.versions) is None:
        raise ValueError(mismatch("this release", VERSIONS, f"broker {broker.id}", broker.versions))
    return broker


async def read_of_session(
    nodes: NodeReader, broker_id: BrokerId, session_id: int, faults: Faults
) -> Broker | None:
    """Return a registered broker, None if it is not registered by this session. Raises CoordinationError."""
    (node,) = await nodes.get_many([layout.broker_path(broker_id)])
    if node is None or node.stat.ephemeral_owner != session_id:
        return None
    try:
        return _usable(layout.decode_broker(broker_id, *node))
    except ValueError as fault:
        faults.report(layout.broker_path(broker_id), fault)
        return None


async def create(
    zookeeper: ZooKeeper,
    broker: Broker,
    wall_ms: int,
    generation: int,
    directory: str = layout.BROKER_IDS,
) -> Stat:
    """Register the broker in the session with the number `generation`; return the Stat of the registration.

    Raises NodeExists if the broker id is already registered, and StaleSession if the session has ended.
    """
    data = layout.encode_broker(broker, wall_ms)
    path = layout.broker_path(broker.id, directory)
    _, stat = await zookeeper.create(path, data, ephemeral=True, generation=generation)
    return stat


async def stat(
    zookeeper: ZooKeeper, broker_id: BrokerId, directory: str = layout.BROKER_IDS
) -> Stat | None:
    """Return the Stat of a broker's registration, None if there is none. Raises CoordinationError."""
    return await zookeeper.exists(layout.broker_path(broker_id, directory))


async def delete(
    zookeeper: ZooKeeper, broker_id: BrokerId, version: int, directory: str = layout.BROKER_IDS
) -> None:
    """Delete a broker's registration if it has this version. Raises CoordinationError."""
    await zookeeper.delete(layout.broker_path(broker_id, directory), version)
