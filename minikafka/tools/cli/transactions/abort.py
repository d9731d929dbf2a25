"""`transactions abort`."""

from __future__ import annotations

import shlex

import click

import minikafka.client as clients
import minikafka.client.administration.transaction_admin as transaction_admin
import minikafka.tools.cli.transactions.hanging as hanging
from minikafka.base.errors import KafkaError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.arguments.partition_arguments import partition_argument
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.echo import echo, show
from minikafka.tools.cli.terminal.topic_errors import require_partitions


@click.command()
@partition_argument
@click.option(
    "--start-offset",
    type=click.IntRange(0),
    metavar="N",
    help="First offset of the transaction in the partition, as find-hanging prints it.",
)
@click.option(
    "--producer-id", type=click.IntRange(0), metavar="N", help="Instead of --start-offset."
)
@click.option("--producer-epoch", type=click.IntRange(0), metavar="N", help="With --producer-id.")
@click.option(
    "--coordinator-epoch", type=click.IntRange(0), metavar="N", help="With --producer-id."
)
@client_options
def abort(
    tp: TopicPartition,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort one transaction in TOPIC-PARTITION, and nowhere else. Meant for transactions that find-hanging shows.

    If the transaction's coordinator still has it open, its producer can still commit it in the other partitions. A
    warning says so.
    """
    numbers = _named_producer(start_offset, producer_id, producer_epoch, coordinator_epoch)

    async def work(
        client: clients.Client,
    ) -> tuple[transaction_admin.ProducerState, clients.Outcome]:
        await require_partitions(client.admin, [tp])
        if numbers is None:
            producer = await _open_at(client, tp, start_offset or 0)
        else:
            producer = transaction_admin.ProducerState(
                *numbers, last_sequence=-1, last_timestamp=-1, start_offset=None
            )
        return producer, await client.transactions.abort(tp, producer)

    producer, outcome = run_with_client(work)
    if not outcome.ok:
        raise KafkaError(outcome.code, outcome.reason)
    row = {
        "topic": tp.topic,
        "partition": tp.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "start_offset": producer.start_offset,
    }
    text = f"Aborted the transaction of producer {producer.producer_id}, epoch {producer.producer_epoch}, in {tp}."
    show(row, [text])


def _named_producer(start_offset: int | None, *numbers: int | None) -> tuple[int, int, int] | None:
    """Return the producer's three numbers; None if the start offset was given instead.

    Raises UsageError if neither or both were given.
    """
    match start_offset, numbers:
        case None, (int(producer_id), int(producer_epoch), int(coordinator_epoch)):
            return producer_id, producer_epoch, coordinator_epoch
        case int(), (None, None, None):
            return None
    options = "--producer-id, --producer-epoch and --coordinator-epoch"
    raise click.UsageError(f"name the transaction: --start-offset N, or {options}")


async def _open_at(
    client: clients.Client, tp: TopicPartition, start_offset: int
) -> transaction_admin.ProducerState:
    """Return the producer whose open transaction begins at this offset; warn if its coordinator knows it.

    If no transaction begins there, raises MinikafkaError with the offsets at which open transactions begin.
    """
    found = await hanging.find_open(client, tp)
    for one in found:
        if one.start_offset == start_offset:
            if (owner := await hanging.find_owner(client, one)) is not None:
                echo(
                    f"minikafka: warning: this transaction is not hanging: {owner.transactional_id} "
                    f"(coordinator {owner.coordinator}, {owner.state}) can still end it in all its partitions; "
                    f"`minikafka transactions fence {shlex.quote(owner.transactional_id)}` aborts it in all of them",
                    err=True,
                )
            return one.producer
    offsets = ", ".join(str(one.start_offset) for one in found)
    known = f"the open transactions begin at {offsets}" if found else "no transaction is open there"
    raise MinikafkaError(
        f"{tp} has no open transaction that begins at offset {start_offset}: {known}"
    )
