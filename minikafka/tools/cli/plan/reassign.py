"""`plan reassign`."""

from __future__ import annotations

import click

from minikafka.tools.cli.arguments.options import EXISTING_FILE, connection_options, timeout_option
from minikafka.tools.cli.arguments.partition_arguments import Named, partitions_argument
from minikafka.tools.cli.arguments.placement import given_plan, plan_file
from minikafka.tools.cli.plan.answer import answer, verbose_option
from minikafka.tools.cli.terminal.echo import json_option


@click.command()
@click.option(
    "--file",
    type=EXISTING_FILE,
    metavar="FILE",
    help="JSON file in the format of Kafka's reassignment tool.",
)
@partitions_argument
@click.option(
    "--replicas",
    multiple=True,
    metavar="1,2,3",
    help="The partition's new brokers, the preferred leader first.",
)
@connection_options
@timeout_option
@verbose_option
@json_option
def reassign(
    file: str | None,
    named: Named,
    replicas: tuple[str, ...],
    bootstrap: str | None,
    data: str | None,
    verbose: bool,
) -> None:
    """Show what `minikafka reassign` with the same options would cause."""
    if named.topics or (file is None) == (not named.partitions):
        raise click.UsageError("give either --file, or partitions and --replicas")
    wanted = plan_file(file) if file else given_plan(named.partitions, replicas)
    targets = [[tp.topic, tp.partition, list(to)] for tp, to in wanted.items()]
    answer({"operation": "reassign", "targets": targets}, bootstrap, data, verbose)
