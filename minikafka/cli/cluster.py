"""`cluster describe | health`: brokers, racks, controller, epochs, log directories; and whether all is well.

What the Kafka protocol does not tell (epochs) is asked over the control plane, which only `--data` can
reach: with `--bootstrap` it is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import click

from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.cli import target
from minikafka.cli.progress import size
from minikafka.cli.target import (
    bootstrap_option,
    bootstrap_servers,
    data_option,
    fail_unless,
    json_option,
    run,
)
from minikafka.client import Client, ClusterInfo, TopicInfo
from minikafka.client.answers import LogDir
from minikafka.cluster import LocalCluster
from minikafka.cluster.state import ClusterState


@click.group()
def cluster() -> None:
    """Show the cluster as a whole."""


class View(NamedTuple):
    """What was found. `dirs`: by broker that answered; `state`: None where only Kafka bytes can be asked."""

    info: ClusterInfo
    dirs: Mapping[int, list[LogDir]]
    state: ClusterState | None


@cluster.command()
@bootstrap_option
@data_option
@json_option
def describe(bootstrap: str | None, data: str | None, as_json: bool) -> None:
    """Show id, controller, brokers, racks, epochs and log directories."""
    local = None if bootstrap else target.cluster(data)

    async def work(servers: str) -> View:
        async with Client(servers) as client:
            info = await client.admin.describe_cluster()
            dirs = await client.admin.describe_log_dirs()
        return View(info, dirs, await local.state() if local else None)

    shown = as_json_view(run(work(bootstrap_servers(bootstrap, data))), local)
    if as_json:
        click.echo(json.dumps(shown))
    else:
        _print(shown)


def as_json_view(view: View, local: LocalCluster | None) -> dict[str, Any]:
    """What `describe --json` prints; brokers that are known but not alive have `alive` false."""
    known = {broker.id: broker for broker in local.record.brokers} if local else {}
    brokers = []
    for broker_id in sorted({*known, *view.info.brokers}):
        node = view.info.brokers.get(broker_id)
        answer = view.state.answers.get(broker_id) if view.state else None
        dirs = view.dirs.get(broker_id, [])
        brokers.append(
            {
                "id": broker_id,
                "host": node.host if node else None,
                "port": node.port if node else known[broker_id].port,
                "rack": node.rack if node else None,
                "alive": node is not None,
                "controller": broker_id == view.info.controller_id,
                "broker_epoch": answer["broker_epoch"] if answer else None,
                "log_dirs": [_directory(found) for found in dirs],
            }
        )
    ruler = view.info.controller_id
    return {
        "cluster_id": view.info.cluster_id,
        "controller": ruler if ruler >= 0 else None,
        "controller_epoch": view.state.controller_epoch if view.state else None,
        "brokers": brokers,
    }


def _directory(found: LogDir) -> dict[str, Any]:
    return {
        "path": found.path,
        "error": None if found.outcome.ok else found.outcome.code.name,
        "partitions": len(found.sizes),
        "size": sum(found.sizes.values()),
        "total_bytes": found.total_bytes,
        "usable_bytes": found.usable_bytes,
    }


def _print(shown: dict[str, Any]) -> None:
    from rich.table import Table  # only here: it takes longer to load than all the rest

    from minikafka.cli.console import plain_console

    console = plain_console()
    console.print(f"cluster     {shown['cluster_id']}")
    console.print(
        f"controller  {_or_dash(shown['controller'])}  epoch {_or_dash(shown['controller_epoch'])}"
    )
    columns = ("broker", "address", "rack", "epoch", "log directory", "partitions", "size")
    table = Table(*columns, box=None)
    for broker in shown["brokers"]:
        name = f"{broker['id']}{' *' if broker['controller'] else ''}"
        address = f"{broker['host']}:{broker['port']}" if broker["alive"] else "not alive"
        head = (name, address, _or_dash(broker["rack"]), _or_dash(broker["broker_epoch"]))
        for found in broker["log_dirs"] or [None]:
            table.add_row(*head, *(_directory_cells(found) if found else ("–", "–", "–")))
            head = ("", "", "", "")
    console.print(table)


def _directory_cells(found: dict[str, Any]) -> tuple[str, str, str]:
    path = f"{found['path']} {found['error']}" if found["error"] else found["path"]
    return path, str(found["partitions"]), size(found["size"])


def _or_dash(value: object) -> str:
    return "–" if value is None else str(value)


@cluster.command()
@bootstrap_option
@data_option
@json_option
def health(bootstrap: str | None, data: str | None, as_json: bool) -> None:
    """Count what is offline, under-replicated or not led by its preferred replica.

    Exit code 1 when a broker of the cluster, the controller, a leader or a replica is missing.
    """
    local = None if bootstrap else target.cluster(data)

    async def work(servers: str) -> dict[str, Any]:
        async with Client(servers) as client:
            info, topics = await client.admin.describe()
            moving = await client.admin.list_reassignments() if info.controller_id >= 0 else {}
        known = [broker.id for broker in local.record.brokers] if local else info.brokers
        return diagnose(info, topics, moving, known)

    found = run(work(bootstrap_servers(bootstrap, data)))
    if as_json:
        click.echo(json.dumps(found))
    else:
        click.echo("healthy" if found["healthy"] else "not healthy")
        for name, value in found.items():
            if name != "healthy":
                click.echo(f"  {name.replace('_', ' ')}: {_listed(value)}")
    fail_unless(found["healthy"])


def diagnose(
    info: ClusterInfo,
    topics: Iterable[TopicInfo],
    moving: Mapping[TopicPartition, ReplicaAssignment],
    known: Iterable[int],
) -> dict[str, Any]:
    """The counts, as `health --json` prints them. Replicas that are only coming are not missed yet."""
    offline, short, elsewhere = [], [], []
    for topic in topics:
        for number, partition in sorted(topic.partitions.items()):
            tp = TopicPartition(topic.name, number)
            coming = moving[tp].adding if tp in moving else ()
            if partition.leader < 0:
                offline.append(str(tp))
            if set(partition.replicas) - set(coming) - set(partition.isr):
                short.append(str(tp))
            if partition.replicas and partition.leader != partition.replicas[0]:
                elsewhere.append(str(tp))
    away = sorted(set(known) - info.brokers.keys())
    ruler = info.controller_id if info.controller_id >= 0 else None
    return {
        "healthy": not (offline or short or away) and ruler is not None,
        "controller": ruler,
        "brokers_away": away,
        "offline_partitions": offline,
        "under_replicated_partitions": short,
        "not_led_by_preferred": elsewhere,
        "reassignments": len(moving),
    }


def _listed(value: Any) -> str:
    if not isinstance(value, list):
        return _or_dash(value)
    more = ", …" if len(value) > 10 else ""
    return f"{len(value)}" + (f" ({', '.join(map(str, value[:10]))}{more})" if value else "")
