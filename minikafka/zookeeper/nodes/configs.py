"""Dynamic settings of topics, brokers, users, client ids and addresses under `/config`, and their changes (R71)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from minikafka.base.model import BrokerId
from minikafka.base.ports import Create, Delete, Set, Znode, ZooKeeper
from minikafka.security.quotas import DEFAULT, Name, QuotaEntity
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.reader import NodeReader

TOPICS: Final = "topics"
"""Entity kind of a topic."""
BROKERS: Final = "brokers"
"""Entity kind of a broker, or of all brokers (with the name `ALL_BROKERS`)."""
USERS: Final = "users"
"""Entity kind of a user, whose settings are SCRAM credentials and quotas. The name is the name of the node.

The name `USER/clients/CLIENT` is a client id of a user, which has quotas only."""
CLIENTS: Final = "clients"
"""Entity kind of a client id."""
IPS: Final = "ips"
"""Entity kind of an address."""
_OF_USER: Final = "/clients/"
_AT_ONCE: Final = 50


class Entity(NamedTuple):
    """The owner of a settings node: a topic, a broker, all brokers, a user, a client id or an address."""

    kind: str
    name: str


def path_of(entity: Entity) -> str:
    """Return the path of an entity's settings node."""
    if entity.kind == TOPICS:
        return layout.topic_config_path(entity.name)
    if entity.kind == USERS:
        return layout.user_config_path(entity.name)
    if entity.kind == CLIENTS:
        return f"{layout.CLIENT_CONFIGS}/{entity.name}"
    if entity.kind == IPS:
        return f"{layout.IP_CONFIGS}/{entity.name}"
    return layout.broker_config_path(entity.name)


def user_entity(user: str) -> Entity:
    """Return the entity of a user."""
    return Entity(USERS, layout.sanitized(user))


async def user_nodes(zookeeper: ZooKeeper) -> list[str]:
    """Return the names of the nodes of all users. Raises CoordinationError."""
    return (await zookeeper.children_many([layout.USER_CONFIGS]))[0] or []


def quota_owner(owner: QuotaEntity) -> Entity:
    """Return the entity whose node has the quotas of `owner`."""
    if owner.ip is not None:
        return Entity(IPS, _node(owner.ip))
    if owner.user is None:
        return Entity(CLIENTS, _node(owner.client_id))
    user = _node(owner.user)
    if owner.client_id is None:
        return Entity(USERS, user)
    return Entity(USERS, f"{user}{_OF_USER}{_node(owner.client_id)}")


def _node(name: Name) -> str:
    assert name is not None
    return layout.DEFAULT_USER if name is DEFAULT else layout.sanitized(name)


def _name(node: str) -> Name:
    return DEFAULT if node == layout.DEFAULT_USER else layout.desanitized(node)


def owner_of_quotas(entity: Entity) -> QuotaEntity:
    """Return the owner of the quotas in an entity's node. Raises ValueError if the name is nobody's."""
    if entity.kind == IPS:
        return QuotaEntity(ip=_name(entity.name))
    if entity.kind == CLIENTS:
        return QuotaEntity(client_id=_name(entity.name))
    user, _, client_id = entity.name.partition(_OF_USER)
    return QuotaEntity(_name(user), _name(client_id) if client_id else None)


def has_quotas(entity: Entity) -> bool:
    """Return True if an entity can have quotas."""
    return entity.kind in (USERS, CLIENTS, IPS)


async def owners_of_quotas(zookeeper: ZooKeeper, users: Sequence[str]) -> list[Entity]:
    """Return the entities that can have quotas, except these users. `users`: the nodes of all users.

    Raises CoordinationError.
    """
    clients, ips = await zookeeper.children_many([layout.CLIENT_CONFIGS, layout.IP_CONFIGS])
    found = [Entity(CLIENTS, name) for name in clients or ()]
    found += [Entity(IPS, name) for name in ips or ()]
    for start in range(0, len(users), _AT_ONCE):
        part = users[start : start + _AT_ONCE]
        below = await zookeeper.children_many(
            [f"{layout.user_config_path(user)}/{CLIENTS}" for user in part]
        )
        for user, names in zip(part, below, strict=True):
            found += [Entity(USERS, f"{user}{_OF_USER}{name}") for name in names or ()]
    if layout.DEFAULT_USER in users:
        found.append(Entity(USERS, layout.DEFAULT_USER))
    return found


async def read_quotas(
    nodes: NodeReader, entities: Sequence[Entity], faults: Faults
) -> dict[QuotaEntity, dict[str, str]]:
    """Return the settings of entities with quotas, by owner; {} for an absent or unreadable node.

    A node is left out, and reported, if its name is nobody's. Raises CoordinationError.
    """
    owners = {}
    for entity in entities:
        try:
            owners[entity] = owner_of_quotas(entity)
        except ValueError as fault:
            faults.report(path_of(entity), fault)
    found = await read(nodes, list(owners), faults)
    return dict(zip(owners.values(), found, strict=True))


async def ensure_parent(zookeeper: ZooKeeper, entity: Entity) -> None:
    """Create the nodes above an entity's node. Raises CoordinationError."""
    if _OF_USER in entity.name:
        await zookeeper.ensure(path_of(entity).rpartition("/")[0])


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
