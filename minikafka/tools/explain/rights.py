"""Why a principal may or may not do something: the ACL that decides, and the command that changes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import quote
from typing import Any, Final, NamedTuple

from minikafka.security.acls import (
    EVERYBODY,
    SUPPORTED,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from minikafka.security.authorizer import AclVerdict, Authorizer, Ground

_OPTIONS: Final = {
    AclResourceType.TOPIC: "--topic",
    AclResourceType.GROUP: "--group",
    AclResourceType.TRANSACTIONAL_ID: "--transactional-id",
}
_ADD: Final = "minikafka acls add"
_REMOVE: Final = "minikafka acls remove"


class AccessRules(NamedTuple):
    """What decides about requests. `is_checked`: False if the brokers have no authorizer."""

    is_checked: bool
    super_users: frozenset[str] = frozenset()
    allows_without_acl: bool = False
    acls: Sequence[AclBinding] = ()


class RightsQuestion(NamedTuple):
    """A principal and a resource. `host`: the address of the client; `*`: what holds for every address."""

    principal: str
    type: AclResourceType
    name: str
    host: str = WILDCARD

    @property
    def resource(self) -> str:
        """The resource in words: `topic orders`."""
        words = self.type.name.lower().replace("_", " ")
        return "the cluster" if self.type is AclResourceType.CLUSTER else f"{words} {self.name}"


class RightAnswer(NamedTuple):
    """The verdict about one operation.

    `remedy`: the command that changes a denial; "" for none. `elsewhere`: host → verdict, if it is another one there.
    """

    operation: AclOperation
    is_allowed: bool
    reason: str
    acl: AclBinding | None
    remedy: str
    elsewhere: dict[str, AclVerdict]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        hosts = {host: one.is_allowed for host, one in self.elsewhere.items()}
        return {
            "operation": self.operation.word,
            "allowed": self.is_allowed,
            "reason": self.reason,
            "acl": None if self.acl is None else str(self.acl),
            "remedy": self.remedy or None,
            "other_hosts": hosts,
        }


def explain_rights(
    access: AccessRules, question: RightsQuestion, operations: Iterable[AclOperation] = ()
) -> list[RightAnswer]:
    """Return an answer for each operation, by default for all that the resource has."""
    wanted = list(operations) or sorted(SUPPORTED[question.type])
    if not access.is_checked:
        reason = (
            "the brokers have no authorizer (authorizer.class.name), so everyone may do everything"
        )
        return [RightAnswer(operation, True, reason, None, "", {}) for operation in wanted]
    authorizer = _authorizer(access)
    hosts = _hosts(access.acls, question)
    return [_answer(authorizer, question, operation, hosts) for operation in wanted]


def _authorizer(access: AccessRules) -> Authorizer:
    """Return an authorizer that decides as those of the brokers."""
    found = Authorizer(access.super_users, allow_if_no_acl=access.allows_without_acl)
    entries: dict[ResourcePattern, set[AclEntry]] = {}
    for pattern, entry in access.acls:
        entries.setdefault(pattern, set()).add(entry)
    for pattern, some in entries.items():
        found.update(pattern, frozenset(some))
    return found


def _hosts(acls: Iterable[AclBinding], question: RightsQuestion) -> list[str]:
    """Return the addresses that ACLs of the principal name, if the question is about every address."""
    if question.host != WILDCARD:
        return []
    concerned = (
        one.entry for one in acls if one.entry.principal in (question.principal, EVERYBODY)
    )
    return sorted({entry.host for entry in concerned} - {WILDCARD})


def _answer(
    authorizer: Authorizer, question: RightsQuestion, operation: AclOperation, hosts: Iterable[str]
) -> RightAnswer:
    principal, kind, name, host = question
    verdict = authorizer.rule(principal, host, operation, kind, name)
    others = {one: authorizer.rule(principal, one, operation, kind, name) for one in hosts}
    return RightAnswer(
        operation,
        verdict.is_allowed,
        str(verdict),
        verdict.binding,
        "" if verdict.is_allowed else _remedy(question, operation, verdict),
        {one: other for one, other in others.items() if other.is_allowed != verdict.is_allowed},
    )


def _remedy(question: RightsQuestion, operation: AclOperation, verdict: AclVerdict) -> str:
    if verdict.ground is Ground.ACL and verdict.binding is not None:
        pattern, entry = verdict.binding
        return _command(_REMOVE, pattern, entry)
    entry = AclEntry(question.principal, question.host, operation, AclPermission.ALLOW)
    return _command(_ADD, ResourcePattern(question.type, question.name, PatternType.LITERAL), entry)


def _command(verb: str, pattern: ResourcePattern, entry: AclEntry) -> str:
    """Return the command that adds or removes exactly one ACL."""
    kind = "allow" if entry.permission is AclPermission.ALLOW else "deny"
    words = [f"--{kind}-principal", entry.principal, "--operation", entry.operation.word]
    if entry.host != WILDCARD:
        words += [f"--{kind}-host", entry.host]
    if pattern.type is AclResourceType.CLUSTER:
        words.append("--cluster")
    else:
        words += [_OPTIONS[pattern.type], pattern.name]
    if pattern.pattern is PatternType.PREFIXED:
        words += ["--resource-pattern-type", "prefixed"]
    return " ".join([verb, *map(quote, words)])
