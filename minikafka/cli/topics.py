"""`topics create | list | describe | alter | delete`, over the Kafka protocol.

Exit code 1 when a named topic does not exist or the request for it was refused, with the reason; the
other named topics are still processed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from minikafka.base.errors import ErrorCode
from minikafka.cli import placement
from minikafka.cli.execution import fail_unless, run_with_client
from minikafka.cli.find_cluster import bootstrap_servers
from minikafka.cli.options import bootstrap_option, data_option, json_option, key_value_pairs

if TYPE_CHECKING:
    from minikafka.client import Client, Outcome
    from minikafka.client.admin import Admin

assignment_option = click.option(
    "--replica-assignment",
    "assignment",
    metavar="1:2:3,2:3:1",
    help="Brokers of each new partition, the preferred leader first.",
)


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Number of partitions (default: the broker's num.partitions).",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    metavar="N",
    help="Replicas of each partition (default: the broker's default.replication.factor).",
)
@assignment_option
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    callback=key_value_pairs,
    help="A topic setting; may be repeated.",
)
@bootstrap_option
@data_option
@json_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    assignment: str | None,
    configs: dict[str, str],
    bootstrap: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Create the topic NAME."""
    from minikafka.client import NewTopic

    if assignment and (partitions or replication_factor):
        raise click.UsageError(
            "give --replica-assignment, or --partitions and --replication-factor, not both"
        )
    replicas = placement.manual_assignment(assignment) if assignment else {}
    topic = NewTopic(name, partitions or -1, replication_factor or -1, configs, replicas)

    async def work(client: Client) -> dict[str, Outcome]:
        return await client.admin.create_topics([topic])

    outcomes = run_with_client(work, bootstrap_servers(bootstrap, data))
    _report(outcomes, as_json, "Created topic {}.")


@topics.command("list")
@bootstrap_option
@data_option
@json_option
def list_(bootstrap: str | None, data: str | None, as_json: bool) -> None:
    """Print the names of all topics, one per line."""

    async def work(client: Client) -> list[str]:
        return [topic.name for topic in (await client.admin.describe())[1]]

    names = run_with_client(work, bootstrap_servers(bootstrap, data))
    if as_json:
        click.echo(json.dumps(names))
    else:
        for name in names:
            click.echo(name)


