"""`groups list | describe | delete | reset-offsets | delete-offsets`: the functions of kafka-consumer-groups.

The tables have the columns of Kafka's tool. Exit code 1 if a named group does not exist, or if a request
about the group was refused. The reason is printed, and the other groups are still processed.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Final

import click

import minikafka.client as clients
import minikafka.client.administration.group_admin as group_admin
import minikafka.tools.cli.groups.reset_plan as reset_plans
import minikafka.tools.cli.groups.view as group_views
from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.base.meanings import meaning
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers
from minikafka.tools.cli.arguments.options import (
    bootstrap_option,
    data_option,
    groups_argument,
    timeout_option,
)
from minikafka.tools.cli.execution.running import fail_unless, run_with_client, tell_causes_of
from minikafka.tools.cli.groups.offset_resets import (
    PLAN,
    Scenario,
    TopicScope,
    chosen_scenario,
    parse_datetime,
    parse_duration,
    parse_scopes,
    plan_rows,
    write_csv,
)
from minikafka.tools.cli.terminal.columns import Column, failure, lines, objects
from minikafka.tools.cli.terminal.command_group import CommandGroup
from minikafka.tools.cli.terminal.echo import echo, echo_data, json_option, show, wants_json
from minikafka.tools.cli.terminal.topic_errors import similar_groups
from minikafka.tools.cli.terminal.watch import watch_options

STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
REASONS: Final = {
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop its consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group has members that read the topic; stop them first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; stop its consumers first",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
}


@click.group(cls=CommandGroup)
def groups() -> None:
    """Show consumer groups and their lag, delete them, and reset or delete their offsets."""


@groups.command("list")
@click.option(
    "--state",
    "states",
    is_flag=False,
    flag_value="",
    metavar="[STATE,...]",
    help="Show the state of each group; with states, such as Stable,Empty, only groups in one of them.",
)
@bootstrap_option
@data_option
@timeout_option
@json_option
def list_(states: str | None, bootstrap: str | None, data: str | None) -> None:
    """Print the names of all consumer groups, one per line."""
    wanted = _states(states)

    async def work(client: clients.Client) -> list[group_admin.GroupListing]:
        return await client.groups.list_groups(wanted)

    found = run_with_client(work, bootstrap_servers(bootstrap, data))
    width = max([15, *(len(listing.group) for listing in found)]) + 10
    columns = (
        Column("GROUP", "group", attrgetter("group"), width),
        Column("STATE", "state", attrgetter("state")),
    )
    names = [listing.group for listing in found]
    show(objects(columns, found), names if states is None else lines(columns, found))


def _states(text: str | None) -> list[str]:
    """Parse a list of group states, ignoring case; return them in Kafka's spelling. Raises BadParameter."""
    known = {name.lower(): name for name in STATES}
    words = [word.strip() for word in text.split(",")] if text else []
    for word in words:
        if word.lower() not in known:
            problem = f"{word!r} is not a state: give some of {', '.join(STATES)}"
            raise click.BadParameter(problem, param_hint="--state")
    return [known[word.lower()] for word in words]


