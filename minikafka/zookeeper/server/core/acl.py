"""Access control lists: who may read, write, create, delete and administer a node.

Schemes: `world` (everyone), `digest` (user name and password), `ip` (address of the connection), `x509` (subject of a
client's certificate), `sasl` (user name), and in requests `auth` (the identities that the connection has proven). The
identity SUPER may do everything; the user `super` of SASL has the permissions of every entry of the scheme `sasl`.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Collection, Iterable
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from minikafka.zookeeper.messages.codes import INVALID_ACL, NO_AUTH, Refused
from minikafka.zookeeper.messages.jute import ANYONE, Acl, Entry, Identity

READ: Final = 1
WRITE: Final = 2
CREATE: Final = 4
DELETE: Final = 8
ADMIN: Final = 16
ALL: Final = 31
READABLE: Final[Acl] = ((READ, "world", "anyone"),)
DIGEST, IP, SASL, X509 = "digest", "ip", "sasl", "x509"
SCHEMES: Final = frozenset({DIGEST, IP})
"""The schemes that every server has. It has SASL and X509 if it authenticates clients in this way."""
SUPER: Final[Identity] = "super", ""
SASL_SUPER: Final[Identity] = SASL, "super"
_PROVEN: Final = frozenset({DIGEST, SASL, X509})
"""The schemes whose identities `auth` stands for."""
_SHORT: Final = 16
"""A list of at most this many entries needs no index."""
_EXPANDED_MAX: Final = 10_000
"""Maximum number of entries that `auth` entries of one list may stand for."""
_ADDRESS_BITS: Final = {4: 32, 6: 128}
_PREFIXES: Final = frozenset(map(str, range(33)))
_KERBEROS: Final = re.compile(r"[^/@]*(/[^/@]*)?@[^/@]*")
_ATTRIBUTE: Final = (
    r"\s*(?:(?:OID\.)?\d+(?:\.\d+)+|CN|C|L|ST|S|OU|O|T|IP|STREET|DC|DNQ|DNQUALIFIER|SURNAME|GIVENNAME|INITIALS"
    r"|GENERATION|EMAIL|EMAILADDRESS|UID|SERIALNUMBER)\s*="
    r"(?:\s*#(?:[0-9A-F]{2})+\s*|\s*\"(?:[^\"\\]|\\.)*\"\s*|(?!\s*[#\"])(?:[^,;+\"\\<>]|\\.)*)"
)
_DISTINGUISHED: Final = re.compile(f"(?:{_ATTRIBUTE}(?:[,;+]{_ATTRIBUTE})*)?", re.IGNORECASE)
"""The subject of a certificate, such as CN=alice,O=Example, as Java reads it."""


class _Range(NamedTuple):
    """The addresses that the id of an `ip` entry names: those whose first `prefix` bits are the number `start`."""

    version: int
    prefix: int
    start: int


class _Indexed(tuple[Entry, ...]):  # noqa: SLOT001 - a tuple with slots cannot have more attributes
    """A list that is long or names ranges of addresses.

    Its index is built at the first check: without one, a check of 38,000 ranges would take more than a second.
    """

    @cached_property
    def _index(self) -> tuple[int, dict[Identity, int], dict[tuple[int, int], dict[int, int]]]:
        """Permissions of everyone, of each identity, and of the ranges of each version and prefix."""
        everyone = any_sasl = 0
        named: dict[Identity, int] = {}
        ranges: dict[tuple[int, int], dict[int, int]] = {}
        for bits, scheme, name in self:
            if scheme == "world":
                everyone |= bits
                continue
            named[scheme, name] = named.get((scheme, name), 0) | bits
            if scheme == SASL:
                any_sasl |= bits
            if scheme == IP and (found := _range(name)) is not None:
                starts = ranges.setdefault((found.version, found.prefix), {})
                starts[found.start] = starts.get(found.start, 0) | bits
        named[SASL_SUPER] = any_sasl
        return everyone, named, ranges

    def permits(self, permission: int, identities: Collection[Identity]) -> bool:
        """Return True if an entry grants the permission to one of the identities."""
        everyone, named, ranges = self._index
        granted = everyone
        for scheme, name in identities:
            granted |= named.get((scheme, name), 0)
            if ranges and scheme == IP and (own := _own_range(name)) is not None:
                for (version, prefix), starts in ranges.items():
                    if version == own.version and prefix <= own.prefix:
                        granted |= starts.get(own.start >> (own.prefix - prefix), 0)
        return bool(granted & permission)


def stored(entries: Iterable[Entry]) -> Acl:
    """Return entries as the list that a node keeps."""
    acl = tuple(entries)
    if acl == ANYONE:
        return ANYONE
    needs_index = len(acl) > _SHORT or any(scheme == IP for _, scheme, _ in acl)
    return _Indexed(acl) if needs_index else acl


def check_permission(acl: Acl, permission: int, identities: Collection[Identity]) -> None:
    """Raise Refused (NO_AUTH) if no entry grants the permission to one of the identities."""
    if acl is not ANYONE and not is_permitted(acl, permission, identities):
        raise Refused(NO_AUTH)


def is_permitted(acl: Acl, permission: int, identities: Collection[Identity]) -> bool:
    """Return True if an entry grants the permission to one of the identities."""
    if acl is ANYONE or SUPER in identities:
        return True
    if isinstance(acl, _Indexed):
        return acl.permits(permission, identities)
    return any(
        bits & permission
        and (
            scheme == "world"
            or (scheme, name) in identities
            or (scheme == SASL and SASL_SUPER in identities)
            or (scheme == IP and _Indexed(((bits, scheme, name),)).permits(bits, identities))
        )
        for bits, scheme, name in acl
    )


def resolved(
    acl: Acl | None, identities: Collection[Identity], schemes: Collection[str] = SCHEMES
) -> Acl:
    """Return the list to store: without repeated entries, and with the proven identities in place of `auth`.

    Raises Refused (INVALID_ACL) for an empty list, a scheme not in `schemes`, or `auth` without a proven identity.
    """
    if acl is ANYONE:
        return acl
    found: list[Entry] = []
    for bits, scheme, name in dict.fromkeys(acl or ()):
        if scheme == "auth":
            own = [(bits, *identity) for identity in identities if identity[0] in _PROVEN]
            if not own or len(found) - len(acl or ()) > _EXPANDED_MAX:
                raise Refused(INVALID_ACL)
            found += own
        elif _is_valid(scheme, name, schemes):
            found.append((bits, scheme, name))
        else:
            raise Refused(INVALID_ACL)
    if not found:
        raise Refused(INVALID_ACL)
    return stored(found)


def _is_valid(scheme: str, name: str, schemes: Collection[str]) -> bool:
    if scheme == "world":
        return name == "anyone"
    if scheme not in schemes:
        return False
    if scheme == DIGEST:
        return name.rstrip(":").count(":") == 1
    if scheme == SASL:
        return "@" not in name or _KERBEROS.fullmatch(name) is not None
    if scheme == X509:
        return _DISTINGUISHED.fullmatch(name) is not None
    return _range(name) is not None


def _range(text: str) -> _Range | None:
    """Return the addresses that the id of an `ip` entry names: one, or a range such as 10.0.0.0/8."""
    address, slash, digits = text.partition("/")
    prefix = 32 if not slash else int(digits) if digits in _PREFIXES else None
    if prefix is not None and (number := _ipv4(address)) is not None:
        return _Range(4, prefix, number >> (32 - prefix))  # five times as fast as a network
    network = ipaddress.IPv6Network if ":" in text else ipaddress.IPv4Network
    try:
        found = network(text, strict=False)
    except ValueError:
        return None
    size = _ADDRESS_BITS[found.version]
    return _Range(
        found.version, found.prefixlen, int(found.network_address) >> (size - found.prefixlen)
    )


def _ipv4(text: str) -> int | None:
    """Return the number of a plain address such as 10.0.0.1; None if the text needs a closer look."""
    parts = text.split(".")
    if len(parts) != 4 or not text.isascii():
        return None
    number = 0
    for part in parts:
        if not part.isdecimal() or len(part) > 3 or (part[0] == "0" and part != "0"):
            return None
        value = int(part)
        if value > 255:
            return None
        number = number << 8 | value
    return number


_own_range: Final = lru_cache(maxsize=1024)(_range)
"""The same for the address of a connection, which every check of a range needs."""


def hidden(acl: Acl, identities: Collection[Identity]) -> Acl:
    """Return the list as getACL shows it: without ADMIN permission, the hash of a digest is an x [measured]."""
    if is_permitted(acl, ADMIN, identities):
        return acl
    return tuple(
        (bits, scheme, f"{name.partition(':')[0]}:x" if scheme == DIGEST else name)
        for bits, scheme, name in acl
    )


def digest_identity(credentials: bytes) -> Identity:
    """Return the identity of `user:password`."""
    text = credentials.decode(errors="replace")
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    return DIGEST, f"{text.partition(':')[0]}:{base64.b64encode(digest).decode()}"
