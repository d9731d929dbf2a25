"""`transactions find-hanging`."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import click

import minikafka.client as clients
import minikafka.tools.cli.transactions.hanging as hanging
from minikafka.base.model import TopicPartition
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.arguments.placement import parse_partition
from minikafka.tools.cli.execution.running import fail_unless, run_with_client
from minikafka.tools.cli.terminal.columns import Column, lines, objects
from minikafka.tools.cli.terminal.echo import echo, show
from minikafka.tools.cli.terminal.topic_errors import require_partitions, require_topics

_MINUTE_MS: Final = 60_000


def _columns(now: int) -> list[Column]:
    """Return the columns of hanging transactions. `now`: Unix ms."""
    return [
        Column("Topic", "topic", attrgetter("tp.topic")),
        Column("Partition", "partition", attrgetter("tp.partition")),
        Column("ProducerId", "producer_id", attrgetter("producer.producer_id")),
        Column("ProducerEpoch", "producer_epoch", attrgetter("producer.producer_epoch")),
        Column("CoordinatorEpoch", "coordinator_epoch", attrgetter("producer.coordinator_epoch")),
        Column("StartOffset", "start_offset", attrgetter("start_offset")),
        Column("LastTimestamp", "last_timestamp", attrgetter("producer.last_timestamp")),
        Column("Duration(min)", "", lambda one: (now - one.producer.last_timestamp) // _MINUTE_MS),
    ]


@click.command("find-hanging")
@click.argument(
    "named", metavar="[TOPIC-PARTITION]", required=False, shell_complete=completion.partitions
)
@click.option(
    "-t", "--topic", metavar="TOPIC", help="Only this topic.", shell_complete=completion.topics
)
@click.option(
    "-p", "--partition", type=click.IntRange(0), metavar="N", help="Only this partition of --topic."
)
@click.option(
    "--broker-id",
    type=int,
    metavar="ID",
    help="Only the replicas of this broker, as it knows them.",
    shell_complete=completion.brokers,
)
@click.option(
    "--max-transaction-timeout",
    "minutes",
    type=click.IntRange(0),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="Only transactions whose last record is older.",
)
@client_options
def find_hanging(
    named: str | None, topic: str | None, partition: int | None, broker_id: int | None, minutes: int
) -> None:
    """Find transactions that are open in a partition although no coordinator knows them: no marker will end them.

    Such a transaction holds back the last stable offset, and with it every read_committed consumer. `abort` ends it.
    Without a topic, all partitions of the cluster are searched.
    """
    scope = hanging.Scope(*_searched(named, topic, partition), broker_id)
    now = SystemClock().wall_ms()

    async def work(client: clients.Client) -> hanging.HangingTransactions:
        await _require(client, scope)
        return await hanging.find_hanging(client, scope, now - minutes * _MINUTE_MS)

    found = run_with_client(work)
    columns = _columns(now)
    show(objects(columns, found.hanging), lines(columns, found.hanging))
    for reason in found.failed.values():
        echo(f"minikafka: not examined: {reason}", err=True)
    fail_unless(not found.failed)


def _searched(
    named: str | None, topic: str | None, partition: int | None
) -> tuple[str | None, int | None]:
    """Return the topic and the partition to search; None for all. Raises UsageError."""
    if named is not None:
        if topic is not None or partition is not None:
            raise click.UsageError("name a partition as TOPIC-PARTITION or by options, not both")
        return parse_partition(named)
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    return topic, partition


async def _require(client: clients.Client, scope: hanging.Scope) -> None:
    """Raise KafkaError if the topic or partition of the scope does not exist."""
    if scope.topic is not None and scope.partition is not None:
        await require_partitions(client.admin, [TopicPartition(scope.topic, scope.partition)])
    elif scope.topic is not None:
        await require_topics(client.admin, [scope.topic])
