"""`quotas list`."""

from __future__ import annotations

from operator import attrgetter
from typing import Final, NamedTuple

import click

from minikafka.security.quotas import QuotaEntity
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.quotas.owner import owner_options, title
from minikafka.tools.cli.terminal.columns import Column, lines, objects
from minikafka.tools.cli.terminal.echo import show


class _Row(NamedTuple):
    owner: str
    key: str
    value: float


_QUOTAS: Final = (
    Column("OWNER", "owner", attrgetter("owner")),
    Column("QUOTA", "quota", attrgetter("key")),
    Column("VALUE", "value", attrgetter("value"), text=lambda value: f"{value:.15g}"),
)


@click.command("list")
@owner_options
@client_options
def list_(owner: QuotaEntity) -> None:
    """Show the quotas of the named owners, by default of all."""
    found = run_with_client(lambda client: client.quotas.describe(owner))
    rows = sorted(
        _Row(title(one), key, value)
        for one, values in found.items()
        for key, value in values.items()
    )
    show(objects(_QUOTAS, rows), lines(_QUOTAS, rows) if rows else ["There are no such quotas."])
