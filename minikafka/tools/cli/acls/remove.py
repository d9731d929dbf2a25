"""`acls remove`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from minikafka.base.errors import MinikafkaError
from minikafka.security.acls import AclFilter, PatternFilter, PatternType
from minikafka.tools.cli.acls.filters import filters
from minikafka.tools.cli.acls.options import (
    LITERAL,
    NamedAcls,
    NamedResource,
    bindings,
    entry_options,
    pattern_option,
    resource_options,
)
from minikafka.tools.cli.acls.table import report
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.execution.running import run_with_client


@click.command()
@entry_options
@resource_options
@pattern_option(LITERAL, "prefixed", default=LITERAL)
@click.option("--force", is_flag=True, help="Without a principal: remove all ACLs of the names.")
@client_options
def remove(resources: Sequence[NamedResource], named: NamedAcls, kind: str, force: bool) -> None:
    """Remove the ACLs that `acls add` with the same options adds.

    With --force and without principals, remove all ACLs of the named resources.
    """
    selected = _selected(resources, PatternType.of_word(kind), named, force)
    outcomes = run_with_client(lambda client: client.acls.delete(selected))
    if not outcomes:
        raise MinikafkaError("there are no such ACLs; `minikafka acls list` shows those that exist")
    report(outcomes, "Removed")


def _selected(
    resources: Sequence[NamedResource], kind: PatternType, named: NamedAcls, force: bool
) -> list[AclFilter]:
    if named.allowed or named.denied:
        return [
            AclFilter(PatternFilter(*pattern), *entry)
            for pattern, entry in bindings(resources, kind, named)
        ]
    if any(named):
        raise click.UsageError("name a principal: --allow-principal or --deny-principal")
    if not resources:
        raise click.UsageError("name a resource: --topic, --group, --cluster or another one")
    if not force:
        raise click.UsageError("name a principal, or give --force to remove all ACLs of the names")
    return filters(resources, kind, (None,))
