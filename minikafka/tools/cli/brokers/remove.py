"""`brokers remove`."""

from __future__ import annotations

import click

import minikafka.tools.cluster.zookeeper.access as accesses
import minikafka.tools.cluster.zookeeper.broker_list as broker_list
import minikafka.tools.cluster.zookeeper.session as session
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.arguments.find_cluster import zookeeper_servers
from minikafka.tools.cli.arguments.options import needs_machine, timeout_option
from minikafka.tools.cli.arguments.zookeeper_config import zookeeper_access, zookeeper_config_option
from minikafka.tools.cli.brokers.arguments import id_argument, zookeeper_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.terminal.echo import json_option, show


@click.command()
@id_argument
@zookeeper_option
@zookeeper_config_option
@needs_machine("finds ZooKeeper in the data directory")
@timeout_option
@json_option
def remove(
    broker_id: int, zookeeper: str | None, zookeeper_config: str | None, data: str | None
) -> None:
    """Remove broker ID with its queue of requests. It must be stopped, and its partitions reassigned."""
    connect = zookeeper_servers(zookeeper or "", None, data)
    access = zookeeper_access(zookeeper_config, zookeeper, data)
    run(_remove(connect, access, broker_id))
    shown = {"broker": broker_id, "result": "removed"}
    show(shown, [f"broker {broker_id} was removed"])


async def _remove(connect: str, access: accesses.ZooKeeperAccess, broker_id: int) -> None:
    async with session.zookeeper_session(
        connect, SystemClock(), SystemRng(), access=access
    ) as zookeeper:
        await broker_list.remove(zookeeper, broker_id)
