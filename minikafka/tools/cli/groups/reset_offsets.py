"""`groups reset-offsets`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import minikafka.client as clients
import minikafka.tools.cli.groups.reset_plan as reset_plans
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.arguments.options import client_options, groups_argument
from minikafka.tools.cli.execution.running import fail_unless, run_with_client
from minikafka.tools.cli.groups.named import named, topic_scope_option
from minikafka.tools.cli.groups.offset_resets import (
    PLAN,
    Scenario,
    TopicScope,
    chosen_scenario,
    parse_datetime,
    parse_duration,
    plan_rows,
    write_csv,
)
from minikafka.tools.cli.terminal.columns import lines, objects
from minikafka.tools.cli.terminal.echo import echo, echo_data, show, wants_json


@click.command("reset-offsets")
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
@client_options
def reset_offsets(
    groups: tuple[str, ...],
    all_groups: bool,
    scopes: list[TopicScope],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    export: bool,
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

    plan, succeeded = run_with_client(work)
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


def _warn(text: str) -> None:
    echo(f"minikafka: {text}", err=True)
