"""The nodes with ACLs, and the notifications that they have changed.

`/kafka-acl/<Type>/<name>` has the ACLs of a literal pattern, `/kafka-acl-extended/prefixed/<Type>/<name>` those of a
prefix. A notification names a pattern, and does not contain its ACLs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from minikafka.base.ports import Create, Delete, Set, Znode, ZooKeeper
from minikafka.security.acls import (
    NOBODY,
    AclEntry,
    AclResourceType,
    PatternType,
    ResourcePattern,
    decode_change,
    decode_entries,
    encode_change,
    encode_entries,
)
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.reader import NodeReader

KINDS: Final = (PatternType.LITERAL, PatternType.PREFIXED)
_ROOTS: Final = {
    PatternType.LITERAL: "/kafka-acl",
    PatternType.PREFIXED: "/kafka-acl-extended/prefixed",
}
CHANGES: Final = {
    PatternType.LITERAL: "/kafka-acl-changes",
    PatternType.PREFIXED: "/kafka-acl-extended-changes",
}
"""Parents of the notifications."""
_CHANGE_PREFIX: Final = "acl_changes_"
_TYPES: Final = tuple(one for one in AclResourceType if one > AclResourceType.ANY)

Acls = dict[ResourcePattern, frozenset[AclEntry]]


def parents() -> list[str]:
    """Return the paths of the nodes that brokers with an authorizer create at their start if absent."""
    types = [f"{root}/{one.word}" for root in _ROOTS.values() for one in _TYPES]
    return [*types, *CHANGES.values()]


def path_of(pattern: ResourcePattern) -> str:
    """Return the path of the node with a pattern's ACLs."""
    return f"{_ROOTS[pattern.pattern]}/{pattern.type.word}/{pattern.name}"


async def read_all(zookeeper: ZooKeeper, kind: PatternType, faults: Faults) -> Acls:
    """Return the ACLs of all patterns of this kind. Raises CoordinationError."""
    root = _ROOTS[kind]
    named = await zookeeper.children_many([f"{root}/{one.word}" for one in _TYPES])
    patterns = [
        ResourcePattern(one, name, kind)
        for one, names in zip(_TYPES, named, strict=True)
        for name in names or ()
    ]
    return await read(zookeeper, patterns, faults)


async def read(nodes: NodeReader, patterns: Sequence[ResourcePattern], faults: Faults) -> Acls:
    """Return the ACLs of these patterns; none for an absent node. Raises CoordinationError.

    An unreadable node may hold a DENY: its pattern gets `NOBODY`, and the fault is reported.
    """
    found = await nodes.get_many([path_of(pattern) for pattern in patterns])
    return {
        pattern: _entries(pattern, node, faults)
        for pattern, node in zip(patterns, found, strict=True)
    }


def _entries(pattern: ResourcePattern, node: Znode | None, faults: Faults) -> frozenset[AclEntry]:
    try:
        return decode(node)
    except ValueError as fault:
        faults.report(path_of(pattern), fault)
        return NOBODY


def decode(node: Znode | None) -> frozenset[AclEntry]:
    """Return the ACLs in a pattern's node; none for an absent node. Raises ValueError."""
    return frozenset() if node is None else decode_entries(node.data)


def write(
    pattern: ResourcePattern, entries: frozenset[AclEntry], version: int | None
) -> Create | Set | Delete:
    """Return the operation that writes a pattern's node, or deletes it if there are no entries left.

    `version`: the version that the node must have; None if it must be absent.
    """
    path = path_of(pattern)
    if version is None:
        return Create(path, encode_entries(entries))
    return Set(path, encode_entries(entries), version) if entries else Delete(path, version)


def notification(pattern: ResourcePattern) -> Create:
    """Return the operation that notifies all brokers of the changed ACLs of a pattern."""
    path = f"{CHANGES[pattern.pattern]}/{_CHANGE_PREFIX}"
    return Create(path, encode_change(pattern), sequential=True)


def removal(kind: PatternType, name: str) -> Delete:
    """Return the operation that deletes the notification with this name."""
    return Delete(f"{CHANGES[kind]}/{name}", -1)


async def read_changes(
    nodes: NodeReader, kind: PatternType, names: Iterable[str], faults: Faults
) -> list[ResourcePattern] | None:
    """Return the patterns that these notifications name. Raises CoordinationError.

    None if a notification is absent or unreadable: any pattern may have changed.
    """
    paths = [f"{CHANGES[kind]}/{name}" for name in names]
    patterns: dict[ResourcePattern, None] = {}
    for path, node in zip(paths, await nodes.get_many(paths), strict=True):
        if node is None:
            return None
        try:
            patterns[decode_change(kind, node.data)] = None
        except ValueError as fault:
            faults.report(path, fault)
            return None
    return list(patterns)
