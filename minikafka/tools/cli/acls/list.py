"""`acls list`."""

from __future__ import annotations

from collections.abc import Sequence

import click

import minikafka.client as clients
from minikafka.security.acls import AclBinding, AclResourceType, PatternType
from minikafka.tools.cli.acls.filters import filters
from minikafka.tools.cli.acls.options import (
    LITERAL,
    NamedResource,
    check_principal,
    pattern_option,
    resource_options,
)
from minikafka.tools.cli.acls.table import show_acls
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.execution.running import run_with_client


@click.command("list")
@click.option(
    "--principal",
    "principals",
    multiple=True,
    callback=check_principal,
    metavar="TYPE:NAME",
    help="Only ACLs of this principal; may be repeated.",
)
@resource_options
@pattern_option(LITERAL, "prefixed", "any", "match", default="match")
@client_options
def list_(principals: tuple[str, ...], resources: Sequence[NamedResource], kind: str) -> None:
    """Show the ACLs that concern the named resources and principals; without names, all ACLs."""
    selected = filters(resources, PatternType.of_word(kind), principals or (None,))

    async def work(client: clients.Client) -> list[AclBinding]:
        found = [acl for one in selected for acl in await client.acls.describe(one)]
        return sorted(set(found), key=_order)

    show_acls(run_with_client(work))


def _order(acl: AclBinding) -> tuple[AclResourceType, str, AclBinding]:
    return acl.pattern.type, acl.pattern.name, acl
