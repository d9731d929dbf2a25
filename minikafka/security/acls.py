"""ACLs: who may do what with which resources, filters of ACLs, and the JSON in which ZooKeeper stores them.

The numbers of the enums are those of Kafka's requests. `word` is the name in Kafka's znodes and logs, such as
`TransactionalId`. Invariant: Apache Kafka 3.9 can read what this module encodes, and this module can decode what Kafka
writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, Self

from minikafka.base.errors import ErrorCode
from minikafka.base.names import parse_json

WILDCARD: Final = "*"
"""As a host: every host. As the name of a literal pattern: every resource of the type."""
EVERYBODY: Final = "User:*"
"""The principal of an ACL that holds for every principal."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of the type cluster."""
IPV4: Final = 4
VERSION: Final = 1
"""The version of the JSON in ZooKeeper."""


class _Word(IntEnum):
    """A number of Kafka's requests with a name in Kafka's texts."""

    @property
    def word(self) -> str:
        """The name in znodes and logs: `TRANSACTIONAL_ID` is `TransactionalId`."""
        return self.name.title().replace("_", "")

    @classmethod
    def of_word(cls, text: str) -> Self:
        """Return the member with this name, in any case; UNKNOWN if there is none."""
        for member in cls:
            if member.word.lower() == text.lower():
                return member
        return cls(0)

    @classmethod
    def of_number(cls, number: int) -> Self:
        """Return the member with this number; UNKNOWN if there is none."""
        return cls(number) if number in cls._value2member_map_ else cls(0)


class AclResourceType(_Word):
    """The types of resources."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(_Word):
    """The operations on resources."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(_Word):
    """Whether an ACL denies or allows."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class PatternType(_Word):
    """How a pattern names resources. ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


_O = AclOperation
SUPPORTED: Final[dict[AclResourceType, frozenset[AclOperation]]] = {
    AclResourceType.TOPIC: frozenset(
        (
            _O.READ,
            _O.WRITE,
            _O.CREATE,
            _O.DESCRIBE,
            _O.DELETE,
            _O.ALTER,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
        )
    ),
    AclResourceType.GROUP: frozenset((_O.READ, _O.DESCRIBE, _O.DELETE)),
    AclResourceType.CLUSTER: frozenset(
        (
            _O.CREATE,
            _O.CLUSTER_ACTION,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
            _O.IDEMPOTENT_WRITE,
            _O.ALTER,
            _O.DESCRIBE,
        )
    ),
    AclResourceType.TRANSACTIONAL_ID: frozenset((_O.DESCRIBE, _O.WRITE)),
    AclResourceType.DELEGATION_TOKEN: frozenset((_O.DESCRIBE,)),
    AclResourceType.USER: frozenset((_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS)),
}
"""The operations that exist for each type of resource."""
ERRORS: Final[dict[AclResourceType, ErrorCode]] = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    AclResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error code that a client without the right to a resource of this type gets."""


class ResourcePattern(NamedTuple):
    """The resources that an ACL concerns: one name, all names with a prefix, or all (the literal name `*`)."""

    type: AclResourceType
    name: str
    pattern: PatternType

    def __str__(self) -> str:
        """Return the text in logs: `Topic:LITERAL:orders`."""
        return f"{self.type.word}:{self.pattern.name}:{self.name}"


class AclEntry(NamedTuple):
    """What one principal may or must not do, from one host or from all hosts."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


class AclBinding(NamedTuple):
    """An ACL: an entry for a pattern of resources."""

    pattern: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        """Return the text in logs, such as `DENY User:bob Read on Topic:LITERAL:orders from host *`."""
        principal, host, operation, permission = self.entry
        return f"{permission.name} {principal} {operation.word} on {self.pattern} from host {host}"


class PatternFilter(NamedTuple):
    """A filter of patterns. A name of None matches every name."""

    type: AclResourceType
    name: str | None
    pattern: PatternType

    def matches(self, other: ResourcePattern) -> bool:
        """Return True if the filter selects the pattern `other`."""
        if self.type not in (AclResourceType.ANY, other.type):
            return False
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, other.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is not PatternType.MATCH:
            return self.name == other.name
        if other.pattern is PatternType.LITERAL:
            return other.name in (self.name, WILDCARD)
        return self.name.startswith(other.name)

    def candidates(self) -> list[ResourcePattern]:
        """Return the patterns that the filter can select, if it names them; [] if it may select any others."""
        is_open = self.pattern in (PatternType.MATCH, PatternType.UNKNOWN)
        if self.type <= AclResourceType.ANY or self.name is None or is_open:
            return []
        every = PatternType.LITERAL, PatternType.PREFIXED
        patterns = every if self.pattern is PatternType.ANY else (self.pattern,)
        return [ResourcePattern(self.type, self.name, pattern) for pattern in patterns]


