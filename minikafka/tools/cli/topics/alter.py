"""`topics alter`."""

from __future__ import annotations

import click

import minikafka.client as clients
import minikafka.client.administration.results as administration
from minikafka.tools.cli.arguments import placement
from minikafka.tools.cli.arguments.options import client_options, topic_argument
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.topic_errors import with_similar_topics
from minikafka.tools.cli.topics.outcomes import (
    assignment_option,
    config_option,
    partitions_option,
    report,
)


@click.command()
@topic_argument
@partitions_option("The new number of partitions; larger than the current one.")
@assignment_option
@config_option("A topic setting to change; may be repeated.")
@client_options
def alter(
    topic: str, partitions: int | None, assignment: str | None, configs: dict[str, str]
) -> None:
    """Change settings of TOPIC, or add partitions to it.

    If a setting is refused, nothing is changed.
    """
    if not (partitions or configs):
        raise click.UsageError("give --partitions N, or --config KEY=VALUE, or both")
    if assignment and not partitions:
        raise click.UsageError("--replica-assignment can only be used with --partitions")
    replicas = list(placement.manual_assignment(assignment).values()) if assignment else []

    async def work(client: clients.Client) -> dict[str, clients.Outcome]:
        if configs and not (outcome := await _configure(client.admin, topic, configs)).ok:
            return await with_similar_topics(client.admin, {topic: outcome})
        if partitions is None:
            return {topic: outcome}
        found = await client.admin.create_partitions({topic: partitions}, {topic: replicas})
        return await with_similar_topics(client.admin, found)

    outcomes = run_with_client(work)
    now = [f"{partitions} partitions"] if partitions else []
    now += [f"{key}={value}" for key, value in configs.items()]
    report(outcomes, "Topic {} has " + ", ".join(now) + ".")


async def _configure(admin: clients.Admin, topic: str, configs: dict[str, str]) -> clients.Outcome:
    resource = administration.Resource(administration.ResourceType.TOPIC, topic)
    return (await admin.alter_configs({resource: configs}))[resource]
