"""`transactions list | describe | describe-producers | fence | abort | find-hanging`, as in kafka-transactions.

The tables have the columns of Kafka's tool. Exit code 1 if a named transactional id does not exist, if a partition
could not be examined, or if an abort was refused. The reason is printed; the other ids and partitions are still shown.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from operator import itemgetter
from typing import Final

import click

import minikafka.client as clients
import minikafka.client.administration.transaction_admin as transaction_admin
import minikafka.tools.cli.transactions.hanging as hanging
import minikafka.tools.cli.transactions.view as views
from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.deciders.transactions.states import TransactionState
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers
from minikafka.tools.cli.arguments.options import bootstrap_option, data_option, timeout_option
from minikafka.tools.cli.arguments.partition_arguments import partition_argument
from minikafka.tools.cli.arguments.placement import parse_partition
from minikafka.tools.cli.execution.running import fail_unless, run_with_client
from minikafka.tools.cli.terminal.columns import Column, failure, lines, objects
from minikafka.tools.cli.terminal.command_group import CommandGroup
from minikafka.tools.cli.terminal.echo import echo, json_option, show
from minikafka.tools.cli.terminal.topic_errors import (
    did_you_mean,
    require_partitions,
    require_topics,
)

STATES: Final = tuple(state.value for state in TransactionState)
_MINUTE_MS: Final = 60_000
_OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states of ids with a transaction that is open or ending."""


@click.group(cls=CommandGroup)
def transactions() -> None:
    """Show transactions, find those that no coordinator knows, and abort them in a partition."""


def _states(context: click.Context, option: click.Parameter, text: str | None) -> list[str]:
    """Parse a list of states, ignoring case; return them in Kafka's spelling. Raises BadParameter."""
    known = {name.lower(): name for name in STATES}
    words = [word.strip() for word in text.split(",")] if text else []
    for word in words:
        if word.lower() not in known:
            problem = f"{word!r} is not a state: give some of {', '.join(STATES)}"
            raise click.BadParameter(problem, context, option)
    return [known[word.lower()] for word in words]


