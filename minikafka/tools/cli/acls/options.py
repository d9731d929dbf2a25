"""The options that name resources, and the ones that describe ACLs, with the names of kafka-acls.sh."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from itertools import product
from typing import Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from minikafka.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
    parse_principal,
)
from minikafka.tools.cli.arguments import completion

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

LITERAL: Final = "literal"
_OPERATIONS: Final = tuple(operation.word for operation in AclOperation if operation > 1)
_PRODUCER: Final = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
_TRANSACTIONAL: Final = (AclOperation.WRITE, AclOperation.DESCRIBE)
_CONSUMER: Final = (AclOperation.READ, AclOperation.DESCRIBE)


class NamedResource(NamedTuple):
    """One resource that the command line names."""

    type: AclResourceType
    name: str


class NamedAcls(NamedTuple):
    """What the options say about the entries of ACLs. Without principals they describe no entry."""

    allowed: tuple[str, ...]
    denied: tuple[str, ...]
    allow_hosts: tuple[str, ...]
    deny_hosts: tuple[str, ...]
    operations: tuple[AclOperation, ...]
    is_producer: bool
    is_consumer: bool
    is_idempotent: bool


def check_principal(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Return principals; a click callback. Raises BadParameter."""
    for value in values:
        try:
            parse_principal(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, option) from None
    return values


