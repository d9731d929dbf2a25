"""`groups list`."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import click

import minikafka.client as clients
import minikafka.client.administration.group_admin as group_admin
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.columns import Column, lines, objects
from minikafka.tools.cli.terminal.echo import show

STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")


@click.command("list")
@click.option(
    "--state",
    "states",
    is_flag=False,
    flag_value="",
    metavar="[STATE,...]",
    help="Show the state of each group; with states, such as Stable,Empty, only groups in one of them.",
)
@client_options
def list_(states: str | None) -> None:
    """Print the names of all consumer groups, one per line."""
    wanted = _states(states)

    async def work(client: clients.Client) -> list[group_admin.GroupListing]:
        return await client.groups.list_groups(wanted)

    found = run_with_client(work)
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
