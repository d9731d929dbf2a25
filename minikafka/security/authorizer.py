"""The authorizer: what a principal may do according to the ACLs, with the rules of Kafka's `AclAuthorizer`.

- A super user may do everything.
- A resource without any matching ACL is denied, or allowed with `allow.everyone.if.no.acl.found`.
- One matching DENY outweighs every ALLOW. An operation without an ALLOW is denied.
- An ALLOW for READ, WRITE, DELETE or ALTER implies DESCRIBE; an ALLOW for ALTER_CONFIGS implies DESCRIBE_CONFIGS. A
  DENY implies nothing. The operation ALL stands for every operation, in both.

An ACL matches a resource by its name, by a prefix, or by the literal name `*`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from itertools import product
from typing import Final, NamedTuple

from minikafka.security.acls import (
    EVERYBODY,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)

_LITERAL: Final = PatternType.LITERAL
_PREFIXED: Final = PatternType.PREFIXED
_ALLOW: Final = AclPermission.ALLOW
_DENY: Final = AclPermission.DENY
IMPLIED_BY: Final[Mapping[AclOperation, tuple[AclOperation, ...]]] = {
    AclOperation.DESCRIBE: (
        AclOperation.DESCRIBE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
}
"""Operation → the operations whose ALLOW allows it; an operation that is not listed is allowed only by its own."""

Entries = Iterable[AclEntry]


class Ground(Enum):
    """Why a request is allowed or denied."""

    SUPER_USER = "the principal is a super user"
    ACL = "an ACL decides"
    OPEN = "the resource has no ACL, and allow.everyone.if.no.acl.found is true"
    NO_ALLOW = "no ACL allows it"


class AclVerdict(NamedTuple):
    """The decision about one operation of one principal, with its ground. `binding`: the ACL that decides."""

    is_allowed: bool
    ground: Ground
    binding: AclBinding | None = None

    def __str__(self) -> str:
        """Return the ground, or the ACL that decides."""
        return self.ground.value if self.binding is None else str(self.binding)


SUPER_USER: Final = AclVerdict(True, Ground.SUPER_USER)
OPEN: Final = AclVerdict(True, Ground.OPEN)
NO_ALLOW: Final = AclVerdict(False, Ground.NO_ALLOW)


class _Key(NamedTuple):
    """The part of an ACL that a question about any resource of a type must match exactly."""

    type: AclResourceType
    pattern: PatternType
    entry: AclEntry


class Authorizer:
    """The ACLs of a cluster and its super users, as one broker knows them.

    `version` changes with every change of the ACLs. It is only compared for equality.
    """

    def __init__(self, super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._entries: dict[ResourcePattern, frozenset[AclEntry]] = {}
        self._prefix_sizes: defaultdict[AclResourceType, Counter[int]] = defaultdict(Counter)
        """The lengths of the prefixes of each type, each with its number of prefixes."""
        self._names: defaultdict[_Key, set[str]] = defaultdict(set)
        self.version = 0

    # ---- changes

    def replace(
        self, kind: PatternType, entries: Mapping[ResourcePattern, frozenset[AclEntry]]
    ) -> None:
        """Replace all ACLs with patterns of this kind."""
        for pattern in [one for one in self._entries if one.pattern is kind]:
            if pattern not in entries:
                self.update(pattern, frozenset())
        for pattern, wanted in entries.items():
            self.update(pattern, wanted)

    def update(self, pattern: ResourcePattern, entries: frozenset[AclEntry]) -> None:
        """Replace the ACLs of a pattern."""
        former = self._entries.get(pattern, frozenset())
        if entries == former:
            return
        for entry in former - entries:
            self._forget_name(pattern, entry)
        for entry in entries - former:
            self._names[_Key(pattern.type, pattern.pattern, entry)].add(pattern.name)
        if entries:
            self._entries[pattern] = entries
        else:
            del self._entries[pattern]
        if pattern.pattern is _PREFIXED:
            self._count_prefix(pattern, bool(entries) - bool(former))
        self.version += 1

    def _forget_name(self, pattern: ResourcePattern, entry: AclEntry) -> None:
        key = _Key(pattern.type, pattern.pattern, entry)
        self._names[key].discard(pattern.name)
        if not self._names[key]:
            del self._names[key]

    def _count_prefix(self, pattern: ResourcePattern, added: int) -> None:
        sizes = self._prefix_sizes[pattern.type]
        sizes[len(pattern.name)] += added
        if not sizes[len(pattern.name)]:
            del sizes[len(pattern.name)]

    # ---- the ACLs

    def entries(self, pattern: ResourcePattern) -> frozenset[AclEntry]:
        """Return the ACLs of exactly this pattern."""
        return self._entries.get(pattern, frozenset())

    def patterns(self) -> list[ResourcePattern]:
        """Return the patterns with ACLs."""
        return list(self._entries)

    def bindings(self, selection: AclFilter) -> Iterator[AclBinding]:
        """Yield the ACLs that a filter selects, pattern by pattern. The ACLs may change meanwhile."""
        for pattern in self.patterns():
            if selection.pattern.matches(pattern):
                for entry in self.entries(pattern):
                    if selection.matches_entry(entry):
                        yield AclBinding(pattern, entry)

    # ---- decisions

    def allows(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource: AclResourceType,
        name: str,
    ) -> bool:
        """Return True if the principal may do this, from this address, with the resource of this name."""
        return self.rule(principal, host, operation, resource, name).is_allowed

    def rule(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource: AclResourceType,
        name: str,
    ) -> AclVerdict:
        """Return the verdict, with what decides it."""
        if principal in self._super_users:
            return SUPER_USER
        matching = self._matching(resource, name)
        if not matching:
            return OPEN if self._allow_if_no_acl else NO_ALLOW
        denied = _first(matching, principal, host, (operation,), _DENY)
        if denied is not None:
            return AclVerdict(False, Ground.ACL, denied)
        wanted = IMPLIED_BY.get(operation, (operation,))
        allowed = _first(matching, principal, host, wanted, _ALLOW)
        return NO_ALLOW if allowed is None else AclVerdict(True, Ground.ACL, allowed)

    def _matching(
        self, resource: AclResourceType, name: str
    ) -> list[tuple[ResourcePattern, frozenset[AclEntry]]]:
        """Return the patterns that match a resource, each with its ACLs."""
        known = self._entries
        patterns = [
            ResourcePattern(resource, name[:size], _PREFIXED)
            for size in self._prefix_sizes.get(resource, ())
            if size <= len(name)
        ]
        patterns.append(ResourcePattern(resource, WILDCARD, _LITERAL))
        if name != WILDCARD:
            patterns.append(ResourcePattern(resource, name, _LITERAL))
        return [(one, known[one]) for one in patterns if one in known]

    # ---- decisions about any resource of a type

    def allows_any(
        self, principal: str, host: str, operation: AclOperation, resource: AclResourceType
    ) -> bool:
        """Return True if there may be a resource of this type with which the principal may do this.

        As in Kafka, operations imply no others here. A DENY for every resource denies. An ALLOW for a name counts
        unless a DENY has the same name or a prefix of it. An ALLOW for a prefix counts unless a DENY has the same
        prefix or a shorter one. The literal `*` is outweighed only by a DENY for every resource.
        """
        if principal in self._super_users:
            return True

        def names(permission: AclPermission, pattern: PatternType) -> set[str]:
            return self._named(principal, host, operation, permission, resource, pattern)

        denied = names(_DENY, _LITERAL)
        if WILDCARD in denied:
            return False
        if self._allow_if_no_acl:
            return True
        denied_prefixes = names(_DENY, _PREFIXED)
        return any(
            not _has_prefix_in(name, denied_prefixes) for name in names(_ALLOW, _PREFIXED)
        ) or any(
            name == WILDCARD or (name not in denied and not _has_prefix_in(name, denied_prefixes))
            for name in names(_ALLOW, _LITERAL)
        )

    def _named(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        permission: AclPermission,
        resource: AclResourceType,
        pattern: PatternType,
    ) -> set[str]:
        """Return the names of the patterns whose ACLs concern exactly this operation, or ALL."""
        found: set[str] = set()
        for who, where, what in product(
            {principal, EVERYBODY}, {host, WILDCARD}, {operation, AclOperation.ALL}
        ):
            key = _Key(resource, pattern, AclEntry(who, where, what, permission))
            found |= self._names.get(key, frozenset())
        return found


def _first(
    matching: Iterable[tuple[ResourcePattern, frozenset[AclEntry]]],
    principal: str,
    host: str,
    operations: tuple[AclOperation, ...],
    permission: AclPermission,
) -> AclBinding | None:
    """Return the first ACL with this permission for the principal, host and one of the operations."""
    for pattern, entries in matching:
        for entry in entries:
            if (
                entry.permission is permission
                and (entry.operation in operations or entry.operation is AclOperation.ALL)
                and entry.principal in (principal, EVERYBODY)
                and entry.host in (host, WILDCARD)
            ):
                return AclBinding(pattern, entry)
    return None


def _has_prefix_in(name: str, prefixes: set[str]) -> bool:
    """Return True if the name, or a part of it from its beginning, is one of the prefixes."""
    return bool(prefixes) and any(name[:size] in prefixes for size in range(1, len(name) + 1))
