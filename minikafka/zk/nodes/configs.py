"""Dynamic settings of topics and brokers under `/config`, and the notifications that announce a change (R71)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from minikafka.base.model import BrokerId
from minikafka.base.ports import Create, Delete, Node, Set
from minikafka.zk import layout
from minikafka.zk.nodes.faults import Faults
from minikafka.zk.nodes.reader import NodeReader

TOPICS: Final = "topics"
"""Kind of an entity that is a topic."""
BROKERS: Final = "brokers"
"""Kind of an entity that is one broker or, with the name `ALL_BROKERS`, all brokers."""
ALL_BROKERS: Final = layout.ALL_BROKERS
CHANGES: Final = layout.CONFIG_CHANGES
"""Parent of the change notifications."""
TOPIC_CONFIGS: Final = layout.TOPIC_CONFIGS
"""Parent of the topics' settings nodes."""


class Entity(NamedTuple):
    """The owner of one settings node: its kind (`topics` or `brokers`) and its name."""

    kind: str
    name: str


class Change(NamedTuple):
    """A change notification: its creation time (Unix milliseconds), and its entity, None if not readable."""

    created: int
    entity: Entity | None


def path_of(entity: Entity) -> str:
    """Return the path of an entity's settings node."""
    if entity.kind == TOPICS:
        return layout.topic_config_path(entity.name)
    return layout.broker_config_path(entity.name)


def entities_of_broker(broker_id: BrokerId) -> tuple[Entity, Entity]:
    """Return the two entities whose settings apply to a broker: all brokers, and the broker itself."""
    return Entity(BROKERS, ALL_BROKERS), Entity(BROKERS, str(broker_id))


def decode(entity: Entity, node: Node | None, faults: Faults) -> dict[str, str] | None:
    """Return the settings in a node, {} if it is absent, None if it is not readable, which is reported."""
    try:
        return layout.decode_config(node.data) if node is not None else {}
    except ValueError as fault:
        faults.report(path_of(entity), fault)
        return None


async def read(
    nodes: NodeReader, entities: Sequence[Entity], faults: Faults
) -> list[dict[str, str]]:
    """Return the settings of each entity, in order; {} if they are not readable. Raises CoordinationError."""
    return [settings or {} for settings in await read_strictly(nodes, entities, faults)]


async def read_strictly(
    nodes: NodeReader, entities: Sequence[Entity], faults: Faults
) -> list[dict[str, str] | None]:
    """Return the settings of each entity, in order, as `decode` returns them. Raises CoordinationError."""
    found = await nodes.get_many([path_of(entity) for entity in entities])
    return [decode(entity, node, faults) for entity, node in zip(entities, found, strict=True)]


async def existing(nodes: NodeReader, entities: Sequence[Entity]) -> set[Entity]:
    """Return those of `entities` that have a settings node. Raises CoordinationError."""
    found = await nodes.get_many([path_of(entity) for entity in entities])
    return {entity for entity, node in zip(entities, found, strict=True) if node is not None}


def write(entity: Entity, settings: Mapping[str, str], version: int | None) -> Create | Set:
    """Return the operation that writes an entity's settings.

    `version`: the version that the node must have, -1 for any; None creates the node.
    """
    path, data = path_of(entity), layout.encode_config(settings)
    return Create(path, data) if version is None else Set(path, data, version)


def notification(entity: Entity) -> Create:
    """Return the operation that tells all brokers that an entity's settings were written."""
    data = layout.encode_config_change(entity.kind, entity.name)
    return Create(layout.CONFIG_CHANGE_PREFIX, data, sequential=True)


def removal(name: str) -> Delete:
    """Return the operation that deletes the notification of this name."""
    return Delete(f"{layout.CONFIG_CHANGES}/{name}", -1)


async def read_changes(
    nodes: NodeReader, names: Iterable[str], faults: Faults
) -> dict[str, Change]:
    """Return the notifications of these names that still exist. Raises CoordinationError."""
    wanted = list(names)
    found = await nodes.get_many([f"{layout.CONFIG_CHANGES}/{name}" for name in wanted])
    return {
        name: Change(node.stat.ctime, _entity(name, node.data, faults))
        for name, node in zip(wanted, found, strict=True)
        if node is not None
    }


def _entity(name: str, data: bytes, faults: Faults) -> Entity | None:
    try:
        return Entity(*layout.decode_config_change(data))
    except ValueError as fault:
        faults.report(f"{CHANGES}/{name}", fault)
        return None