@groups.command(short_help="Show partitions and lag, members, or the state of groups.")
@groups_argument
@click.option(
    "--offsets", is_flag=True, help="Show each partition with its offsets and lag (default)."
)
@click.option("--members", is_flag=True, help="Show the members.")
@click.option("--state", is_flag=True, help="Show coordinator, assignor, state and size.")
@click.option("--verbose", is_flag=True, help="With --members: show the partitions of each.")
@watch_options
@bootstrap_option
@data_option
@timeout_option
@json_option
def describe(
    groups: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    watch: float | None,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Show the partitions of each GROUP: committed offset, log end offset, lag, and the member that reads them.

    With --json, print one line: an array with an object for each group. With --json and --watch, print such a
    line at each interval.
    """
    if [offsets, members, state].count(True) > 1:
        raise click.UsageError("choose one of --offsets, --members and --state")
    if verbose and not members:
        raise click.UsageError("--verbose can only be used with --members")
    aspect = (
        group_views.Aspect.MEMBERS
        if members
        else group_views.Aspect.STATE
        if state
        else group_views.Aspect.OFFSETS
    )
    look = group_views.GroupSelection(groups, aspect, verbose)

    async def work(client: clients.Client) -> bool:
        if watch is not None:
            await group_views.watch_groups(client, look, watch)
        found = await look.read(client)
        for line in found.remarks:
            echo(line, err=True)
        show(found.result, found.lines)
        return found.has_all

    fail_unless(run_with_client(work, bootstrap_servers(bootstrap, data)))


@groups.command(short_help="Delete groups and their offsets.")
@groups_argument
@bootstrap_option
@data_option
@timeout_option
@json_option
def delete(
    groups: tuple[str, ...],
    all_groups: bool,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Delete each GROUP with its offsets; a group with members is refused."""

    similar: dict[str, str] = {}

    async def work(client: clients.Client) -> dict[str, clients.Outcome]:
        found = await client.groups.delete(await named(client, groups))
        for name, outcome in found.items():
            if outcome.code is ErrorCode.GROUP_ID_NOT_FOUND:
                similar[name] = await similar_groups(client, name)
        return found

    outcomes = run_with_client(work, bootstrap_servers(bootstrap, data))
    columns = (Column("", "group", itemgetter(0)), *failure(itemgetter(1), _reason))
    show(objects(columns, outcomes.items()))
    for name, outcome in outcomes.items():
        if not outcome.ok:
            _complain(outcome.code, name, similar.get(name, ""))
        elif not wants_json():
            echo(f"Deleted group {name}.")
    tell_causes_of(outcomes.values())
    fail_unless(all(outcome.ok for outcome in outcomes.values()))


topic_scope_option = click.option(
    "-t",
    "--topic",
    "scopes",
    multiple=True,
    callback=parse_scopes,
    metavar="TOPIC[:N,...]",
    help="A topic, or some of its partitions; may be repeated.",
    shell_complete=completion.topics,
)


@groups.command(
    "reset-offsets", short_help="Change the committed offsets of groups without members."
)
@groups_argument
@topic_scope_option
@click.option("--all-topics", is_flag=True, help="All partitions with a committed offset.")
@click.option("--to-earliest", is_flag=True, help="To the first record of each partition.")
@click.option("--to-latest", is_flag=True, help="To the end of each partition.")
@click.option(
    "--to-current",
    is_flag=True,
    help="To the committed offset; to the end where there is none. With --export, this saves the offsets.",
)
@click.option("--to-offset", type=click.IntRange(0), metavar="OFFSET", help="To this offset.")
@click.option(
    "--to-datetime",
    callback=parse_datetime,
    metavar="TIME",
    help="To the first record at or after this time: 2026-11-22T13:00:00.000 (UTC, or with a zone), or Unix ms.",
)
@click.option(
    "--by-duration",
    callback=parse_duration,
    metavar="PnDTnHnMnS",
    help="To the first record that is at most this old, for example PT2H30M.",
)
@click.option(
    "--shift-by",
    type=int,
    metavar="N",
    help="By N records from the committed offset, back if N is negative.",
)
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="To the offsets in a file that --export has written.",
)
@click.option("--dry-run", is_flag=True, help="Only show the new offsets (default).")
@click.option("--execute", is_flag=True, help="Commit the new offsets.")
@click.option("--export", is_flag=True, help="Print the new offsets as CSV, for --from-file.")
@bootstrap_option
@data_option
@timeout_option
@json_option
def reset_offsets(
    groups: tuple[str, ...],
    all_groups: bool,
    scopes: list[TopicScope],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    export: bool,
    bootstrap: str | None,
    data: str | None,
    **scenarios: Any,
) -> None:
    """Show new offsets for each GROUP, and with --execute commit them. The group must have no members.

    An offset outside of a log is replaced by the start or end of the log, with a warning. The CSV of --export
    has the lines topic,partition,offset for one group, and group,topic,partition,offset for several.
    """
    scenario = chosen_scenario({name.replace("_", "-"): v for name, v in scenarios.items()})
    _require_scope(scenario, scopes, all_topics=all_topics)
    if dry_run and execute:
        raise click.UsageError("choose one of --dry-run and --execute")
    if export and wants_json():
        raise click.UsageError("choose one of --export and --json")

    async def work(client: clients.Client) -> tuple[dict[str, dict[TopicPartition, int]], bool]:
        reset = reset_plans.Reset(client, scenario, scopes, await named(client, groups), _warn)
        plan, succeeded = await reset.plan()
        return plan, (
            not execute or await reset_plans.apply_plan(client, plan, _warn)
        ) and succeeded

    plan, succeeded = run_with_client(work, bootstrap_servers(bootstrap, data))
    if export:
        for line in write_csv(plan, with_group=len(groups) != 1):
            echo_data(line)
    else:
        rows = plan_rows(plan)
        show(objects(PLAN, rows), lines(PLAN, rows) if rows else ())
        if rows and not execute and not wants_json():
            echo("Nothing was changed: --execute commits these offsets.", err=True)
    fail_unless(succeeded)


