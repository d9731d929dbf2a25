"""Delegation tokens under `/delegation_token`, and the notifications that they have changed.

The node of a token does not contain its HMAC. A notification names a token, and does not contain it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from minikafka.base.names import parse_json
from minikafka.base.ports import Create, Delete, Set, ZooKeeper
from minikafka.security.principals import split_principal
from minikafka.security.tokens import DelegationToken
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.layout import desanitized, sanitized
from minikafka.zookeeper.nodes.reader import NodeReader

TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
"""Parent of the notifications."""
_CHANGE_PREFIX: Final = f"{CHANGES}/token_change_"
_VERSION: Final = 3
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TIMES: Final = ("issueTimestamp", "maxTimestamp", "expiryTimestamp")


def encode(token: DelegationToken) -> bytes:
    """Return the data of a token's node."""
    fields = {
        "version": _VERSION,
        "owner": sanitized(token.owner),
        "tokenRequester": sanitized(token.requester),
        "renewers": [sanitized(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expires_ms,
        "tokenId": token.id,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(id: str, data: bytes) -> DelegationToken:
    """Return the token in the node with this name. Versions 1 and 2 have no requester. Raises ValueError."""
    fields = parse_json(data)
    version = fields.get("version")
    if type(version) is not int or not 1 <= version <= _VERSION:
        raise ValueError(f"version is not 1 to {_VERSION}")
    if fields.get("tokenId") != id or not _ID.fullmatch(id):
        raise ValueError("tokenId is not the name of the node")
    times: list[Any] = [fields.get(name) for name in _TIMES]
    if not all(type(time) is int for time in times):
        raise ValueError(f"{', '.join(_TIMES)} are not whole numbers")
    issued, last, expires = times
    owner = _principal(fields.get("owner"))
    requester = owner if version < _VERSION else _principal(fields.get("tokenRequester"))
    renewers = fields.get("renewers")
    if type(renewers) is not list:
        raise ValueError("renewers is not a list")
    found = tuple(map(_principal, renewers))
    return DelegationToken(id, owner, requester, found, issued, expires, last)


def _principal(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("a principal is not a text")
    principal = desanitized(value)
    split_principal(principal)
    return principal


async def ids(zookeeper: ZooKeeper) -> list[str]:
    """Return the ids of all tokens. Raises CoordinationError."""
    return (await zookeeper.children_many([TOKENS]))[0] or []


async def read(
    nodes: NodeReader, ids: Sequence[str], faults: Faults
) -> dict[str, DelegationToken | None]:
    """Return the token of each id, None for an absent or unreadable node. Raises CoordinationError."""
    names = list(filter(_ID.fullmatch, ids))
    found = await nodes.get_many([_path(name) for name in names])
    tokens: dict[str, DelegationToken | None] = {}
    for name, node in zip(names, found, strict=True):
        tokens[name] = None
        try:
            tokens[name] = None if node is None else decode(name, node.data)
        except ValueError as fault:
            faults.report(_path(name), fault)
    return tokens


def creation(token: DelegationToken) -> Create:
    """Return the operation that creates the node of a token."""
    return Create(_path(token.id), encode(token))


def change(token: DelegationToken) -> Set:
    """Return the operation that replaces a token. It fails if the token was removed."""
    return Set(_path(token.id), encode(token), -1)


def removal(id: str) -> Delete:
    """Return the operation that deletes a token."""
    return Delete(_path(id), -1)


def notification(id: str) -> Create:
    """Return the operation that notifies all brokers of a changed token."""
    return Create(_CHANGE_PREFIX, id.encode(), sequential=True)


def notification_removal(name: str) -> Delete:
    """Return the operation that deletes the notification with this name."""
    return Delete(f"{CHANGES}/{name}", -1)


async def read_changes(nodes: NodeReader, names: Iterable[str], faults: Faults) -> set[str]:
    """Return the ids of the tokens that these notifications name. Raises CoordinationError."""
    wanted = list(names)
    found = await nodes.get_many([f"{CHANGES}/{name}" for name in wanted])
    ids = set()
    for name, node in zip(wanted, found, strict=True):
        try:
            if node is not None:
                ids.add(_decode_id(node.data))
        except ValueError as fault:
            faults.report(f"{CHANGES}/{name}", fault)
    return ids


def _path(id: str) -> str:
    return f"{TOKENS}/{id}"


def _decode_id(data: bytes) -> str:
    name = data.decode(errors="replace")
    if not _ID.fullmatch(name):
        raise ValueError("the notification names no token")
    return name
