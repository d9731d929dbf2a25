"""The outcomes of requests about topics, and the options that two commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Final

import click

import minikafka.client as clients
from minikafka.base.errors import ErrorCode
from minikafka.tools.cli.arguments.options import key_value_pairs
from minikafka.tools.cli.execution.running import fail_unless, tell_causes_of
from minikafka.tools.cli.terminal.columns import Column, failure, objects
from minikafka.tools.cli.terminal.echo import echo, show, wants_json

_REASONS: Final = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic"}
"""Explanations of errors for which a broker sends no message; other codes have their usual meaning."""


assignment_option = click.option(
    "--replica-assignment",
    "assignment",
    metavar="1:2:3,2:3:1",
    help="Brokers of each new partition, the preferred leader first.",
)


def partitions_option(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option for the number of partitions, with this help."""
    return click.option("-p", "--partitions", type=click.IntRange(1), metavar="N", help=text)


def config_option(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option for settings, passed as `configs`, with this help."""
    return click.option(
        "--config",
        "configs",
        multiple=True,
        metavar="KEY=VALUE",
        callback=key_value_pairs,
        help=text,
    )


_OUTCOME: Final = (Column("", "topic", itemgetter(0)), *failure(itemgetter(1)))


def report(outcomes: Mapping[str, clients.Outcome], success: str) -> None:
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