def _require_scope(scenario: Scenario, scopes: Sequence[TopicScope], *, all_topics: bool) -> None:
    """Raise UsageError unless exactly one is given: --topic, --all-topics or --from-file."""
    ways = [bool(scopes), all_topics, scenario.name == "from-file"]
    if ways.count(True) != 1:
        raise click.UsageError("name the partitions: --topic T, --all-topics, or --from-file FILE")


@groups.command("delete-offsets", short_help="Delete committed offsets of a group.")
@click.argument("group", shell_complete=completion.groups)
@topic_scope_option
@bootstrap_option
@data_option
@timeout_option
@json_option
def delete_offsets(
    group: str,
    scopes: list[TopicScope],
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Delete the offsets of GROUP for topics that none of its members reads."""
    if not scopes:
        raise click.UsageError("name the partitions: --topic TOPIC, or --topic TOPIC:0,1")

    async def work(client: clients.Client) -> dict[TopicPartition, clients.Outcome]:
        partitions = await reset_plans.find_partitions(client, scopes)
        return await client.groups.delete_offsets(group, partitions)

    try:
        outcomes = run_with_client(work, bootstrap_servers(bootstrap, data))
    except KafkaError as error:
        raise _explained(error, group) from error
    show(objects(_DELETED, outcomes.items()), lines(_DELETED, sorted(outcomes.items())))
    fail_unless(all(outcome.ok for outcome in outcomes.values()))


def _reason(outcome: clients.Outcome) -> str:
    return REASONS.get(outcome.code) or outcome.reason


def _status(outcome: clients.Outcome) -> str:
    if outcome.ok:
        return "Successful"
    return f"Error: {outcome.code.name}: {REASONS.get(outcome.code) or meaning(outcome.code)}"


_DELETED: Final = (
    Column("TOPIC", "topic", lambda row: row[0].topic, 15),
    Column("PARTITION", "partition", lambda row: row[0].partition, 10, False),
    Column("STATUS", "", itemgetter(1), text=_status),
    *failure(itemgetter(1), _reason),
)


async def named(client: clients.Client, groups: Sequence[str]) -> list[str]:
    """Return `groups`; if `groups` is empty, return the names of all groups."""
    if groups:
        return list(groups)
    return [listing.group for listing in await client.groups.list_groups()]


def _explained(error: KafkaError, group: str) -> MinikafkaError:
    if error.detail == f"group {group}":
        return KafkaError(error.code, f"{group}: {REASONS.get(error.code) or meaning(error.code)}")
    return error


def _complain(code: ErrorCode, name: str, more: str = "") -> None:
    reason = REASONS.get(code) or meaning(code)
    echo(f"minikafka: {code.name}: {name}: {reason}{more}", err=True)


def _warn(text: str) -> None:
    echo(f"minikafka: {text}", err=True)
