"""`configs describe | set | delete`: settings of a topic, a broker or all brokers, with their sources.

Exit code 1, without any change, when the topic or broker does not exist, or a key or value is refused. A
broker stores keys that it does not know, as Kafka does; `set` warns that these keys have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

import click

import minikafka.client as clients
import minikafka.client.administration.results as administration
from minikafka.base.config import BrokerConfig
from minikafka.base.config.broker import THROTTLES
from minikafka.base.config.keys import unknown_key
from minikafka.base.errors import KafkaError
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers
from minikafka.tools.cli.arguments.options import (
    bootstrap_option,
    data_option,
    key_value_pairs,
    timeout_option,
)
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.command_group import CommandGroup
from minikafka.tools.cli.terminal.echo import echo, json_option, show
from minikafka.tools.cli.terminal.topic_errors import require_topics


@click.group(cls=CommandGroup)
def configs() -> None:
    """Show and change settings of topics and brokers without a restart."""


def _resource(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options --topic, --broker and --brokers-default to a command.

    The user must give exactly one of these options. The command receives it as the argument `resource`.
    """

    @click.option(
        "-t",
        "--topic",
        metavar="TOPIC",
        help="Settings of this topic.",
        shell_complete=completion.topics,
    )
    @click.option(
        "--broker",
        type=click.IntRange(0),
        metavar="ID",
        help="Settings of this broker.",
        shell_complete=completion.brokers,
    )
    @click.option("--brokers-default", is_flag=True, help="Settings that apply to every broker.")
    @wraps(command)
    def with_resource(
        topic: str | None, broker: int | None, brokers_default: bool, **rest: object
    ) -> None:
        if (topic is not None) + (broker is not None) + brokers_default != 1:
            raise click.UsageError("give exactly one of --topic, --broker and --brokers-default")
        if topic is not None:
            resource = administration.Resource(administration.ResourceType.TOPIC, topic)
        else:
            resource = administration.Resource(
                administration.ResourceType.BROKER, "" if broker is None else str(broker)
            )
        command(resource=resource, **rest)

    return with_resource


@configs.command(short_help="Show settings with their sources.")
@_resource
@click.option(
    "--all", "all_", is_flag=True, help="Also show settings that have their default value."
)
@bootstrap_option
@data_option
@timeout_option
@json_option
def describe(
    resource: administration.Resource,
    all_: bool,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Show settings that were changed from their defaults; with --all, every setting."""

    async def work(client: clients.Client) -> administration.Settings:
        await _require(client, resource)
        return (await client.admin.describe_configs([resource], synonyms=True))[resource]

    found = run_with_client(work, bootstrap_servers(bootstrap, data))
    if not found.outcome.ok:
        raise KafkaError(found.outcome.code, _reason(resource, found.outcome))
    entries = sorted(
        entry
        for entry in found.entries
        if all_ or entry.source is not administration.ConfigSource.DEFAULT_CONFIG
    )
    rows = [as_row(entry) for entry in entries]
    head = f"{'All' if all_ else 'Changed'} configs of {title(resource)}:"
    show({**_named(resource), "configs": rows}, [head, *map(line, entries)])


@configs.command("set")
@_resource
@click.argument(
    "settings", nargs=-1, required=True, metavar="KEY=VALUE...", callback=key_value_pairs
)
@bootstrap_option
@data_option
@timeout_option
@json_option
def set_(
    resource: administration.Resource,
    settings: dict[str, str],
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Set each KEY to VALUE; if one is refused, none is changed."""
    _alter(bootstrap_servers(bootstrap, data), resource, settings)
    _warn_of_unknown(resource, settings)


@configs.command(short_help="Remove settings.")
@_resource
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@bootstrap_option
@data_option
@timeout_option
@json_option
def delete(
    resource: administration.Resource,
    keys: tuple[str, ...],
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Remove the settings KEY..., so that the inherited or default values apply again."""
    _alter(bootstrap_servers(bootstrap, data), resource, dict.fromkeys(keys))


def _warn_of_unknown(resource: administration.Resource, names: Iterable[str]) -> None:
    """Print a warning for each unknown key of a broker: the broker stores the key, but the key has no effect.

    Unknown keys of topics need no warning, because they are refused.
    """
    known = [*BrokerConfig.keys(), *THROTTLES]
    for name in names:
        if resource.type is administration.ResourceType.BROKER and name not in known:
            stored = f"minikafka: warning: {name} is stored without effect"
            echo(f"{stored}: {unknown_key(name, known)}", err=True)


async def _require(client: clients.Client, resource: administration.Resource) -> None:
    """Raise UnknownTopics if the resource is a topic that does not exist."""
    if resource.type is administration.ResourceType.TOPIC:
        await require_topics(client.admin, [resource.name])


def _reason(resource: administration.Resource, outcome: clients.Outcome) -> str:
    return outcome.message or f"{title(resource)}: {outcome.reason}"


def _alter(
    servers: str, resource: administration.Resource, changes: Mapping[str, str | None]
) -> None:
    async def work(client: clients.Client) -> list[str]:
        await _require(client, resource)
        unset = await _unset(client, resource, changes)
        outcome = (await client.admin.alter_configs({resource: changes}))[resource]
        if not outcome.ok:
            raise KafkaError(outcome.code, _reason(resource, outcome))
        return unset

    unset = run_with_client(work, servers)
    if unset:
        keys = ", ".join(unset)
        echo(f"minikafka: {title(resource)} had no setting of its own for {keys}", err=True)
    text = f"Completed updating config for {title(resource)}."
    show({**_named(resource), "changed": dict(changes)}, [text])


def title(resource: administration.Resource) -> str:
    """Return a resource as text: `topic t`, `broker 1` or `all brokers`."""
    if not resource.name:
        return "all brokers"
    return f"{resource.type.name.lower()} {resource.name}"


def line(entry: administration.Setting) -> str:
    """Return one setting in the format of kafka-configs.sh, with its sources in order of precedence."""
    value = "(sensitive)" if entry.sensitive else _text(entry.value)
    synonyms = ", ".join(
        f"{s.source.name}:{s.name}={'(sensitive)' if entry.sensitive else _text(s.value)}"
        for s in entry.synonyms
    )
    read_only = " read-only" if entry.read_only else ""
    return f"  {entry.name}={value}{read_only} source={entry.source.name} synonyms={{{synonyms}}}"


def as_row(entry: administration.Setting) -> dict[str, Any]:
    """Return the JSON object of one setting, for `--json`."""
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
        "synonyms": [
            {"name": s.name, "value": s.value, "source": s.source.name} for s in entry.synonyms
        ],
    }


def _named(resource: administration.Resource) -> dict[str, str]:
    kind = resource.type.name.lower() if resource.name else "brokers-default"
    return {"resource": kind, "name": resource.name}


def _text(value: str | None) -> str:
    return "null" if value is None else value


async def _unset(
    client: clients.Client, resource: administration.Resource, changes: Mapping[str, str | None]
) -> list[str]:
    """Return the keys that are to be removed from a topic, but that were not set for it."""
    removed = [key for key, value in changes.items() if value is None]
    if not removed or resource.type is not administration.ResourceType.TOPIC:
        return []
    found = (await client.admin.describe_configs([resource]))[resource]
    own = {
        e.name
        for e in found.entries
        if e.source is administration.ConfigSource.DYNAMIC_TOPIC_CONFIG
    }
    return [key for key in removed if key not in own]
