"""Random ACLs, and questions about them, in which patterns, principals and hosts often meet."""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from minikafka.security.acls import (
    SUPPORTED,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from minikafka.security.authorizer import Authorizer

PRINCIPALS: Final = ("User:alice", "User:Alice", "User:CN=broker,O=x", "Group:alice", "User:root")
NAMES: Final = ("a", "ab", "abc", "B", "*", "ab.c", "b")
HOSTS: Final = ("10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1")
TYPES: Final = (AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER)
OPERATIONS: Final = tuple(sorted({one for kind in TYPES for one in SUPPORTED[kind]}))
PATTERNS: Final = (PatternType.LITERAL, PatternType.PREFIXED)
PERMISSIONS: Final = (AclPermission.ALLOW, AclPermission.DENY)


class Question(NamedTuple):
    """One question to an authorizer. `name` is None if the question is about any resource of the type."""

    principal: str
    host: str
    operation: AclOperation
    type: AclResourceType
    name: str | None


class Case(NamedTuple):
    """The state of an authorizer, and questions to it."""

    super_users: tuple[str, ...]
    allow_if_no_acl: bool
    bindings: tuple[AclBinding, ...]
    questions: tuple[Question, ...]

    def authorizer(self) -> Authorizer:
        """Return an authorizer with this state."""
        made = Authorizer(self.super_users, allow_if_no_acl=self.allow_if_no_acl)
        for pattern in {binding.pattern for binding in self.bindings}:
            entries = (one.entry for one in self.bindings if one.pattern == pattern)
            made.update(pattern, frozenset(entries))
        return made


def random_binding(rng: Random) -> AclBinding:
    """Return a random ACL: mostly for few operations, so that ACLs meet."""
    entry = AclEntry(
        rng.choice((*PRINCIPALS[:4], "User:*")),
        rng.choice((*HOSTS[:2], "*", "*")),
        rng.choice((*OPERATIONS, AclOperation.ALL, AclOperation.READ, AclOperation.WRITE)),
        rng.choice((*PERMISSIONS, AclPermission.ALLOW)),
    )
    pattern = ResourcePattern(rng.choice(TYPES[:2]), rng.choice(NAMES), rng.choice(PATTERNS))
    return AclBinding(pattern, entry)


def random_question(rng: Random) -> Question:
    """Return a random question, every fourth about any resource."""
    name = None if rng.random() < 0.25 else rng.choice(NAMES)
    usual = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
    return Question(
        rng.choice(PRINCIPALS),
        rng.choice(HOSTS),
        rng.choice((*OPERATIONS, *usual)),
        rng.choice(TYPES[:2]),
        name,
    )


def random_case(rng: Random, questions: int) -> Case:
    """Return a case with up to 12 ACLs and this number of questions."""
    return Case(
        ("User:root",) if rng.random() < 0.5 else (),
        rng.random() < 0.3,
        tuple(random_binding(rng) for _ in range(rng.randrange(13))),
        tuple(random_question(rng) for _ in range(questions)),
    )


def answer(authorizer: Authorizer, question: Question) -> bool:
    """Return the authorizer's answer."""
    principal, host, operation, kind, name = question
    if name is None:
        return authorizer.allows_any(principal, host, operation, kind)
    return authorizer.allows(principal, host, operation, kind, name)
