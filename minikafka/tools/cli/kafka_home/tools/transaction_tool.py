"""`kafka-transactions.sh`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.kafka_home.connection import connected, raise_first
from minikafka.tools.cli.kafka_home.options import Arguments
from minikafka.tools.cli.terminal.echo import echo

_PRODUCERS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
_DESCRIPTION: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
_LISTING: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")


def run(arguments: Arguments) -> None:
    """Run the command that the words after the options name. Raises MinikafkaError."""
    work = {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "abort": _abort,
    }
    if len(arguments.rest) != 1 or arguments.rest[0] not in work:
        hint = "for hanging ones see `minikafka transactions find-hanging`"
        raise MinikafkaError(f"name one command: {', '.join(work)}; {hint}")
    connected(arguments, lambda client: work[arguments.rest[0]](client, arguments))


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table in the format of Kafka's tool: padded columns with a tab after each."""
    texts = [list(head), *([str(value) for value in row] for row in rows)]
    widths = [max(len(row[at]) for row in texts) for at in range(len(head))]
    for row in texts:
        echo("".join(f"{text:<{width}}\t" for text, width in zip(row, widths, strict=True)))


async def _list(client: Client, arguments: Arguments) -> None:
    longest = arguments.number("duration-filter", -1) or -1
    found = await client.transactions.list_transactions(min_duration_ms=longest)
    _table(
        _LISTING,
        [(one.transactional_id, one.coordinator, one.producer_id, one.state) for one in found],
    )


async def _describe(client: Client, arguments: Arguments) -> None:
    name = arguments.required("transactional-id")
    result = (await client.transactions.describe([name]))[name]
    raise_first([result.outcome])
    found = result.found
    assert found is not None
    start = found.start_ms
    duration = None if start is None else SystemClock().wall_ms() - start
    partitions = ",".join(map(str, found.partitions))
    _table(
        _DESCRIPTION,
        [
            (
                found.coordinator,
                name,
                found.producer_id,
                found.producer_epoch,
                found.state,
                found.timeout_ms,
                start,
                duration,
                partitions,
            )
        ],
    )


def _partition(arguments: Arguments) -> TopicPartition:
    number = arguments.number("partition")
    if number is None:
        raise MinikafkaError('Missing required argument "[partition]"')
    return TopicPartition(arguments.required("topic"), number)


async def _describe_producers(client: Client, arguments: Arguments) -> None:
    tp, broker = _partition(arguments), arguments.number("broker-id")
    result = (await client.transactions.describe_producers([tp], broker))[tp]
    raise_first([result.outcome])
    _table(
        _PRODUCERS,
        [
            (
                one.producer_id,
                one.producer_epoch,
                -1 if one.coordinator_epoch is None else one.coordinator_epoch,
                one.last_sequence,
                one.last_timestamp,
                "None" if one.start_offset is None else one.start_offset,
            )
            for one in result.producers
        ],
    )


async def _abort(client: Client, arguments: Arguments) -> None:
    tp, start = _partition(arguments), arguments.number("start-offset")
    if start is None:
        raise MinikafkaError("The transaction to abort is named by --start-offset")
    result = (await client.transactions.describe_producers([tp], None))[tp]
    raise_first([result.outcome])
    found = [one for one in result.producers if one.start_offset == start]
    if not found:
        raise MinikafkaError(
            f"Could not find any open transactions starting at offset {start} on partition {tp}"
        )
    raise_first([await client.transactions.abort(tp, found[0])])
