"""The topic or the brokers whose settings a command shows or changes, and the change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps

import click

import minikafka.client as clients
import minikafka.client.administration.results as administration
from minikafka.base.errors import KafkaError
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.echo import echo, show
from minikafka.tools.cli.terminal.topic_errors import require_topics


def resource_options(command: Callable[..., None]) -> Callable[..., None]:
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


async def require(client: clients.Client, resource: administration.Resource) -> None:
    """Raise UnknownTopics if the resource is a topic that does not exist."""
    if resource.type is administration.ResourceType.TOPIC:
        await require_topics(client.admin, [resource.name])


def reason_of(resource: administration.Resource, outcome: clients.Outcome) -> str:
    """Return the reason why a request about the resource was refused."""
    return outcome.message or f"{title(resource)}: {outcome.reason}"


def alter(resource: administration.Resource, changes: Mapping[str, str | None]) -> None:
    """Change settings, and print that. A value of None removes the setting. Raises KafkaError."""

    async def work(client: clients.Client) -> list[str]:
        await require(client, resource)
        unset = await _unset(client, resource, changes)
        outcome = (await client.admin.alter_configs({resource: changes}))[resource]
        if not outcome.ok:
            raise KafkaError(outcome.code, reason_of(resource, outcome))
        return unset

    unset = run_with_client(work)
    if unset:
        keys = ", ".join(unset)
        echo(f"minikafka: {title(resource)} had no setting of its own for {keys}", err=True)
    text = f"Completed updating config for {title(resource)}."
    show({**as_json_resource(resource), "changed": dict(changes)}, [text])


def title(resource: administration.Resource) -> str:
    """Return a resource as text: `topic t`, `broker 1` or `all brokers`."""
    if not resource.name:
        return "all brokers"
    return f"{resource.type.name.lower()} {resource.name}"


def as_json_resource(resource: administration.Resource) -> dict[str, str]:
    """Return the fields of the JSON that name the resource."""
    kind = resource.type.name.lower() if resource.name else "brokers-default"
    return {"resource": kind, "name": resource.name}


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