def parse_operations(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[AclOperation, ...]:
    """Return operations, in any case and with or without `-` and `_`; a click callback. Raises BadParameter."""
    found = tuple(parse_operation(value, context, option) for value in values)
    return tuple(dict.fromkeys(found))


def parse_operation(
    text: str, context: click.Context | None = None, option: click.Parameter | None = None
) -> AclOperation:
    """Return an operation. Raises BadParameter."""
    found = AclOperation.of_word(text.replace("-", "").replace("_", ""))
    if found <= AclOperation.ANY:
        allowed = ", ".join(_OPERATIONS)
        raise click.BadParameter(f"{text!r} is not one of {allowed}", context, option)
    return found


def resource_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with the options of resources, passed as `resources`."""

    @_resources("--topic", "A topic; may be repeated, as the next options.", completion.topics)
    @_resources("--group", "A consumer group.", completion.groups)
    @click.option("--cluster", is_flag=True, help="The cluster.")
    @_resources("--transactional-id", "A transactional id.", completion.transactions)
    @_resources("--delegation-token", "A delegation token.")
    @click.option(
        "--user-principal",
        multiple=True,
        callback=check_principal,
        metavar="TYPE:NAME",
        help="A user for whom others may make delegation tokens.",
    )
    @wraps(command)
    def with_resources(
        topic: tuple[str, ...],
        group: tuple[str, ...],
        cluster: bool,
        transactional_id: tuple[str, ...],
        delegation_token: tuple[str, ...],
        user_principal: tuple[str, ...],
        **rest: object,
    ) -> None:
        named = (
            (AclResourceType.TOPIC, topic),
            (AclResourceType.GROUP, group),
            (AclResourceType.CLUSTER, (CLUSTER_NAME,) if cluster else ()),
            (AclResourceType.TRANSACTIONAL_ID, transactional_id),
            (AclResourceType.DELEGATION_TOKEN, delegation_token),
            (AclResourceType.USER, user_principal),
        )
        resources = [NamedResource(kind, name) for kind, names in named for name in names]
        command(resources=resources, **rest)

    return with_resources


def entry_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with the options of the entries of ACLs, passed as `named`."""

    @_principals("--allow-principal", "Allow this principal, such as User:alice; may be repeated.")
    @_principals("--deny-principal", "Deny this principal, whatever else allows it.")
    @_hosts("--allow-host", "Only from this address (default: from every address).")
    @_hosts("--deny-host", "Only from this address (default: from every address).")
    @click.option(
        "--operation",
        "operations",
        multiple=True,
        callback=parse_operations,
        metavar="NAME",
        help=f"One of {', '.join(_OPERATIONS)} (default: All); may be repeated.",
    )
    @click.option(
        "--producer",
        is_flag=True,
        help="What a producer needs for the topics and transactional ids.",
    )
    @click.option(
        "--consumer", is_flag=True, help="What a consumer needs for the topics and groups."
    )
    @click.option(
        "--idempotent", is_flag=True, help="With --producer: also what brokers before 2.8 ask for."
    )
    @wraps(command)
    def with_entries(
        allow_principal: tuple[str, ...],
        deny_principal: tuple[str, ...],
        allow_host: tuple[str, ...],
        deny_host: tuple[str, ...],
        operations: tuple[AclOperation, ...],
        producer: bool,
        consumer: bool,
        idempotent: bool,
        **rest: object,
    ) -> None:
        named = NamedAcls(
            allow_principal,
            deny_principal,
            allow_host,
            deny_host,
            operations,
            producer,
            consumer,
            idempotent,
        )
        command(named=named, **rest)

    return with_entries


def _resources(
    name: str, text: str, complete: Complete | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(name, multiple=True, metavar="NAME", help=text, shell_complete=complete)


def _principals(name: str, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        name, multiple=True, callback=check_principal, metavar="TYPE:NAME", help=text
    )


def _hosts(name: str, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(name, multiple=True, metavar="ADDRESS", help=text)


def pattern_option(
    *kinds: str, default: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option of the type of patterns, passed as `kind`."""
    return click.option(
        "--resource-pattern-type",
        "kind",
        type=click.Choice(kinds, case_sensitive=False),
        default=default,
        show_default=True,
        help="Whether the names are whole names or prefixes"
        + ("; match: all ACLs that concern the names." if "match" in kinds else "."),
    )


def bindings(
    resources: Sequence[NamedResource], kind: PatternType, named: NamedAcls
) -> list[AclBinding]:
    """Return the ACLs that the options describe. Raises UsageError."""
    _check_options(resources, named)
    found: dict[AclBinding, None] = {}
    for resource, operation in _rights(resources, named):
        where = PatternType.LITERAL if resource.type is AclResourceType.CLUSTER else kind
        pattern = ResourcePattern(resource.type, resource.name, where)
        for entry in _entries_of_principals(named, operation):
            found[AclBinding(pattern, entry)] = None
    return list(found)


def _check_options(resources: Sequence[NamedResource], named: NamedAcls) -> None:
    kinds = {resource.type for resource in resources}
    if not (resources or named.is_idempotent):
        raise click.UsageError("name a resource: --topic, --group, --cluster or another one")
    if not (named.allowed or named.denied):
        raise click.UsageError("name a principal: --allow-principal or --deny-principal")
    if named.allow_hosts and not named.allowed:
        raise click.UsageError("--allow-host needs --allow-principal")
    if named.deny_hosts and not named.denied:
        raise click.UsageError("--deny-host needs --deny-principal")
    if (named.is_producer or named.is_consumer) and (named.denied or named.operations):
        text = "--producer and --consumer allow what they need: leave out --operation and --deny-principal"
        raise click.UsageError(text)
    if named.is_idempotent and not named.is_producer:
        raise click.UsageError("--idempotent needs --producer")
    if named.is_producer and AclResourceType.TOPIC not in kinds:
        raise click.UsageError("--producer needs --topic")
    if named.is_consumer and not {AclResourceType.TOPIC, AclResourceType.GROUP} <= kinds:
        raise click.UsageError("--consumer needs --topic and --group")


def _rights(
    resources: Sequence[NamedResource], named: NamedAcls
) -> Iterator[tuple[NamedResource, AclOperation]]:
    """Yield each resource with each operation. Raises UsageError for an operation that the resource does not have."""
    for resource in resources:
        if named.is_producer or named.is_consumer:
            wanted: Sequence[AclOperation] = _of_client(resource.type, named)
        else:
            wanted = named.operations or (AclOperation.ALL,)
        for operation in wanted:
            if operation not in (AclOperation.ALL, *SUPPORTED[resource.type]):
                known = ", ".join(one.word for one in sorted(SUPPORTED[resource.type]))
                text = f"{resource.type.word} has no operation {operation.word}, but All, {known}"
                raise click.UsageError(text)
            yield resource, operation
    if named.is_idempotent:
        yield (
            NamedResource(AclResourceType.CLUSTER, CLUSTER_NAME),
            AclOperation.IDEMPOTENT_WRITE,
        )


def _of_client(kind: AclResourceType, named: NamedAcls) -> list[AclOperation]:
    """Return the operations that a producer or a consumer, or both, need for a resource of this type."""
    found: list[AclOperation] = []
    if kind is AclResourceType.TOPIC:
        found += _PRODUCER if named.is_producer else ()
        found += _CONSUMER if named.is_consumer else ()
    elif kind is AclResourceType.TRANSACTIONAL_ID and named.is_producer:
        found += _TRANSACTIONAL
    elif kind is AclResourceType.GROUP and named.is_consumer:
        found.append(AclOperation.READ)
    if not found:
        raise click.UsageError(f"--producer and --consumer have no use for {kind.word}")
    return list(dict.fromkeys(found))


def _entries_of_principals(named: NamedAcls, operation: AclOperation) -> Iterator[AclEntry]:
    for principals, hosts, permission in (
        (named.allowed, named.allow_hosts, AclPermission.ALLOW),
        (named.denied, named.deny_hosts, AclPermission.DENY),
    ):
        for principal, host in product(principals, hosts or (WILDCARD,)):
            yield AclEntry(principal, host, operation, permission)
