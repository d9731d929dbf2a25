"""`groups delete-offsets`."""

from __future__ import annotations

from operator import itemgetter
from typing import Final

import click

import minikafka.client as clients
import minikafka.tools.cli.groups.reset_plan as reset_plans
from minikafka.base.errors import KafkaError, MinikafkaError
from minikafka.base.meanings import meaning
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.execution.running import fail_unless, run_with_client
from minikafka.tools.cli.groups.named import REASONS, reason, topic_scope_option
from minikafka.tools.cli.groups.offset_resets import TopicScope
from minikafka.tools.cli.terminal.columns import Column, failure, lines, objects
from minikafka.tools.cli.terminal.echo import show


def _status(outcome: clients.Outcome) -> str:
    if outcome.ok:
        return "Successful"
    return f"Error: {outcome.code.name}: {REASONS.get(outcome.code) or meaning(outcome.code)}"


_DELETED: Final = (
    Column("TOPIC", "topic", lambda row: row[0].topic, 15),
    Column("PARTITION", "partition", lambda row: row[0].partition, 10, False),
    Column("STATUS", "", itemgetter(1), text=_status),
    *failure(itemgetter(1), reason),
)


@click.command("delete-offsets")
@click.argument("group", shell_complete=completion.groups)
@topic_scope_option
@client_options
def delete_offsets(group: str, scopes: list[TopicScope]) -> None:
    """Delete the offsets of GROUP for topics that none of its members reads."""
    if not scopes:
        raise click.UsageError("name the partitions: --topic TOPIC, or --topic TOPIC:0,1")

    async def work(client: clients.Client) -> dict[TopicPartition, clients.Outcome]:
        partitions = await reset_plans.find_partitions(client, scopes)
        return await client.groups.delete_offsets(group, partitions)

    try:
        outcomes = run_with_client(work)
    except KafkaError as error:
        raise _explained(error, group) from error
    show(objects(_DELETED, outcomes.items()), lines(_DELETED, sorted(outcomes.items())))
    fail_unless(all(outcome.ok for outcome in outcomes.values()))


def _explained(error: KafkaError, group: str) -> MinikafkaError:
    if error.detail == f"group {group}":
        return KafkaError(error.code, f"{group}: {REASONS.get(error.code) or meaning(error.code)}")
    return error
