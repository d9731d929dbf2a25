"""`configs describe`."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import click

import minikafka.client as clients
import minikafka.client.administration.results as administration
from minikafka.base.errors import KafkaError
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.configs.resource import (
    as_json_resource,
    reason_of,
    require,
    resource_options,
    title,
)
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.columns import Column, objects
from minikafka.tools.cli.terminal.echo import show


@click.command()
@resource_options
@click.option(
    "--all", "all_", is_flag=True, help="Also show settings that have their default value."
)
@client_options
def describe(resource: administration.Resource, all_: bool) -> None:
    """Show settings that were changed from their defaults; with --all, every setting."""

    async def work(client: clients.Client) -> administration.Settings:
        await require(client, resource)
        return (await client.admin.describe_configs([resource], synonyms=True))[resource]

    found = run_with_client(work)
    if not found.outcome.ok:
        raise KafkaError(found.outcome.code, reason_of(resource, found.outcome))
    entries = sorted(
        entry
        for entry in found.entries
        if all_ or entry.source is not administration.ConfigSource.DEFAULT_CONFIG
    )
    head = f"{'All' if all_ else 'Changed'} configs of {title(resource)}:"
    show(
        {**as_json_resource(resource), "configs": objects(_SETTING, entries)},
        [head, *map(line, entries)],
    )


def line(entry: administration.Setting) -> str:
    """Return one setting in the format of kafka-configs.sh, with its sources in order of precedence."""
    value = "(sensitive)" if entry.sensitive else _text(entry.value)
    synonyms = ", ".join(
        f"{s.source.name}:{s.name}={'(sensitive)' if entry.sensitive else _text(s.value)}"
        for s in entry.synonyms
    )
    read_only = " read-only" if entry.read_only else ""
    return f"  {entry.name}={value}{read_only} source={entry.source.name} synonyms={{{synonyms}}}"


_SYNONYM: Final = (
    Column("", "name", attrgetter("name")),
    Column("", "value", attrgetter("value")),
    Column("", "source", attrgetter("source.name")),
)
_SETTING: Final = (
    *_SYNONYM,
    Column("", "read_only", attrgetter("read_only")),
    Column("", "sensitive", attrgetter("sensitive")),
    Column("", "synonyms", lambda entry: objects(_SYNONYM, entry.synonyms)),
)
"""The columns of the JSON; the text has the format of kafka-configs.sh, see `line`."""


def _text(value: str | None) -> str:
    return "null" if value is None else value
