"""`topics create | list | describe | delete`, over the Kafka protocol."""

from __future__ import annotations

import base64
import json
from typing import Any

import click

from minikafka.cli.target import bootstrap_option, bootstrap_servers, data_option, json_option, run
from minikafka.client import Client, NewTopic, TopicInfo


@click.group()
def topics() -> None:
    """Create, list, describe and delete topics."""


def _settings(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """KEY=VALUE pairs of `--config`."""
    pairs = {}
    for value in values:
        key, separator, setting = value.partition("=")
        if not separator:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", context, option)
        pairs[key] = setting
    return pairs


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), help="Default: the broker's.")
@click.option("--replication-factor", type=click.IntRange(1), help="Default: the broker's.")
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", callback=_settings, help="A setting."
)
@bootstrap_option
@data_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: dict[str, str],
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Create the topic NAME."""
    topic = NewTopic(name, partitions or -1, replication_factor or -1, configs)

    async def work(servers: str) -> None:
        async with Client(servers) as client:
            await client.create_topics(topic)

    run(work(bootstrap_servers(bootstrap, data)))
    click.echo(f"Created topic {name}.")


@topics.command("list")
@bootstrap_option
@data_option
@json_option
def list_(bootstrap: str | None, data: str | None, as_json: bool) -> None:
    """Names of all topics, one a line."""

    async def work(servers: str) -> list[str]:
        async with Client(servers) as client:
            return await client.list_topics()

    names = run(work(bootstrap_servers(bootstrap, data)))
    if as_json:
        click.echo(json.dumps(names))
    else:
        for name in names:
            click.echo(name)


@topics.command()
@click.argument("names", nargs=-1)
@bootstrap_option
@data_option
@json_option
def describe(
    names: tuple[str, ...], bootstrap: str | None, data: str | None, as_json: bool
) -> None:
    """Partitions, leaders, replicas and ISRs of the topics NAMES (default: all)."""

    async def work(servers: str) -> list[TopicInfo]:
        async with Client(servers) as client:
            return await client.describe_topics(*(names or await client.list_topics()))

    found = run(work(bootstrap_servers(bootstrap, data)))
    if as_json:
        click.echo(json.dumps([_as_json(topic) for topic in found]))
    else:
        for topic in found:
            _print(topic)


@topics.command()
@click.argument("names", nargs=-1, required=True)
@bootstrap_option
@data_option
def delete(names: tuple[str, ...], bootstrap: str | None, data: str | None) -> None:
    """Mark the topics NAMES for deletion."""

    async def work(servers: str) -> None:
        async with Client(servers) as client:
            await client.delete_topics(*names)

    run(work(bootstrap_servers(bootstrap, data)))
    for name in names:
        click.echo(f"Topic {name} is marked for deletion.")


def _topic_id(topic: TopicInfo) -> str:
    """As Kafka's tools write it: url-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("=")


def _as_json(topic: TopicInfo) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": _topic_id(topic),
        "partitions": [
            {
                "partition": number,
                "leader": partition.leader if partition.leader >= 0 else None,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
            }
            for number, partition in sorted(topic.partitions.items())
        ],
    }


def _print(topic: TopicInfo) -> None:
    """The lines of Kafka's own tool, which scripts know how to read."""
    factor = max((len(p.replicas) for p in topic.partitions.values()), default=0)
    click.echo(
        f"Topic: {topic.name}\tTopicId: {_topic_id(topic)}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {factor}"
    )
    for number, partition in sorted(topic.partitions.items()):
        click.echo(
            f"\tTopic: {topic.name}\tPartition: {number}"
            f"\tLeader: {partition.leader if partition.leader >= 0 else 'none'}"
            f"\tReplicas: {','.join(map(str, partition.replicas))}"
            f"\tIsr: {','.join(map(str, partition.isr))}"
        )