@transactions.command("list", short_help="List transactional ids with their states.")
@click.option(
    "--state",
    "states",
    metavar="STATE,...",
    callback=_states,
    help="Only ids in one of these states, such as Ongoing,PrepareCommit.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=int,
    multiple=True,
    metavar="N",
    help="Only this producer.",
)
@click.option(
    "--duration-filter",
    type=int,
    default=-1,
    metavar="MS",
    help="Only transactions that have been open for longer; a negative number lets all ids pass.",
)
@bootstrap_option
@data_option
@timeout_option
@json_option
def list_(
    states: list[str],
    producer_ids: tuple[int, ...],
    duration_filter: int,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Print every transactional id with its coordinator, producer id, state, and how long its transaction is open."""

    async def work(
        client: clients.Client,
    ) -> tuple[list[transaction_admin.TransactionListing], dict[str, int | None]]:
        found = await client.transactions.list_transactions(states, producer_ids, duration_filter)
        wanted = [one.transactional_id for one in found if one.state in _OPEN_STATES]
        described = await client.transactions.describe(wanted) if wanted else {}
        starts = {name: result.found.start_ms for name, result in described.items() if result.found}
        return found, starts

    found, starts = run_with_client(work, bootstrap_servers(bootstrap, data))
    now = SystemClock().wall_ms()
    started = {name: start for name, start in starts.items() if start is not None}
    ages = {name: max(now - start, 0) for name, start in started.items()}
    rows = [views.Listed(one, ages.get(one.transactional_id)) for one in found]
    show(objects(views.LISTING, rows), lines(views.LISTING, rows))


def _ids_argument(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with TRANSACTIONAL-ID… (or `--transactional-id ID`), which is passed as `ids`."""

    @click.argument(
        "words", nargs=-1, metavar="[TRANSACTIONAL-ID]...", shell_complete=completion.transactions
    )
    @click.option(
        "--transactional-id",
        "named",
        multiple=True,
        metavar="ID",
        help="Same as TRANSACTIONAL-ID; may be repeated.",
        shell_complete=completion.transactions,
    )
    @wraps(command)
    def with_ids(words: tuple[str, ...], named: tuple[str, ...], **rest: object) -> None:
        ids = tuple(dict.fromkeys((*words, *named)))
        if not all(ids or [""]):
            raise click.UsageError("name at least one TRANSACTIONAL-ID, and none that is empty")
        command(ids=ids, **rest)

    return with_ids


@transactions.command(short_help="Show the transaction of transactional ids.")
@_ids_argument
@bootstrap_option
@data_option
@timeout_option
@json_option
def describe(ids: tuple[str, ...], bootstrap: str | None, data: str | None) -> None:
    """Show coordinator, producer, state, timeout, start and partitions of each TRANSACTIONAL-ID."""

    async def work(
        client: clients.Client,
    ) -> tuple[dict[str, transaction_admin.DescribeTransactionsResult], str]:
        found = await client.transactions.describe(ids)
        unknown = [
            name
            for name, result in found.items()
            if result.outcome.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        ]
        return found, await _similar(client, unknown)

    results, similar = run_with_client(work, bootstrap_servers(bootstrap, data))
    now = SystemClock().wall_ms()
    found = [result.found for result in results.values() if result.found is not None]
    columns = views.description(now)
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
    _print_failures({name: result.outcome for name, result in results.items()}, similar)
    fail_unless(len(found) == len(results))


@transactions.command(short_help="Abort the open transactions of transactional ids.")
@_ids_argument
@bootstrap_option
@data_option
@timeout_option
@json_option
def fence(ids: tuple[str, ...], bootstrap: str | None, data: str | None) -> None:
    """Abort the open transaction of each TRANSACTIONAL-ID in all its partitions, and fence its producer.

    The coordinator does what it does when a new producer with the same id starts: the former producer can write
    nothing more. A transaction whose end is decided is completed first.
    """

    async def work(client: clients.Client) -> tuple[dict[str, clients.Outcome], str]:
        outcomes = await client.transactions.fence(ids)
        unknown = [
            name
            for name, outcome in outcomes.items()
            if outcome.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        ]
        return outcomes, await _similar(client, unknown)

    results, similar = run_with_client(work, bootstrap_servers(bootstrap, data))
    columns = (Column("", "transactional_id", itemgetter(0)), *failure(itemgetter(1)))
    rows = objects(columns, results.items())
    fenced = [name for name, outcome in results.items() if outcome.ok]
    show(rows, [f"{name} has no open transaction, and its producer is fenced." for name in fenced])
    _print_failures(results, similar)
    fail_unless(len(fenced) == len(results))


async def _similar(client: clients.Client, unknown: Sequence[str]) -> str:
    """Return a hint with transactional ids that are similar to the unknown ones; "" without unknown ones."""
    if not unknown:
        return ""
    known = [one.transactional_id for one in await client.transactions.list_transactions()]
    return did_you_mean([name for name in unknown if name not in known], known)


def _print_failures(outcomes: Mapping[str, clients.Outcome], similar: str) -> None:
    for name, outcome in outcomes.items():
        if not outcome.ok:
            hint = f"; {similar}" if similar else ""
            echo(f"minikafka: {outcome.code.name}: {name}: {outcome.reason}{hint}", err=True)


@transactions.command("describe-producers", short_help="Show the producers of a partition.")
@partition_argument
@click.option(
    "--broker-id",
    type=int,
    metavar="ID",
    help="The broker whose replica is asked (default: the leader).",
    shell_complete=completion.brokers,
)
@bootstrap_option
@data_option
@timeout_option
@json_option
def describe_producers(
    tp: TopicPartition, broker_id: int | None, bootstrap: str | None, data: str | None
) -> None:
    """Show the producers that have written to TOPIC-PARTITION, with the first offset of an open transaction."""

    async def work(client: clients.Client) -> tuple[transaction_admin.ProducerState, ...]:
        await require_partitions(client.admin, [tp])
        result = (await client.transactions.describe_producers([tp], broker_id))[tp]
        if not result.outcome.ok:
            raise KafkaError(result.outcome.code, result.outcome.reason)
        return result.producers

    found = run_with_client(work, bootstrap_servers(bootstrap, data))

    show(objects(views.PRODUCERS, found), lines(views.PRODUCERS, found))


@transactions.command(short_help="Write the marker of an abort into a partition.")
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
@bootstrap_option
@data_option
@timeout_option
@json_option
def abort(
    tp: TopicPartition,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    bootstrap: str | None,
    data: str | None,
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

    producer, outcome = run_with_client(work, bootstrap_servers(bootstrap, data))
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


@transactions.command("find-hanging", short_help="Find transactions that no coordinator will end.")
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
@bootstrap_option
@data_option
@timeout_option
@json_option
def find_hanging(
    named: str | None,
    topic: str | None,
    partition: int | None,
    broker_id: int | None,
    minutes: int,
    bootstrap: str | None,
    data: str | None,
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

    found = run_with_client(work, bootstrap_servers(bootstrap, data))
    columns = views.hanging(now)
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
