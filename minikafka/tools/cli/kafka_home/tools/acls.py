"""`kafka-acls.sh`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from minikafka.base.errors import MinikafkaError
from minikafka.client import Client
from minikafka.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternFilter,
    PatternType,
    ResourcePattern,
)
from minikafka.tools.cli.acls.options import NamedAcls, NamedResource, bindings, parse_operation
from minikafka.tools.cli.kafka_home.connection import connected, raise_first
from minikafka.tools.cli.kafka_home.options import Arguments
from minikafka.tools.cli.terminal.echo import echo

_RESOURCES: Final = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "transactional-id": AclResourceType.TRANSACTIONAL_ID,
    "delegation-token": AclResourceType.DELEGATION_TOKEN,
    "user-principal": AclResourceType.USER,
}


def run(arguments: Arguments) -> None:
    """Do the one action that the options name. Raises MinikafkaError."""
    action = arguments.only_one_of(("add", "list", "remove"))
    work = {"add": _add, "list": _list, "remove": _remove}
    if action == "remove" and not arguments.has("force"):
        answer = input("Are you sure you want to remove the ACLs of the named resources? (y/n)\n")
        if answer.strip().lower() != "y":
            return
    connected(arguments, lambda client: work[action](client, arguments))


def _resources(arguments: Arguments) -> list[NamedResource]:
    found = [
        NamedResource(kind, name.strip())
        for option, kind in _RESOURCES.items()
        for name in arguments.values(option)
    ]
    if arguments.has("cluster"):
        found.append(NamedResource(AclResourceType.CLUSTER, CLUSTER_NAME))
    return found


def _pattern_type(arguments: Arguments) -> PatternType:
    text = arguments.value("resource-pattern-type", "literal") or ""
    found = PatternType.of_word(text)
    if found is PatternType.UNKNOWN:
        raise MinikafkaError(f"A '--resource-pattern-type' value of '{text}' is not valid")
    return found


def _wanted(arguments: Arguments) -> list[AclBinding]:
    """Return the ACLs that the options describe. Raises MinikafkaError and UsageError."""
    kind = _pattern_type(arguments)
    if kind not in (PatternType.LITERAL, PatternType.PREFIXED):
        word = kind.word.lower()
        raise MinikafkaError(
            f"A '--resource-pattern-type' value of '{word}' is not valid when adding acls."
        )
    named = NamedAcls(
        tuple(arguments.values("allow-principal")),
        tuple(arguments.values("deny-principal")),
        tuple(arguments.values("allow-host")),
        tuple(arguments.values("deny-host")),
        tuple(parse_operation(text) for text in arguments.values("operation")),
        arguments.has("producer"),
        arguments.has("consumer"),
        arguments.has("idempotent"),
    )
    return bindings(_resources(arguments), kind, named)


async def _add(client: Client, arguments: Arguments) -> None:
    wanted = _wanted(arguments)
    _show("Adding ACLs for resource", wanted)
    raise_first((await client.acls.create(wanted)).values())
    kinds = {binding.pattern: None for binding in wanted}
    filters = [_everything(PatternFilter(p.type, p.name, p.pattern)) for p in kinds]
    await _show_current(client, filters)


def _everything(pattern: PatternFilter) -> AclFilter:
    return AclFilter(pattern, None, None, AclOperation.ANY, AclPermission.ANY)


def _filters(arguments: Arguments) -> list[AclFilter]:
    """Return the filters of the named resources; without any, one for all resources."""
    kind = _pattern_type(arguments)
    named = [PatternFilter(one.type, one.name, kind) for one in _resources(arguments)]
    every = PatternFilter(AclResourceType.ANY, None, PatternType.ANY)
    return [_everything(pattern) for pattern in named or [every]]


async def _list(client: Client, arguments: Arguments) -> None:
    principals = arguments.values("principal")
    if not principals:
        await _show_current(client, _filters(arguments))
    for principal in principals:
        echo(f"ACLs for principal `{principal}`")
        chosen = [one._replace(principal=principal) for one in _filters(arguments)]
        await _show_current(client, chosen)


async def _show_current(client: Client, filters: Iterable[AclFilter]) -> None:
    found: dict[AclBinding, None] = {}
    for one in filters:
        found |= dict.fromkeys(await client.acls.describe(one))
    _show("Current ACLs for resource", sorted(found))


async def _remove(client: Client, arguments: Arguments) -> None:
    names_entries = arguments.has("allow-principal") or arguments.has("deny-principal")
    if not _resources(arguments) and not arguments.has("idempotent"):
        raise MinikafkaError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    filters = (
        [_exactly(one) for one in _wanted(arguments)] if names_entries else _filters(arguments)
    )
    raise_first((await client.acls.delete(filters)).values())
    await _show_current(client, _filters(arguments))


def _exactly(binding: AclBinding) -> AclFilter:
    pattern = PatternFilter(*binding.pattern)
    return AclFilter(pattern, *binding.entry)


def _show(head: str, found: Sequence[AclBinding]) -> None:
    """Print ACLs by resource, in the format of Kafka's tool."""
    for pattern, group in groupby(found, key=lambda one: one.pattern):
        echo(f"{head} `{_resource_text(pattern)}`: ", *_entries(group), "")


def _resource_text(pattern: ResourcePattern) -> str:
    kind, how = pattern.type.name, pattern.pattern.name
    return f"ResourcePattern(resourceType={kind}, name={pattern.name}, patternType={how})"


def _entries(found: Iterable[AclBinding]) -> Iterator[str]:
    for _, (principal, host, operation, permission) in found:
        rest = f"operation={operation.name}, permissionType={permission.name}"
        yield f" \t(principal={principal}, host={host}, {rest})"
