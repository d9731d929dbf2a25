"""The sources of commands that explain: this machine, or the brokers of a cluster elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import click

import minikafka.tools.cluster.observation.remote as remote
import minikafka.tools.explain.gather as gathering
import minikafka.tools.explain.remote as remote_gathering
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.arguments.command_config import command_config_file, connector
from minikafka.tools.cli.arguments.find_cluster import find_cluster, remote_where, where_option
from minikafka.tools.cli.terminal.echo import echo

_AS_BROKER: Final = "--command-config needs --bootstrap: with the data directory, this command connects as brokers do"


@asynccontextmanager
async def open_sources(bootstrap: str | None, data: str | None) -> AsyncIterator[gathering.Sources]:
    """Yield the sources of the cluster that these options name. Raises ClusterError, KafkaError and NotAdmitted."""
    clock = SystemClock()
    if not bootstrap:
        if command_config_file() is not None:
            raise click.UsageError(_AS_BROKER)
        found = find_cluster(data)
        yield gathering.LocalSources(found, clock, SystemRng(), where_option(data))
        return
    access = connector()
    async with remote.remote_cluster(bootstrap, access) as cluster:
        where = remote_where(bootstrap)
        yield remote_gathering.RemoteSources(cluster, access, clock, where)


def print_unseen(unseen: list[str]) -> None:
    """Print what a command could not see, as the last lines of its text."""
    for sentence in unseen:
        echo(f"not seen: {sentence}")
