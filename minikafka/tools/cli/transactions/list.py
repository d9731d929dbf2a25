"""`transactions list`."""

from __future__ import annotations

from operator import attrgetter
from typing import Final, NamedTuple

import click

import minikafka.client as clients
import minikafka.client.administration.transaction_admin as transaction_admin
from minikafka.client.administration.transaction_admin import TransactionListing
from minikafka.deciders.transactions.states import TransactionState
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.columns import Column, lines, objects
from minikafka.tools.cli.terminal.echo import show

STATES: Final = tuple(state.value for state in TransactionState)


_OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states of ids with a transaction that is open or ending."""


class Listed(NamedTuple):
    """A transactional id. `age_ms`: how long its transaction has been open; None if no transaction is open."""

    listing: TransactionListing
    age_ms: int | None


def _age(ms: int | None) -> str:
    """Return an age as text, for example `35s`, `12m` or `3h`; "-" if it is not known."""
    if ms is None:
        return "-"
    seconds = ms // 1000
    if seconds < 120:
        return f"{seconds}s"
    return f"{seconds // 60}m" if seconds < 7_200 else f"{seconds // 3_600}h"


LISTING: Final = (
    Column("TransactionalId", "transactional_id", attrgetter("listing.transactional_id")),
    Column("Coordinator", "coordinator", attrgetter("listing.coordinator")),
    Column("ProducerId", "producer_id", attrgetter("listing.producer_id")),
    Column("TransactionState", "state", attrgetter("listing.state")),
    Column("Age", "age_ms", attrgetter("age_ms"), text=_age),
)
"""A row is a `Listed`. The age is a column that Kafka's tool lacks."""


def _states(context: click.Context, option: click.Parameter, text: str | None) -> list[str]:
    """Parse a list of states, ignoring case; return them in Kafka's spelling. Raises BadParameter."""
    known = {name.lower(): name for name in STATES}
    words = [word.strip() for word in text.split(",")] if text else []
    for word in words:
        if word.lower() not in known:
            problem = f"{word!r} is not a state: give some of {', '.join(STATES)}"
            raise click.BadParameter(problem, context, option)
    return [known[word.lower()] for word in words]


@click.command("list")
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
@client_options
def list_(states: list[str], producer_ids: tuple[int, ...], duration_filter: int) -> None:
    """Print every transactional id with its coordinator, producer id, state, and how long its transaction is open."""

    async def work(
        client: clients.Client,
    ) -> tuple[list[transaction_admin.TransactionListing], dict[str, int | None]]:
        found = await client.transactions.list_transactions(states, producer_ids, duration_filter)
        wanted = [one.transactional_id for one in found if one.state in _OPEN_STATES]
        described = await client.transactions.describe(wanted) if wanted else {}
        starts = {name: result.found.start_ms for name, result in described.items() if result.found}
        return found, starts

    found, starts = run_with_client(work)
    now = SystemClock().wall_ms()
    started = {name: start for name, start in starts.items() if start is not None}
    ages = {name: max(now - start, 0) for name, start in started.items()}
    rows = [Listed(one, ages.get(one.transactional_id)) for one in found]
    show(objects(LISTING, rows), lines(LISTING, rows))
