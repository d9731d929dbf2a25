"""Shell completion of the names in a running cluster: topics, partitions, groups and processes.

Completion must not disturb the command line: without a cluster, after an error, and after TIMEOUT_S, there are no
names, and nothing is printed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

import minikafka.client as clients
import minikafka.tools.cli.arguments.profiles as profiles
import minikafka.tools.cluster.directory as directories
from minikafka.tools.cli.arguments.command_config import connector
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers, data_directory

TIMEOUT_S: Final = 1.0
_SAFE: Final = re.compile(r"[\w.:@%+=/-]+", re.ASCII)
"""Names without characters that a shell interprets. A group may have any name."""
ZOOKEEPER: Final = "zookeeper"

Read = Callable[["clients.Client"], Awaitable[Iterable[str]]]


def topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the topics whose names begin with `incomplete`."""
    return _items(_ask(ctx, _topics), incomplete)


def topic_lists(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the completions of the last topic in a list such as `A,B`."""
    before, comma, last = incomplete.rpartition(",")
    names = _items(_ask(ctx, _topics), last)
    return [CompletionItem(f"{before}{comma}{item.value}") for item in names]


def topic_then_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return topics for the first word, and let the shell complete the names of files for the other words."""
    if ctx.params.get("named") or ctx.params.get("words"):
        return [CompletionItem(incomplete, type="file")]
    return topics(ctx, param, incomplete)


def partitions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the partitions, such as `events-0`, whose names begin with `incomplete`."""
    return _items(_ask(ctx, _partitions), incomplete)


def groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the consumer groups whose names begin with `incomplete`."""
    return _items(_ask(ctx, _groups), incomplete)


def transactions(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the transactional ids that begin with `incomplete`."""
    return _items(_ask(ctx, _transactions), incomplete)


def brokers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of the brokers, running or not, that begin with `incomplete`."""
    return _items(_known_brokers(ctx), incomplete)


def processes(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the ids of the brokers and `zookeeper`, as far as they begin with `incomplete`."""
    return _items([*_known_brokers(ctx), ZOOKEEPER], incomplete)


def clusters(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of the profiles that begin with `incomplete`."""
    try:
        return _items(profiles.names(), incomplete)
    except Exception:  # noqa: BLE001 - see the docstring of this module
        return []


async def _broker_ids(client: clients.Client) -> Iterable[str]:
    return [str(id_) for id_ in sorted((await client.describe_cluster()).brokers)]


async def _topics(client: clients.Client) -> Iterable[str]:
    return sorted(topic.name for topic in (await client.admin.describe())[1])


async def _partitions(client: clients.Client) -> Iterable[str]:
    found = (await client.admin.describe())[1]
    return [
        f"{topic.name}-{number}"
        for topic in sorted(found, key=lambda topic: topic.name)
        for number in sorted(topic.partitions)
    ]


async def _groups(client: clients.Client) -> Iterable[str]:
    return sorted(group.group for group in await client.groups.list_groups())


async def _transactions(client: clients.Client) -> Iterable[str]:
    return [listing.transactional_id for listing in await client.transactions.list_transactions()]


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the safe names that begin with `incomplete`; internal topics only if it begins with `__`."""
    hidden = () if incomplete.startswith("__") else ("__",)
    return [
        CompletionItem(name)
        for name in names
        if name.startswith(incomplete) and not name.startswith(hidden) and _SAFE.fullmatch(name)
    ]


def _ask(ctx: click.Context, read: Read) -> Iterable[str]:
    """Return the result of `read` from the cluster that the command line names."""

    async def names() -> Iterable[str]:
        servers = bootstrap_servers(ctx.params.get("bootstrap"), ctx.params.get("data"), ctx)
        made = clients.Client(servers, connector=connector(ctx))
        async with asyncio.timeout(TIMEOUT_S), made as client:
            return await read(client)

    try:
        return asyncio.run(names())
    except Exception:  # noqa: BLE001 - see the docstring of this module
        return ()


def _known_brokers(ctx: click.Context) -> Iterable[str]:
    if ctx.params.get("bootstrap"):
        return _ask(ctx, _broker_ids)
    try:
        record = directories.ClusterDirectory(Path(data_directory(ctx.params.get("data")))).read()
    except Exception:  # noqa: BLE001 - see the docstring of this module
        return []
    return [str(broker.id) for broker in record.brokers] if record is not None else []
