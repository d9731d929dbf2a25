"""`topics create | list | describe | alter | delete | delete-records`, over the Kafka protocol.

Exit code 1 if a named topic does not exist, or if the request about the topic was refused. The reason is
printed, and the other named topics are still processed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Final

import click

import minikafka.client as clients
import minikafka.client.administration.admin as admins
import minikafka.client.administration.results as administration
import minikafka.tools.cli.terminal.progress as displays
import minikafka.tools.cli.topics.view as topic_views
from minikafka.base.config.keys import LONG_MAX
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.arguments import placement
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers
from minikafka.tools.cli.arguments.options import (
    EXISTING_FILE,
    bootstrap_option,
    data_option,
    key_value_pairs,
    timeout_option,
    topic_argument,
    topics_argument,
)
from minikafka.tools.cli.arguments.partition_arguments import (
    Named,
    partitions_argument,
    partitions_of,
)
from minikafka.tools.cli.execution.running import fail_unless, run_with_client, tell_causes_of
from minikafka.tools.cli.execution.waiting import WORK_MS, Blocked
from minikafka.tools.cli.terminal.columns import Column, failure, labelled, objects
from minikafka.tools.cli.terminal.command_group import CommandGroup
from minikafka.tools.cli.terminal.echo import echo, json_option, show, wants_json
from minikafka.tools.cli.terminal.topic_errors import require_partitions, with_similar_topics

_HIGH_WATERMARK: Final = -1


@click.command("delete-records", short_help="Delete records from the start of partitions.")
@partitions_argument
@click.option(
    "--before-offset",
    type=click.IntRange(_HIGH_WATERMARK, LONG_MAX),
    metavar="N",
    help="First offset to keep; -1 deletes all committed records.",
)
@click.option(
    "--offset-json-file",
    "file",
    type=EXISTING_FILE,
    metavar="FILE",
    help="JSON file of Kafka's kafka-delete-records.",
)
@bootstrap_option
@data_option
@timeout_option
@json_option
def delete_records(
    named: Named,
    before_offset: int | None,
    file: str | None,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Delete the records below an offset in each named partition, on all live replicas."""
    _check(named, before_offset, file)
    before = placement.offsets_file(file) if file else {}

    async def work(client: clients.Client) -> dict[TopicPartition, administration.DeletedRecords]:
        if before_offset is not None:
            whole = await partitions_of(client.admin, named.topics) if named.topics else ()
            before.update(dict.fromkeys((*named.partitions, *whole), before_offset))
        await require_partitions(client.admin, before)
        return await client.admin.delete_records(before)

    results = run_with_client(work, bootstrap_servers(bootstrap, data))
    show(objects(_DELETED, sorted(results.items())), lambda: _print(results, before))
    tell_causes_of(deleted.outcome for deleted in results.values())
    fail_unless(all(deleted.outcome.ok for deleted in results.values()))


def _check(named: Named, before_offset: int | None, file: str | None) -> None:
    """Raise UsageError unless exactly one is given: partitions with --before-offset, or --offset-json-file."""
    if file is not None and (any(named) or before_offset is not None):
        raise click.UsageError(
            "--offset-json-file cannot be combined with partitions or --before-offset"
        )
    if file is None and (not any(named) or before_offset is None):
        raise click.UsageError(
            "name the partitions and the first offset to keep: t-0 --before-offset 100, "
            "or --offset-json-file FILE"
        )


_DELETED: Final = (
    Column("partition", "", itemgetter(0)),
    Column("", "topic", lambda row: row[0].topic),
    Column("", "partition", lambda row: row[0].partition),
    Column(
        "low_watermark",
        "low_watermark",
        lambda row: row[1].low_watermark if row[1].outcome.ok else None,
    ),
    *failure(lambda row: row[1].outcome),
)


def _print(
    results: Mapping[TopicPartition, administration.DeletedRecords],
    before: Mapping[TopicPartition, int],
) -> None:
    """Print one line per partition, in the format of kafka-delete-records; remarks on standard error.

    `before`: the requested offsets.
    """
    for tp, deleted in sorted(results.items()):
        outcome, low_watermark = deleted
        if not outcome.ok:
            echo(f"minikafka: {outcome.code.name}: {_reason(tp, outcome)}", err=True)
            continue
        echo(labelled(_DELETED, (tp, deleted)))
        if before[tp] != _HIGH_WATERMARK and before[tp] < low_watermark:
            remark = f"nothing was deleted: its log begins at offset {low_watermark} already"
            echo(f"minikafka: {tp}: {remark}", err=True)


def _reason(tp: TopicPartition, outcome: clients.Outcome) -> str:
    if outcome.reason.startswith(f"{tp.topic}: "):
        return f"{tp}: there is no topic {tp.topic}"
    return outcome.reason if str(tp) in outcome.reason else f"{tp}: {outcome.reason}"


_REASONS: Final = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic"}
"""Explanations of errors for which a broker sends no message; other codes have their usual meaning."""

assignment_option = click.option(
    "--replica-assignment",
    "assignment",
    metavar="1:2:3,2:3:1",
    help="Brokers of each new partition, the preferred leader first.",
)


@click.group(cls=CommandGroup)
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


topics.add_command(delete_records)


