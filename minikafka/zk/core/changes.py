"""What a transaction changes: the content of a record of ZooKeeper's log. Applying one needs no further check."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from minikafka.zk.messages.jute import Acl


class Created(NamedTuple):
    """A new node. `kind`: CREATE, CREATE2, CREATE_CONTAINER or CREATE_TTL.

    `created`: number of children that the parent has ever had, this one included (ZooKeeper's parentCVersion).
    """

    kind: int
    path: str
    data: bytes | None
    acl: Acl
    is_ephemeral: bool
    created: int


class Deleted(NamedTuple):
    """A deleted node. `is_container`: the server removed an empty container."""

    path: str
    is_container: bool = False


class DataSet(NamedTuple):
    """New data. `version`: the new version."""

    path: str
    data: bytes | None
    version: int


class AclSet(NamedTuple):
    """A new access control list. `version`: the new aversion."""

    path: str
    acl: Acl
    version: int


class Checked(NamedTuple):
    """A version check of a multi; changes nothing. `version`: one above the checked version, as ZooKeeper logs it."""

    path: str
    version: int


class SessionOpened(NamedTuple):
    """A new session."""

    timeout_ms: int


class SessionClosed(NamedTuple):
    """The end of a session; deletes these ephemeral nodes. `paths` is empty in logs of ZooKeeper before 3.6."""

    paths: tuple[str, ...]


class Failed(NamedTuple):
    """A refused write, which uses up a zxid."""

    code: int


class Multi(NamedTuple):
    """Several changes with one zxid."""

    changes: tuple[Created | Deleted | DataSet | AclSet | Checked | Failed, ...]


Change: TypeAlias = (
    Created | Deleted | DataSet | AclSet | Checked | SessionOpened | SessionClosed | Failed | Multi
)


class Transaction(NamedTuple):
    """One record of the log. `cxid`: the client's number of the request. `time_ms`: Unix ms."""

    session_id: int
    cxid: int
    zxid: int
    time_ms: int
    change: Change
