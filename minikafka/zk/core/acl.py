"""Access control lists: who may read, write, create, delete and administer a node.

Schemes: `world` (everyone), `digest` (user name and password), `ip` (address of the connection), and in requests
`auth` (the digest identities of the connection).
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Collection
from typing import Final, TypeAlias

from minikafka.zk.core.codes import INVALID_ACL, NO_AUTH, Refused

Identity: TypeAlias = tuple[str, str]
"""(scheme, id) of a connection, such as ("digest", "user:hash")."""
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Acl: TypeAlias = tuple[tuple[int, str, str], ...]
"""Entries of (permission bits, scheme, id)."""

READ: Final = 1
WRITE: Final = 2
CREATE: Final = 4
DELETE: Final = 8
ADMIN: Final = 16
ALL: Final = 31
ANYONE: Final[Acl] = ((ALL, "world", "anyone"),)
"""The list that nearly every node has. The decoder returns this object, so that one comparison by identity suffices."""
READABLE: Final[Acl] = ((READ, "world", "anyone"),)


def check_permission(acl: Acl, permission: int, identities: Collection[Identity]) -> None:
    """Raise Refused (NO_AUTH) if no entry grants the permission to one of the identities."""
    if acl is not ANYONE and not is_permitted(acl, permission, identities):
        raise Refused(NO_AUTH)


def is_permitted(acl: Acl, permission: int, identities: Collection[Identity]) -> bool:
    """Return True if an entry grants the permission to one of the identities."""
    return acl is ANYONE or any(
        bits & permission
        and (
            scheme == "world"
            or (scheme, name) in identities
            or _is_in_range(scheme, name, identities)
        )
        for bits, scheme, name in acl
    )


def _is_in_range(scheme: str, name: str, identities: Collection[Identity]) -> bool:
    """Return True for an `ip` entry such as 10.0.0.0/8 if it covers the address of the connection."""
    if scheme != "ip":
        return False
    covered = _addresses(name)
    return covered is not None and any(
        kind == "ip" and (own := _addresses(address)) is not None and _covers(covered, own)
        for kind, address in identities
    )


def resolved(acl: Acl | None, identities: Collection[Identity]) -> Acl:
    """Return the list to store: without repeated entries, and with the connection's digests in place of `auth`.

    Raises Refused (INVALID_ACL) for an empty list, an unknown scheme, or `auth` without a digest identity.
    """
    if acl is ANYONE:
        return acl
    found: list[tuple[int, str, str]] = []
    for bits, scheme, name in dict.fromkeys(acl or ()):
        if scheme == "auth":
            own = [(bits, *identity) for identity in identities if identity[0] == "digest"]
            if not own:
                raise Refused(INVALID_ACL)
            found += own
        elif _is_valid(scheme, name):
            found.append((bits, scheme, name))
        else:
            raise Refused(INVALID_ACL)
    if not found:
        raise Refused(INVALID_ACL)
    return ANYONE if tuple(found) == ANYONE else tuple(found)


def _is_valid(scheme: str, name: str) -> bool:
    if scheme == "world":
        return name == "anyone"
    if scheme == "digest":
        return name.rstrip(":").count(":") == 1
    return scheme == "ip" and _addresses(name) is not None


def _addresses(text: str) -> _Network | None:
    """Return the addresses that the id of an `ip` entry names: one, or a range such as 10.0.0.0/8."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _covers(covered: _Network, own: _Network) -> bool:
    return covered.version == own.version and own.network_address in covered


def hidden(acl: Acl, identities: Collection[Identity]) -> Acl:
    """Return the list as getACL shows it: without ADMIN permission, the hash of a digest is an x [measured]."""
    if is_permitted(acl, ADMIN, identities):
        return acl
    return tuple(
        (bits, scheme, f"{name.partition(':')[0]}:x" if scheme == "digest" else name)
        for bits, scheme, name in acl
    )


def digest_identity(credentials: bytes) -> Identity:
    """Return the identity of `user:password`."""
    text = credentials.decode(errors="replace")
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    return "digest", f"{text.partition(':')[0]}:{base64.b64encode(digest).decode()}"
