"""The transactional ids that a command names, and the errors about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps

import click

import minikafka.client as clients
from minikafka.base.errors import ErrorCode
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.terminal.echo import echo
from minikafka.tools.cli.terminal.topic_errors import did_you_mean


def ids_argument(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with TRANSACTIONAL-ID… (or `--transactional-id ID`), which is passed as `ids`."""

    @click.argument(
        "words", nargs=-1, metavar="[TRANSACTIONAL-ID]...", shell_complete=completion.transactions
    )
    @click.option(
        "--transactional-id",
        "named",
        multiple=True,
        metavar="ID",
        help="Same as TRANSACTIONAL-ID; may be repeated.",
        shell_complete=completion.transactions,
    )
    @wraps(command)
    def with_ids(words: tuple[str, ...], named: tuple[str, ...], **rest: object) -> None:
        ids = tuple(dict.fromkeys((*words, *named)))
        if not all(ids or [""]):
            raise click.UsageError("name at least one TRANSACTIONAL-ID, and none that is empty")
        command(ids=ids, **rest)

    return with_ids


async def similar_ids(client: clients.Client, outcomes: Mapping[str, clients.Outcome]) -> str:
    """Return a hint with transactional ids that are similar to the unknown ones; "" without unknown ones."""
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    unknown = [name for name, outcome in outcomes.items() if outcome.code is code]
    if not unknown:
        return ""
    known = [one.transactional_id for one in await client.transactions.list_transactions()]
    return did_you_mean([name for name in unknown if name not in known], known)


def print_failures(outcomes: Mapping[str, clients.Outcome], similar: str) -> None:
    """Print a line on standard error for each id whose request failed. `similar`: a hint for the user."""
    for name, outcome in outcomes.items():
        if not outcome.ok:
            hint = f"; {similar}" if similar else ""
            echo(f"minikafka: {outcome.code.name}: {name}: {outcome.reason}{hint}", err=True)