@topics.command()
@topic_argument
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Number of partitions (default: the broker's num.partitions).",
)
@click.option(
    "-r",
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
@click.option(
    "--if-not-exists", is_flag=True, help="Succeed if the topic exists; leave it unchanged."
)
@bootstrap_option
@data_option
@timeout_option
@json_option
def create(
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    assignment: str | None,
    configs: dict[str, str],
    if_not_exists: bool,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Create TOPIC."""
    if assignment and (partitions or replication_factor):
        raise click.UsageError(
            "give --replica-assignment, or --partitions and --replication-factor, not both"
        )
    replicas = placement.manual_assignment(assignment) if assignment else {}
    wanted = clients.NewTopic(topic, partitions or -1, replication_factor or -1, configs, replicas)

    async def work(client: clients.Client) -> dict[str, clients.Outcome]:
        return await client.admin.create_topics([wanted])

    outcomes = run_with_client(work, bootstrap_servers(bootstrap, data))
    done = "Created topic {}."
    if if_not_exists and outcomes[topic].code is ErrorCode.TOPIC_ALREADY_EXISTS:
        outcomes, done = {topic: clients.Outcome(ErrorCode.NONE)}, "Topic {} already exists."
    _report(outcomes, done)


@topics.command("list")
@click.option("--exclude-internal", is_flag=True, help="Leave out the topics of coordinators.")
@bootstrap_option
@data_option
@timeout_option
@json_option
def list_(exclude_internal: bool, bootstrap: str | None, data: str | None) -> None:
    """Print the names of all topics, one per line."""

    async def work(client: clients.Client) -> list[str]:
        found = (await client.admin.describe())[1]
        return [t.name for t in found if not (exclude_internal and t.is_internal)]

    names = run_with_client(work, bootstrap_servers(bootstrap, data))
    show(names, names)


@topics.command(short_help="Show partitions, leaders, replicas and ISRs.")
@topics_argument(required=False)
@click.option(
    "--under-replicated", is_flag=True, help="Only partitions with a replica outside the ISR."
)
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@bootstrap_option
@data_option
@timeout_option
@json_option
def describe(
    topics: tuple[str, ...],
    under_replicated: bool,
    unavailable: bool,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Show partitions, leaders, replicas and ISRs of each TOPIC (default: all)."""

    async def work(client: clients.Client) -> topic_views.TopicsView:
        return await topic_views.read_topics(client.admin, topics)

    view = run_with_client(work, bootstrap_servers(bootstrap, data))
    filtered = under_replicated or unavailable
    if filtered:
        view = view.only(under_replicated=under_replicated, unavailable=unavailable)
    show(
        [topic_views.as_json_topic(topic, view) for topic in view.topics],
        (
            line
            for t in view.topics
            for line in topic_views.lines(t, view, with_header=not filtered)
        ),
    )


@topics.command()
@topic_argument
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="The new number of partitions; larger than the current one.",
)
@assignment_option
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    callback=key_value_pairs,
    help="A topic setting to change; may be repeated.",
)
@bootstrap_option
@data_option
@timeout_option
@json_option
def alter(
    topic: str,
    partitions: int | None,
    assignment: str | None,
    configs: dict[str, str],
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Change settings of TOPIC, or add partitions to it.

    If a setting is refused, nothing is changed.
    """
    if not (partitions or configs):
        raise click.UsageError("give --partitions N, or --config KEY=VALUE, or both")
    if assignment and not partitions:
        raise click.UsageError("--replica-assignment can only be used with --partitions")
    replicas = list(placement.manual_assignment(assignment).values()) if assignment else []

    async def work(client: clients.Client) -> dict[str, clients.Outcome]:
        if configs and not (outcome := await _configure(client.admin, topic, configs)).ok:
            return await with_similar_topics(client.admin, {topic: outcome})
        if partitions is None:
            return {topic: outcome}
        found = await client.admin.create_partitions({topic: partitions}, {topic: replicas})
        return await with_similar_topics(client.admin, found)

    outcomes = run_with_client(work, bootstrap_servers(bootstrap, data))
    now = [f"{partitions} partitions"] if partitions else []
    now += [f"{key}={value}" for key, value in configs.items()]
    _report(outcomes, "Topic {} has " + ", ".join(now) + ".")


async def _configure(admin: clients.Admin, topic: str, configs: dict[str, str]) -> clients.Outcome:
    resource = administration.Resource(administration.ResourceType.TOPIC, topic)
    return (await admin.alter_configs({resource: configs}))[resource]


@topics.command(short_help="Mark topics for deletion.")
@topics_argument(required=True)
@click.option("--wait", is_flag=True, help="Wait until no broker holds a replica of the topics.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Fail if the command has not ended after this time; the deletion continues.",
)
@bootstrap_option
@data_option
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
    _report(outcomes, done)


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


_OUTCOME: Final = (Column("", "topic", itemgetter(0)), *failure(itemgetter(1)))


def _report(outcomes: Mapping[str, clients.Outcome], success: str) -> None:
    """Print one line per topic or one JSON array, failures on standard error.

    Exit with code 1 if there is a failure. `success`: the text for a topic without failure, with `{}` in
    place of the topic name.
    """
    show(objects(_OUTCOME, outcomes.items()))
    for name, outcome in outcomes.items():
        if not outcome.ok:
            reason = outcome.message or _REASONS.get(outcome.code, outcome.reason)
            echo(f"minikafka: {outcome.code.name}: {name}: {reason}", err=True)
        elif not wants_json():
            echo(success.replace("{}", name, 1))
    tell_causes_of(outcomes.values())
    fail_unless(all(outcome.ok for outcome in outcomes.values()))
