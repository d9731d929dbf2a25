"""`transactions describe-producers`."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import click

import minikafka.client as clients
import minikafka.client.administration.transaction_admin as transaction_admin
from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.arguments.partition_arguments import partition_argument
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.columns import Column, lines, objects
from minikafka.tools.cli.terminal.echo import show
from minikafka.tools.cli.terminal.topic_errors import require_partitions

PRODUCERS: Final = (
    Column("ProducerId", "producer_id", attrgetter("producer_id")),
    Column("ProducerEpoch", "producer_epoch", attrgetter("producer_epoch")),
    Column("LatestCoordinatorEpoch", "coordinator_epoch", attrgetter("coordinator_epoch")),
    Column("LastSequence", "last_sequence", attrgetter("last_sequence")),
    Column("LastTimestamp", "last_timestamp", attrgetter("last_timestamp")),
    Column("CurrentTransactionStartOffset", "start_offset", attrgetter("start_offset")),
)
"""A row is a `ProducerState`."""


@click.command("describe-producers")
@partition_argument
@click.option(
    "--broker-id",
    type=int,
    metavar="ID",
    help="The broker whose replica is asked (default: the leader).",
    shell_complete=completion.brokers,
)
@client_options
def describe_producers(tp: TopicPartition, broker_id: int | None) -> None:
    """Show the producers that have written to TOPIC-PARTITION, with the first offset of an open transaction."""

    async def work(client: clients.Client) -> tuple[transaction_admin.ProducerState, ...]:
        await require_partitions(client.admin, [tp])
        result = (await client.transactions.describe_producers([tp], broker_id))[tp]
        if not result.outcome.ok:
            raise KafkaError(result.outcome.code, result.outcome.reason)
        return result.producers

    found = run_with_client(work)

    show(objects(PRODUCERS, found), lines(PRODUCERS, found))