class AclFilter(NamedTuple):
    """A filter of ACLs. None matches every principal or host."""

    pattern: PatternFilter
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermission

    def matches_entry(self, entry: AclEntry) -> bool:
        """Return True if the filter selects the entry, whatever its pattern."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
        )

    def matches(self, binding: AclBinding) -> bool:
        """Return True if the filter selects the ACL."""
        return self.pattern.matches(binding.pattern) and self.matches_entry(binding.entry)


NOBODY: Final = frozenset((AclEntry(EVERYBODY, WILDCARD, AclOperation.ALL, AclPermission.DENY),))
"""The entries that stand for an unreadable node: it may hold a DENY, so only super users have access."""


def parse_principal(text: str) -> str:
    """Return the principal `type:name` in `text`. As in Kafka, both may be empty. Raises ValueError."""
    if ":" not in text:
        raise ValueError(
            f"a principal must have the form type:name, such as User:alice, got {text!r}"
        )
    return text


@lru_cache(maxsize=1024)
def acl_host(address: str) -> str:
    """Return an IP address in the form of ACLs, which is Java's: `::1` is `0:0:0:0:0:0:0:1`."""
    bare, percent, scope = address.partition("%")
    try:
        parsed = ip_address(bare)
    except ValueError:
        return address
    if parsed.version == IPV4:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    groups = (f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
    return ":".join(groups) + percent + scope


def encode_entries(entries: Iterable[AclEntry]) -> bytes:
    """Return the data of the node of a pattern."""
    rows = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.word,
            "operation": entry.operation.word,
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return _encode({"version": VERSION, "acls": rows})


def decode_entries(data: bytes) -> frozenset[AclEntry]:
    """Return the entries in the data of a pattern's node; none if it is empty, as in Kafka. Raises ValueError."""
    if not data:
        return frozenset()
    fields = parse_json(data)
    if fields.get("version") != VERSION:
        raise ValueError(f"the version of ACLs must be {VERSION}, got {fields.get('version')!r}")
    rows = fields.get("acls")
    if type(rows) is not list:
        raise ValueError("acls is not a list")
    return frozenset(map(_entry, rows))


def _entry(row: Any) -> AclEntry:
    names = ("principal", "host", "operation", "permissionType")
    if type(row) is not dict or not all(type(row.get(name)) is str for name in names):
        raise ValueError("an ACL lacks the principal, host, operation or permissionType")
    principal, host, operation, permission = (row[name] for name in names)
    return AclEntry(
        parse_principal(principal),
        host,
        AclOperation.of_word(operation),
        AclPermission.of_word(permission),
    )


def encode_change(pattern: ResourcePattern) -> bytes:
    """Return the data of the notification that the ACLs of a pattern have changed."""
    if pattern.pattern is PatternType.LITERAL:
        return f"{pattern.type.name}:{pattern.name}".encode()
    return _encode(
        {
            "version": VERSION,
            "resourceType": pattern.type.name,
            "name": pattern.name,
            "patternType": pattern.pattern.name,
        }
    )


def decode_change(kind: PatternType, data: bytes) -> ResourcePattern:
    """Return the pattern in a notification below the directory of this kind of patterns. Raises ValueError."""
    word: Any
    name: Any
    if kind is PatternType.LITERAL:
        word, colon, name = data.decode("utf-8").partition(":")
        if not colon:
            raise ValueError("the notification must have the form type:name")
    else:
        fields = parse_json(data)
        word, name = fields.get("resourceType"), fields.get("name")
        if fields.get("version") != VERSION or type(word) is not str or type(name) is not str:
            raise ValueError("the notification lacks version 1, resourceType or name")
        if str(fields.get("patternType")).upper() != kind.name:
            raise ValueError(f"the patternType must be {kind.name}")
    resource = AclResourceType.of_word(word.replace("_", ""))
    if resource <= AclResourceType.ANY:
        raise ValueError(f"{word!r} is no type of resources")
    return ResourcePattern(resource, name, kind)


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
