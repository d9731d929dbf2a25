"""`why --principal`: which ACL allows or denies an operation to a principal, or that none does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from shlex import join

import click

import minikafka.client as clients
import minikafka.client.administration.results as administration
import minikafka.tools.explain.rights as rights
from minikafka.base.config.authorizer import parse_principals
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternFilter,
    PatternType,
    acl_host,
)
from minikafka.tools.cli.acls.options import check_principal, parse_operations
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers, cluster_options
from minikafka.tools.cli.arguments.options import bootstrap_option, command_config_option
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.echo import echo, show


def or_principal(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate `why` with the options about rights. With --principal, the command itself is not called."""

    @click.option(
        "--principal",
        "principals",
        multiple=True,
        callback=check_principal,
        metavar="TYPE:NAME",
        help="Explain the rights of this principal, such as User:alice, to a --topic or --group, a "
        "--transactional-id or the --cluster.",
    )
    @click.option("--cluster", is_flag=True, help="With --principal: the cluster.")
    @click.option(
        "--transactional-id", metavar="NAME", help="With --principal: this transactional id."
    )
    @click.option(
        "--operation",
        "operations",
        multiple=True,
        callback=parse_operations,
        metavar="NAME",
        help="With --principal: only this operation, such as write; may be repeated.",
    )
    @click.option(
        "--host",
        metavar="ADDRESS",
        help="With --principal: the address of the client (default: what holds for every address).",
    )
    @bootstrap_option
    @command_config_option
    @wraps(command)
    def with_principal(
        principals: tuple[str, ...],
        cluster: bool,
        transactional_id: str | None,
        operations: tuple[AclOperation, ...],
        host: str | None,
        bootstrap: str | None,
        data: str | None,
        topic: str | None,
        group: str | None,
        named: str | None,
        partition: int | None,
        offset: int | None,
    ) -> None:
        partition_asked = {"named": named, "partition": partition, "offset": offset}
        if not principals:
            _refuse_rights(cluster, transactional_id, operations, host)
            command(topic=topic, group=group, bootstrap=bootstrap, data=data, **partition_asked)
            return
        if len(principals) > 1 or any(value is not None for value in partition_asked.values()):
            raise click.UsageError("with --principal, name one principal, and no partition")
        resource = _resource(topic, group, transactional_id, cluster)
        address = WILDCARD if host is None else acl_host(host)
        question = rights.RightsQuestion(principals[0], *resource, address)
        _check_operations(question, operations)
        _explain(question, operations, bootstrap, data)

    return with_principal


def _refuse_rights(
    cluster: bool,
    transactional_id: str | None,
    operations: tuple[AclOperation, ...],
    host: str | None,
) -> None:
    """Raise UsageError for options that need --principal."""
    if cluster or transactional_id or operations or host:
        raise click.UsageError(
            "--cluster, --transactional-id, --operation and --host need --principal"
        )


def _resource(
    topic: str | None, group: str | None, transactional_id: str | None, cluster: bool
) -> tuple[AclResourceType, str]:
    named = (
        (AclResourceType.TOPIC, topic),
        (AclResourceType.GROUP, group),
        (AclResourceType.TRANSACTIONAL_ID, transactional_id),
        (AclResourceType.CLUSTER, CLUSTER_NAME if cluster else None),
    )
    found = [(kind, name) for kind, name in named if name is not None]
    if len(found) != 1:
        raise click.UsageError(
            "with --principal, name one resource: --topic, --group, --transactional-id or --cluster"
        )
    return found[0]


def _check_operations(question: rights.RightsQuestion, operations: Sequence[AclOperation]) -> None:
    known = SUPPORTED[question.type]
    for operation in operations:
        if operation not in known:
            allowed = ", ".join(one.word for one in sorted(known))
            text = f"{question.type.word} has no operation {operation.word}, but {allowed}"
            raise click.UsageError(text)


def _explain(
    question: rights.RightsQuestion,
    operations: Sequence[AclOperation],
    bootstrap: str | None,
    data: str | None,
) -> None:
    access = run_with_client(
        lambda client: read_access(client, question), bootstrap_servers(bootstrap, data)
    )
    where = cluster_options(bootstrap, data)
    suffix = f" {join(where)}" if where else ""
    answers = [
        one._replace(remedy=one.remedy + suffix if one.remedy else "")
        for one in rights.explain_rights(access, question, operations)
    ]
    principal, kind, name, host = question
    found = {"principal": principal, "resource": kind.word, "name": name, "host": host}
    rows = [one.as_json() for one in answers]
    show({**found, "operations": rows}, lambda: _print(question, answers))


async def read_access(
    client: clients.Client, question: rights.RightsQuestion
) -> rights.AccessRules:
    """Return what the brokers decide by about a resource. Raises KafkaError."""
    concerning = PatternFilter(question.type, question.name, PatternType.MATCH)
    every = AclFilter(concerning, None, None, AclOperation.ANY, AclPermission.ANY)
    try:
        acls: list[AclBinding] = await client.acls.describe(every)
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            return rights.AccessRules(is_checked=False)
        raise
    broker = min((await client.admin.describe_cluster()).brokers)
    resource = administration.Resource(administration.ResourceType.BROKER, str(broker))
    settings = (await client.admin.describe_configs([resource]))[resource]
    if not settings.outcome.ok:
        raise KafkaError(settings.outcome.code, settings.outcome.reason)
    values = {entry.name: entry.value for entry in settings.entries}
    return rights.AccessRules(
        is_checked=True,
        super_users=frozenset(parse_principals(values.get("super.users") or "")),
        allows_without_acl=values.get("allow.everyone.if.no.acl.found") == "true",
        acls=acls,
    )


def _print(question: rights.RightsQuestion, answers: Sequence[rights.RightAnswer]) -> None:
    for one in answers:
        may = "may" if one.is_allowed else "may not"
        do = f"{may} {one.operation.word} on {question.resource}"
        echo(f"{question.principal} {do}: {one.reason}")
        if one.remedy:
            verb = "grants it" if one.acl is None else "removes this ACL"
            echo(f"  `{one.remedy}` {verb}")
        for host, verdict in one.elsewhere.items():
            other = "may" if verdict.is_allowed else "may not"
            echo(f"  from host {host} it {other}: {verdict}")
