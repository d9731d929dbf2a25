"""`topics create`."""

from __future__ import annotations

import click

import minikafka.client as clients
from minikafka.base.errors import ErrorCode
from minikafka.tools.cli.arguments import placement
from minikafka.tools.cli.arguments.options import client_options, topic_argument
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.topics.outcomes import (
    assignment_option,
    config_option,
    partitions_option,
    report,
)


@click.command()
@topic_argument
@partitions_option("Number of partitions (default: the broker's num.partitions).")
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(1),
    metavar="N",
    help="Replicas of each partition (default: the broker's default.replication.factor).",
)
@assignment_option
@config_option("A topic setting; may be repeated.")
@click.option(
    "--if-not-exists", is_flag=True, help="Succeed if the topic exists; leave it unchanged."
)
@client_options
def create(
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    assignment: str | None,
    configs: dict[str, str],
    if_not_exists: bool,
) -> None:
    """Create TOPIC."""
    if assignment and (partitions or replication_factor):
        raise click.UsageError(
            "give --replica-assignment, or --partitions and --replication-factor, not both"
        )
    replicas = placement.manual_assignment(assignment) if assignment else {}
    wanted = clients.NewTopic(topic, partitions or -1, replication_factor or -1, configs, replicas)

    async def work(client: clients.Client) -> dict[str, clients.Outcome]:
        return await client.admin.create_topics([wanted])

    outcomes = run_with_client(work)
    done = "Created topic {}."
    if if_not_exists and outcomes[topic].code is ErrorCode.TOPIC_ALREADY_EXISTS:
        outcomes, done = {topic: clients.Outcome(ErrorCode.NONE)}, "Topic {} already exists."
    report(outcomes, done)
