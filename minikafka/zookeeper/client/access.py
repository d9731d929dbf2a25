"""How a client reaches ZooKeeper, as whom, and whom it gives rights on the nodes that it creates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from minikafka.base.encryption import Tls
from minikafka.zookeeper.messages.jute import ANYONE, Acl


def _open(_: str) -> Acl:
    return ANYONE


@dataclass(frozen=True)
class ZooKeeperLogin:
    """User and password for SASL DIGEST-MD5.

    `key`: the configuration key that has them, for errors. `random`: returns so many random bytes.
    """

    user: str
    password: str = field(repr=False)
    key: str
    random: Callable[[int], bytes] = field(repr=False)


@dataclass(frozen=True)
class ZooKeeperAccess:
    """`tls` None: in the clear. `login` None: without SASL. `acl_of`: path → the list of a new node."""

    tls: Tls | None = None
    login: ZooKeeperLogin | None = None
    acl_of: Callable[[str], Acl] = _open


OPEN_ACCESS: Final = ZooKeeperAccess()
"""In the clear, as nobody, and everybody may do everything with new nodes."""
