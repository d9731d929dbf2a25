"""`transactions describe`."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import click

import minikafka.client as clients
import minikafka.client.administration.transaction_admin as transaction_admin
from minikafka.base.model import TopicPartition
from minikafka.client.administration.transaction_admin import TransactionDescription
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.execution.running import fail_unless, run_with_client
from minikafka.tools.cli.terminal.columns import Column, lines, objects
from minikafka.tools.cli.terminal.echo import show
from minikafka.tools.cli.transactions.ids import ids_argument, print_failures, similar_ids


def duration_ms(one: TransactionDescription, now: int) -> int | None:
    """Return the age of the open transaction in ms; None if no transaction is open. `now`: Unix ms."""
    return None if one.start_ms is None else max(now - one.start_ms, 0)


def _as_json_partition(tp: TopicPartition) -> dict[str, Any]:
    return {"topic": tp.topic, "partition": tp.partition}


def description(now: int) -> list[Column]:
    """Return the columns of transactional ids. `now`: Unix ms."""
    return [
        Column("CoordinatorId", "coordinator", attrgetter("coordinator")),
        Column("TransactionalId", "transactional_id", attrgetter("transactional_id")),
        Column("ProducerId", "producer_id", attrgetter("producer_id")),
        Column("ProducerEpoch", "producer_epoch", attrgetter("producer_epoch")),
        Column("TransactionState", "state", attrgetter("state")),
        Column("TransactionTimeoutMs", "timeout_ms", attrgetter("timeout_ms")),
        Column("CurrentTransactionStartTimeMs", "start_time_ms", attrgetter("start_ms")),
        Column("TransactionDurationMs", "duration_ms", lambda one: duration_ms(one, now)),
        Column("TopicPartitions", "", lambda one: ",".join(map(str, one.partitions))),
        Column("", "partitions", lambda one: [_as_json_partition(tp) for tp in one.partitions]),
    ]


@click.command()
@ids_argument
@client_options
def describe(ids: tuple[str, ...]) -> None:
    """Show coordinator, producer, state, timeout, start and partitions of each TRANSACTIONAL-ID."""

    async def work(
        client: clients.Client,
    ) -> tuple[dict[str, transaction_admin.DescribeTransactionsResult], str]:
        found = await client.transactions.describe(ids)
        return found, await similar_ids(client, _outcomes(found))

    results, similar = run_with_client(work)
    now = SystemClock().wall_ms()
    found = [result.found for result in results.values() if result.found is not None]
    columns = description(now)
    by_id = [columns[1], columns[0], *columns[2:]]
    rows = [
        objects(by_id, [result.found])[0]
        if result.found is not None
        else {
            "transactional_id": name,
            "error": result.outcome.code.name,
            "message": result.outcome.reason,
        }
        for name, result in results.items()
    ]
    show(rows, lines(columns, found) if found else ())
    print_failures(_outcomes(results), similar)
    fail_unless(len(found) == len(results))


def _outcomes(
    results: Mapping[str, transaction_admin.DescribeTransactionsResult],
) -> dict[str, clients.Outcome]:
    return {name: result.outcome for name, result in results.items()}
