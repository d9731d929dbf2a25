"""`topics list`."""

from __future__ import annotations

import click

import minikafka.client as clients
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.echo import show


@click.command("list")
@click.option("--exclude-internal", is_flag=True, help="Leave out the topics of coordinators.")
@client_options
def list_(exclude_internal: bool) -> None:
    """Print the names of all topics, one per line."""

    async def work(client: clients.Client) -> list[str]:
        found = (await client.admin.describe())[1]
        return [t.name for t in found if not (exclude_internal and t.is_internal)]

    names = run_with_client(work)
    show(names, names)
