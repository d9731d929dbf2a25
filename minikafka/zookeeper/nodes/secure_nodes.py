"""The access control lists of Kafka's nodes with `zookeeper.set.acl`: the same as Apache Kafka's."""

from __future__ import annotations

from typing import Final

from minikafka.zookeeper.messages.jute import ANYONE, Acl

_READ, _ALL = 1, 31
CREATOR: Final[Acl] = ((_ALL, "auth", ""),)
"""The server puts the identities of the connection in the place of `auth`."""
CREATOR_AND_READERS: Final[Acl] = (*CREATOR, (_READ, "world", "anyone"))
_OPEN: Final = "/consumers"
"""Consumers of old clients write below this node."""
_SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Nodes that have secrets: nobody but the brokers reads what is at or below paths that begin so."""


def secure_acl(path: str) -> Acl:
    """Return the list of a new node of a cluster with `zookeeper.set.acl`. `path`: without the chroot."""
    if path == _OPEN:
        return ANYONE
    return CREATOR if path.startswith(_SENSITIVE) else CREATOR_AND_READERS
