"""`transactions fence`."""

from __future__ import annotations

from operator import itemgetter

import click

import minikafka.client as clients
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.execution.running import fail_unless, run_with_client
from minikafka.tools.cli.terminal.columns import Column, failure, objects
from minikafka.tools.cli.terminal.echo import show
from minikafka.tools.cli.transactions.ids import ids_argument, print_failures, similar_ids


@click.command()
@ids_argument
@client_options
def fence(ids: tuple[str, ...]) -> None:
    """Abort the open transaction of each TRANSACTIONAL-ID in all its partitions, and fence its producer.

    The coordinator does what it does when a new producer with the same id starts: the former producer can write
    nothing more. A transaction whose end is decided is completed first.
    """

    async def work(client: clients.Client) -> tuple[dict[str, clients.Outcome], str]:
        outcomes = await client.transactions.fence(ids)
        return outcomes, await similar_ids(client, outcomes)

    results, similar = run_with_client(work)
    columns = (Column("", "transactional_id", itemgetter(0)), *failure(itemgetter(1)))
    rows = objects(columns, results.items())
    fenced = [name for name, outcome in results.items() if outcome.ok]
    show(rows, [f"{name} has no open transaction, and its producer is fenced." for name in fenced])
    print_failures(results, similar)
    fail_unless(len(fenced) == len(results))
