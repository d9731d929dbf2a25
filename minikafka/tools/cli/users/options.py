"""The option that names SCRAM mechanisms, and the report about each user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Final

import click

import minikafka.client as clients
from minikafka.security.scram import BY_NAME
from minikafka.tools.cli.execution.running import fail_unless
from minikafka.tools.cli.terminal.columns import Column, failure, objects
from minikafka.tools.cli.terminal.echo import echo, show

_OUTCOME: Final = (Column("", "user", itemgetter(0)), *failure(itemgetter(1)))


def mechanism_option(
    text: str, *default: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option of mechanisms, passed as `mechanisms`."""
    return click.option(
        "--mechanism",
        "mechanisms",
        type=click.Choice(list(BY_NAME)),
        multiple=True,
        default=default,
        help=text,
    )


def report(outcomes: Mapping[str, clients.Outcome], done: str) -> None:
    """Print a line for each user. Exit with code 1 if one has failed. `done`: the text with `{}` for the name."""
    show(
        objects(_OUTCOME, outcomes.items()),
        [done.replace("{}", user, 1) for user, outcome in outcomes.items() if outcome.ok],
    )
    report_failures(outcomes)


def report_failures(outcomes: Mapping[str, clients.Outcome]) -> None:
    """Print each failure on standard error, and exit with code 1 if there is one."""
    for user, outcome in outcomes.items():
        if not outcome.ok:
            echo(f"minikafka: {outcome.code.name}: {user}: {outcome.reason}", err=True)
    fail_unless(all(outcome.ok for outcome in outcomes.values()))
