"""The writes that a client can request, one by one or in a multi."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from minikafka.zk.core.acl import Acl


class Create(NamedTuple):
    """Create a node. `kind`: CREATE, CREATE2, CREATE_CONTAINER or CREATE_TTL. `acl` None: the request had none."""

    kind: int
    path: str | None
    data: bytes | None
    acl: Acl | None
    flags: int


class Delete(NamedTuple):
    """Delete a node that has this version (-1: any)."""

    path: str | None
    version: int


class SetData(NamedTuple):
    """Replace the data of a node that has this version (-1: any)."""

    path: str | None
    data: bytes | None
    version: int


class SetAcl(NamedTuple):
    """Replace the access control list of a node that has this aversion (-1: any)."""

    path: str | None
    acl: Acl | None
    version: int


class Check(NamedTuple):
    """Require that a node has this version (-1: any); only in a multi."""

    path: str | None
    version: int


class Reconfig(NamedTuple):
    """Change the members of an ensemble, which a single server refuses."""


Operation: TypeAlias = Create | Delete | SetData | SetAcl | Check | Reconfig