@topics.command(short_help="Show partitions, leaders, replicas and ISRs.")
@click.argument("names", nargs=-1)
@click.option(
    "--under-replicated", is_flag=True, help="Only partitions with a replica outside the ISR."
)
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@bootstrap_option
@data_option
@json_option
def describe(
    names: tuple[str, ...],
    under_replicated: bool,
    unavailable: bool,
    bootstrap: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Show partitions, leaders, replicas and ISRs of the topics NAMES (default: all)."""
    from minikafka.cli.topic_view import TopicView, as_json_topic, lines, read_topics

    async def work(client: Client) -> TopicView:
        return await read_topics(client.admin, names)

    view = run_with_client(work, bootstrap_servers(bootstrap, data))
    filtered = under_replicated or unavailable
    if filtered:
        view = view.only(under_replicated=under_replicated, unavailable=unavailable)
    if as_json:
        click.echo(json.dumps([as_json_topic(topic, view) for topic in view.topics]))
    else:
        for topic in view.topics:
            for line in lines(topic, view, with_header=not filtered):
                click.echo(line)


@topics.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    required=True,
    help="The new number of partitions; larger than the current one.",
)
@assignment_option
@bootstrap_option
@data_option
@json_option
def alter(
    name: str,
    partitions: int,
    assignment: str | None,
    bootstrap: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Add partitions to the topic NAME."""
    replicas = list(placement.manual_assignment(assignment).values()) if assignment else []

    async def work(client: Client) -> dict[str, Outcome]:
        return await client.admin.create_partitions({name: partitions}, {name: replicas})

    outcomes = run_with_client(work, bootstrap_servers(bootstrap, data))
    _report(outcomes, as_json, f"Topic {{}} has {partitions} partitions.")


@topics.command(short_help="Mark topics for deletion.")
@click.argument("names", nargs=-1, required=True)
@click.option("--wait", is_flag=True, help="Wait until no broker holds a replica of the topics.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="With --wait: stop waiting after this time; the deletion continues.",
)
@bootstrap_option
@data_option
@json_option
def delete(
    names: tuple[str, ...],
    wait: bool,
    timeout: float | None,
    bootstrap: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Mark the topics NAMES for deletion; the controller then deletes them."""
    if timeout and not wait:
        raise click.UsageError("--timeout can only be used with --wait")

    async def work(client: Client) -> dict[str, Outcome]:
        outcomes = await client.admin.delete_topics(names)
        if wait:
            marked = [name for name, outcome in outcomes.items() if outcome.ok]
            outcomes |= await _wait_until_deleted(client.admin, marked, timeout, shown=not as_json)
        return outcomes

    outcomes = run_with_client(work, bootstrap_servers(bootstrap, data))
    done = "Topic {} is deleted." if wait else "Topic {} is marked for deletion."
    _report(outcomes, as_json, done)


async def _wait_until_deleted(
    admin: Admin, names: list[str], timeout: float | None, *, shown: bool
) -> dict[str, Outcome]:
    """Wait until the topics are gone, and show the progress if `shown`.

    Return REQUEST_TIMED_OUT for each topic that still exists after `timeout` seconds (None: no limit).
    """
    import asyncio

    from minikafka.cli.progress import Amount, Progress
    from minikafka.client import Outcome
    from minikafka.client.admin import POLL_MS
    from minikafka.runtime.clock import SystemClock

    clock = SystemClock()
    left = names
    most: dict[str, int] = {}
    try:
        async with asyncio.timeout(timeout):
            with Progress(clock, "topics deleted", shown=shown) as progress:
                while left := await _still_existing(admin, left):
                    replicas = await _replica_counts(admin, left)
                    most |= {name: max(most.get(name, 0), replicas[name]) for name in left}
                    amounts = {
                        name: Amount(most[name] - replicas[name], most[name] or None)
                        for name in left
                    }
                    progress.update(amounts, len(names) - len(left))
                    await clock.sleep(POLL_MS)
    except TimeoutError:
        reason = "the deletion continues; it cannot finish while a broker with a replica is down"
        return dict.fromkeys(left, Outcome(ErrorCode.REQUEST_TIMED_OUT, reason))
    return {}


async def _still_existing(admin: Admin, names: Iterable[str]) -> list[str]:
    """Return the topics whose deletion has not finished, found by a dry run of creating them."""
    from minikafka.client import NewTopic

    probes = [NewTopic(name, 1, 1) for name in names]
    outcomes = await admin.create_topics(probes, validate_only=True)
    return [name for name, o in outcomes.items() if o.code is ErrorCode.TOPIC_ALREADY_EXISTS]


async def _replica_counts(admin: Admin, names: list[str]) -> dict[str, int]:
    """Return the number of replicas of each topic that live brokers still hold."""
    counts = dict.fromkeys(names, 0)
    for dirs in (await admin.describe_log_dirs()).values():
        for tp in (tp for directory in dirs for tp in directory.sizes):
            if tp.topic in counts:
                counts[tp.topic] += 1
    return counts


def _report(outcomes: Mapping[str, Outcome], as_json: bool, success: str) -> None:
    """Print one line per topic, failures on standard error; exit with code 1 if there is a failure.

    `success` is the text for a topic that succeeded, with `{}` in place of its name.
    """
    if as_json:
        rows = [
            {
                "topic": name,
                "error": None if outcome.ok else outcome.code.name,
                "message": outcome.message,
            }
            for name, outcome in outcomes.items()
        ]
        click.echo(json.dumps(rows))
    for name, outcome in outcomes.items():
        if not outcome.ok:
            detail = f": {outcome.message}" if outcome.message else ""
            click.echo(f"minikafka: {outcome.code.name}: {name}{detail}", err=True)
        elif not as_json:
            click.echo(success.format(name))
    fail_unless(all(outcome.ok for outcome in outcomes.values()))
