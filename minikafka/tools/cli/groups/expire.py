"""`groups expire`."""

from __future__ import annotations

from operator import itemgetter
from typing import Final

import click

from minikafka.tools.cli.arguments.completion import groups as complete_groups
from minikafka.tools.cli.arguments.find_cluster import find_running_cluster
from minikafka.tools.cli.arguments.options import needs_machine, timeout_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.terminal.columns import Column, lines, objects
from minikafka.tools.cli.terminal.echo import json_option, show

_COLUMNS: Final = (
    Column("GROUP", "group", itemgetter(0)),
    Column("TOPIC", "topic", lambda row: row[1].topic),
    Column("PARTITION", "partition", lambda row: row[1].partition),
    Column("OFFSET", "offset", itemgetter(2)),
)


@click.command()
@click.argument("group", shell_complete=complete_groups)
@needs_machine("asks every broker")
@timeout_option
@json_option
def expire(group: str, data: str | None) -> None:
    """Let all committed offsets of GROUP expire now, and print them; a group with members is refused."""
    gone = run(find_running_cluster(data).expire_group(group))
    rows = [(group, tp, offset) for tp, offset in sorted(gone.offsets.items())]
    show(objects(_COLUMNS, rows), lines(_COLUMNS, rows))
