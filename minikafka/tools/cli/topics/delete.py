"""`topics delete`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import click

import minikafka.client as clients
import minikafka.client.administration.admin as admins
import minikafka.tools.cli.terminal.progress as displays
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers
from minikafka.tools.cli.arguments.options import connection_options, topics_argument
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.execution.waiting import WORK_MS, Blocked
from minikafka.tools.cli.terminal.echo import json_option, wants_json
from minikafka.tools.cli.terminal.topic_errors import with_similar_topics
from minikafka.tools.cli.topics.outcomes import report


@click.command()
@topics_argument(required=True)
@click.option("--wait", is_flag=True, help="Wait until no broker holds a replica of the topics.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Fail if the command has not ended after this time; the deletion continues.",
)
@connection_options
@json_option
def delete(
    topics: tuple[str, ...],
    wait: bool,
    timeout: float | None,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Mark each TOPIC for deletion; the brokers then delete them."""

    async def work(client: clients.Client) -> dict[str, clients.Outcome]:
        found = await _delete(client.admin, topics, wait, timeout, shown=not wants_json())
        return await with_similar_topics(client.admin, found)

    outcomes = run_with_client(work, bootstrap_servers(bootstrap, data))
    done = "Topic {} is deleted." if wait else "Topic {} is marked for deletion."
    report(outcomes, done)


async def _delete(
    admin: clients.Admin, names: tuple[str, ...], wait: bool, timeout: float | None, *, shown: bool
) -> dict[str, clients.Outcome]:
    """Mark topics for deletion; if `wait` is set, wait until the topics are gone. Return the outcomes by name.

    `timeout`: maximum time in seconds, None for no limit. After this time, the outcome is REQUEST_TIMED_OUT for
    each topic that still exists, or for all topics if there was no answer.
    """
    outcomes = dict.fromkeys(
        names, clients.Outcome(ErrorCode.REQUEST_TIMED_OUT, "there was no answer")
    )
    left: set[str] = set()
    try:
        async with asyncio.timeout(timeout):
            outcomes = await admin.delete_topics(names)
            if wait:
                left |= {name for name, outcome in outcomes.items() if outcome.ok}
                await _wait_until_deleted(admin, left, shown=shown)
    except TimeoutError:
        reason = "the deletion continues; it cannot finish while a broker with a replica is down"
        outcomes |= dict.fromkeys(left, clients.Outcome(ErrorCode.REQUEST_TIMED_OUT, reason))
    return outcomes


async def _wait_until_deleted(admin: clients.Admin, left: set[str], *, shown: bool) -> None:
    """Wait until the topics in `left` are gone; remove each deleted topic from `left`. `shown`: show progress."""
    clock, blocked = SystemClock(), Blocked()
    total = len(left)
    most = dict.fromkeys(left, 0)
    due = clock.now() + WORK_MS
    with displays.Progress(clock, "topics deleted", shown=shown) as progress:
        while existing := await _still_existing(admin, left):
            left.intersection_update(existing)
            replicas = await _replica_counts(admin, existing)
            most |= {name: max(most[name], replicas[name]) for name in existing}
            first = {name: TopicPartition(name, 0) for name in existing}
            reasons = await blocked.reasons(first.values()) if clock.now() >= due else {}
            amounts = {
                name: displays.Amount(
                    most[name] - replicas[name],
                    most[name] or None,
                    reasons.get(str(first[name]), ""),
                )
                for name in existing
            }
            progress.update(amounts, total - len(left))
            await clock.sleep(admins.POLL_MS)
        left.clear()


async def _still_existing(admin: clients.Admin, names: Iterable[str]) -> list[str]:
    """Return the topics whose deletion has not finished.

    For these topics, a CreateTopics request with `validate_only` fails with TOPIC_ALREADY_EXISTS.
    """
    probes = [clients.NewTopic(name, 1, 1) for name in names]
    outcomes = await admin.create_topics(probes, validate_only=True)
    return [name for name, o in outcomes.items() if o.code is ErrorCode.TOPIC_ALREADY_EXISTS]


async def _replica_counts(admin: clients.Admin, names: list[str]) -> dict[str, int]:
    """Return by topic the number of replicas that live brokers still have."""
    counts = dict.fromkeys(names, 0)
    for dirs in (await admin.describe_log_dirs()).values():
        for tp in (tp for directory in dirs for tp in directory.sizes):
            if tp.topic in counts:
                counts[tp.topic] += 1
    return counts
