"""`topics create | list | describe | alter | delete`, over the Kafka protocol.

Exit code 1 when anything that was named is not there or was refused, each with its reason; what else was
named is done all the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

import click

from minikafka.base.errors import ErrorCode
from minikafka.cli import placement
from minikafka.cli.progress import Amount, Progress
from minikafka.cli.target import (
    bootstrap_option,
    bootstrap_servers,
    data_option,
    fail_unless,
    json_option,
    pairs,
    run,
)
from minikafka.cli.topic_view import as_json_topic, find, lines
from minikafka.client import Client, NewTopic, Outcome
from minikafka.client.admin import POLL_MS, Admin
from minikafka.runtime.clock import SystemClock

T = TypeVar("T")
assignment_option = click.option(
    "--replica-assignment",
    "assignment",
    metavar="1:2:3,2:3:1",
    help="Brokers of each partition by hand, the preferred one first.",
)


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), help="Default: the broker's.")
@click.option("--replication-factor", type=click.IntRange(1), help="Default: the broker's.")
@assignment_option
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", callback=pairs, help="A setting."
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
    if assignment and (partitions or replication_factor):
        raise click.UsageError(
            "give --replica-assignment, or --partitions and --replication-factor, not both"
        )
    by_hand = placement.manual_assignment(assignment) if assignment else {}
    topic = NewTopic(name, partitions or -1, replication_factor or -1, configs, by_hand)

    async def work(admin: Admin) -> dict[str, Outcome]:
        return await admin.create_topics([topic])

    _report(_run(work, bootstrap, data), as_json, "Created topic {}.")


@topics.command("list")
@bootstrap_option
@data_option
@json_option
def list_(bootstrap: str | None, data: str | None, as_json: bool) -> None:
    """Names of all topics, one a line."""

    async def work(admin: Admin) -> list[str]:
        return [topic.name for topic in (await admin.describe())[1]]

    names = _run(work, bootstrap, data)
    if as_json:
        click.echo(json.dumps(names))
    else:
        for name in names:
            click.echo(name)


@topics.command()
@click.argument("names", nargs=-1)
@click.option("--under-replicated", is_flag=True, help="Only partitions that miss replicas.")
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
    """Partitions, leaders, replicas and ISRs of the topics NAMES (default: all)."""
    found = _run(lambda admin: find(admin, names), bootstrap, data)
    filtered = under_replicated or unavailable
    if filtered:
        found = found.only(under_replicated=under_replicated, unavailable=unavailable)
    if as_json:
        click.echo(json.dumps([as_json_topic(topic, found) for topic in found.topics]))
    else:
        for topic in found.topics:
            for line in lines(topic, found, with_header=not filtered):
                click.echo(line)


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), required=True, help="How many in all.")
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
    """Give the topic NAME more partitions; `--replica-assignment` places the new ones."""
    by_hand = list(placement.manual_assignment(assignment).values()) if assignment else []

    async def work(admin: Admin) -> dict[str, Outcome]:
        return await admin.create_partitions({name: partitions}, {name: by_hand})

    _report(_run(work, bootstrap, data), as_json, f"Topic {{}} has {partitions} partitions.")


@topics.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--wait", is_flag=True, help="Return when no broker has anything of them any more.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="With --wait: wait no longer; the deletion goes on.",
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
    """Delete the topics NAMES: they are marked, and the controller deletes them."""
    if timeout and not wait:
        raise click.UsageError("--timeout belongs to --wait")

    async def work(admin: Admin) -> dict[str, Outcome]:
        outcomes = await admin.delete_topics(names)
        if wait:
            marked = [name for name, outcome in outcomes.items() if outcome.ok]
            outcomes |= await _wait_until_gone(admin, marked, timeout, shown=not as_json)
        return outcomes

    done = "Topic {} is deleted." if wait else "Topic {} is marked for deletion."
    _report(_run(work, bootstrap, data), as_json, done)


async def _wait_until_gone(
    admin: Admin, names: list[str], timeout: float | None, *, shown: bool
) -> dict[str, Outcome]:
    """REQUEST_TIMED_OUT for those that are still there."""
    clock = SystemClock()
    left = names
    most: dict[str, int] = {}
    try:
        async with asyncio.timeout(timeout):
            with Progress(clock, "topics deleted", shown=shown) as progress:
                while left := await _still_there(admin, left):
                    replicas = await _replicas_left(admin, left)
                    most |= {name: max(most.get(name, 0), replicas[name]) for name in left}
                    amounts = {
                        name: Amount(most[name] - replicas[name], most[name] or None)
                        for name in left
                    }
                    progress.update(amounts, len(names) - len(left))
                    await clock.sleep(POLL_MS)
    except TimeoutError:
        reason = "the deletion goes on; a broker that is away holds it up until it is back"
        return dict.fromkeys(left, Outcome(ErrorCode.REQUEST_TIMED_OUT, reason))
    return {}


async def _still_there(admin: Admin, names: Iterable[str]) -> list[str]:
    """Those names that could not be given to a new topic: the mark, or something of the old one, is there."""
    probes = [NewTopic(name, 1, 1) for name in names]
    outcomes = await admin.create_topics(probes, validate_only=True)
    return [name for name, o in outcomes.items() if o.code is ErrorCode.TOPIC_ALREADY_EXISTS]


async def _replicas_left(admin: Admin, names: list[str]) -> dict[str, int]:
    """How many replicas live brokers still have of each."""
    counts = dict.fromkeys(names, 0)
    for dirs in (await admin.describe_log_dirs()).values():
        for tp in (tp for directory in dirs for tp in directory.sizes):
            if tp.topic in counts:
                counts[tp.topic] += 1
    return counts


def _run(
    work: Callable[[Admin], Coroutine[Any, Any, T]], bootstrap: str | None, data: str | None
) -> T:
    async def with_client(servers: str) -> T:
        async with Client(servers) as client:
            return await work(client.admin)

    return run(with_client(bootstrap_servers(bootstrap, data)))


def _report(outcomes: Mapping[str, Outcome], as_json: bool, done: str) -> None:
    """A line per topic that was done, an error line for each other; ends with exit code 1 if there is one."""
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
            click.echo(done.format(name))
    fail_unless(all(outcome.ok for outcome in outcomes.values()))
