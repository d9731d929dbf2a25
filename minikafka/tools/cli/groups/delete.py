"""`groups delete`."""

from __future__ import annotations

from operator import itemgetter

import click

import minikafka.client as clients
from minikafka.base.errors import ErrorCode
from minikafka.base.meanings import meaning
from minikafka.tools.cli.arguments.options import client_options, groups_argument
from minikafka.tools.cli.execution.running import fail_unless, run_with_client, tell_causes_of
from minikafka.tools.cli.groups.named import REASONS, named, reason
from minikafka.tools.cli.terminal.columns import Column, failure, objects
from minikafka.tools.cli.terminal.echo import echo, show, wants_json
from minikafka.tools.cli.terminal.topic_errors import similar_groups


@click.command()
@groups_argument
@client_options
def delete(groups: tuple[str, ...], all_groups: bool) -> None:
    """Delete each GROUP with its offsets; a group with members is refused."""

    similar: dict[str, str] = {}

    async def work(client: clients.Client) -> dict[str, clients.Outcome]:
        found = await client.groups.delete(await named(client, groups))
        for name, outcome in found.items():
            if outcome.code is ErrorCode.GROUP_ID_NOT_FOUND:
                similar[name] = await similar_groups(client, name)
        return found

    outcomes = run_with_client(work)
    columns = (Column("", "group", itemgetter(0)), *failure(itemgetter(1), reason))
    show(objects(columns, outcomes.items()))
    for name, outcome in outcomes.items():
        if not outcome.ok:
            _complain(outcome.code, name, similar.get(name, ""))
        elif not wants_json():
            echo(f"Deleted group {name}.")
    tell_causes_of(outcomes.values())
    fail_unless(all(outcome.ok for outcome in outcomes.values()))


def _complain(code: ErrorCode, name: str, more: str = "") -> None:
    reason = REASONS.get(code) or meaning(code)
    echo(f"minikafka: {code.name}: {name}: {reason}{more}", err=True)
