"""`acls add`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from minikafka.security.acls import PatternType
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
@client_options
def add(resources: Sequence[NamedResource], named: NamedAcls, kind: str) -> None:
    """Allow or deny operations on resources to principals.

    A denial outweighs every permission. To let User:alice read a topic with a group:
    acls add --allow-principal User:alice --consumer --topic T --group G
    """
    wanted = bindings(resources, PatternType.of_word(kind), named)
    report(run_with_client(lambda client: client.acls.create(wanted)), "Added")
