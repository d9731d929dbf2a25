"""Dynamic settings of topics, brokers and users under `/config`, and the notifications about changes (R71)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from minikafka.base.model import BrokerId
from minikafka.base.ports import Create, Delete, Set, Znode, ZooKeeper
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.reader import NodeReader

TOPICS: Final = "topics"
"""Entity kind of a topic."""
BROKERS: Final = "brokers"
"""Entity kind of a broker, or of all brokers (with the name `ALL_BROKERS`)."""
USERS: Final = "users"
"""Entity kind of a user, whose settings are SCRAM credentials and quotas. The name is the name of the node."""


class Entity(NamedTuple):
    """The owner of a settings node: a topic, a broker, all brokers or a user."""

    kind: str
    name: str


def path_of(entity: Entity) -> str:
    """Return the path of an entity's settings node."""
    if entity.kind == TOPICS:
        return layout.topic_config_path(entity.name)
    if entity.kind == USERS:
        return layout.user_config_path(entity.name)
    return layout.broker_config_path(entity.name)


def user_entity(user: str) -> Entity:
    """Return the entity of a user."""
    return Entity(USERS, layout.sanitized(user))


async def user_nodes(zookeeper: ZooKeeper) -> list[str]:
    """Return the names of the nodes of all users. Raises CoordinationError."""
    return (await zookeeper.children_many([layout.USER_CONFIGS]))[0] or []


async def read_users(
    nodes: NodeReader, names: Sequence[str], faults: Faults
) -> dict[str, dict[str, str]]:
    """Return the settings of the users with these nodes, by user; {} for an absent or unreadable node.

    A node is left out, and reported, if its name is no user's. Raises CoordinationError.
    """
    users = {}
    for name in names:
        try:
            users[name] = layout.desanitized(name)
        except ValueError as fault:
            faults.report(layout.user_config_path(name), fault)
    found = await read(nodes, [Entity(USERS, name) for name in users], faults)
    return dict(zip(users.values(), found, strict=True))


def entities_of_broker(broker_id: BrokerId) -> tuple[Entity, Entity]:
    """Return the two entities whose settings apply to a broker: `ALL_BROKERS`, and the broker itself."""
    return Entity(BROKERS, layout.ALL_BROKERS), Entity(BROKERS, str(broker_id))


def decode(entity: Entity, node: Znode | None, faults: Faults) -> dict[str, str] | None:
    """Return the settings in an entity's settings node.

    Return {} if the node is absent. Return None, and report the fault, if the node is not readable.
    """
    try:
        return layout.decode_config(node.data) if node is not None else {}
    except ValueError as fault:
        faults.report(path_of(entity), fault)
        return None


async def read(
    nodes: NodeReader, entities: Sequence[Entity], faults: Faults
) -> list[dict[str, str]]:
    """Return the settings of each entity, in order. An absent or unreadable node gives {}. Raises CoordinationError."""
    return [settings or {} for settings in await read_strictly(nodes, entities, faults)]


async def read_strictly(
    nodes: NodeReader, entities: Sequence[Entity], faults: Faults
) -> list[dict[str, str] | None]:
    """Return the settings of each entity, in order: {} for an absent node, None for an unreadable node.

    Raises CoordinationError.
    """
    found = await nodes.get_many([path_of(entity) for entity in entities])
    return [decode(entity, node, faults) for entity, node in zip(entities, found, strict=True)]


async def existing(nodes: NodeReader, entities: Sequence[Entity]) -> set[Entity]:
    """Return the entities in `entities` that have a settings node. Raises CoordinationError."""
    found = await nodes.get_many([path_of(entity) for entity in entities])
    return {entity for entity, node in zip(entities, found, strict=True) if node is not None}


def write(entity: Entity, settings: Mapping[str, str], version: int | None) -> Create | Set:
    """Return the operation that writes an entity's settings node.

    `version`: the version that the node must have (-1 for any version). None creates the node.
    """
    path, data = path_of(entity), layout.encode_config(settings)
    return Create(path, data) if version is None else Set(path, data, version)


def notification(entity: Entity) -> Create:
    """Return the operation that notifies all brokers of an entity's changed settings."""
    data = layout.encode_config_change(entity.kind, entity.name)
    return Create(layout.CONFIG_CHANGE_PREFIX, data, sequential=True)


def removal(name: str) -> Delete:
    """Return the operation that deletes the change notification with this name."""
    return Delete(f"{layout.CONFIG_CHANGES}/{name}", -1)


async def read_changes(
    nodes: NodeReader, names: Iterable[str], faults: Faults
) -> dict[str, Entity | None]:
    """Return, by name of a change notification, the entity whose settings it announces; absent notifications are left
    out.

    The entity of a notification that is not readable is None. Raises CoordinationError.
    """
    wanted = list(names)
    found = await nodes.get_many([f"{layout.CONFIG_CHANGES}/{name}" for name in wanted])
    return {
        name: _entity(name, node.data, faults)
        for name, node in zip(wanted, found, strict=True)
        if node is not None
    }


def _entity(name: str, data: bytes, faults: Faults) -> Entity | None:
    try:
        return Entity(*layout.decode_config_change(data))
    except ValueError as fault:
        faults.report(f"{layout.CONFIG_CHANGES}/{name}", fault)
        return None
