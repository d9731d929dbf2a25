"""`up`, `down`, `start`, `stop`: the processes of a cluster that outlives the command."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from minikafka.cli.target import (
    cluster,
    config_file,
    data_option,
    errors_name,
    json_option,
    load_config,
    not_empty,
    run,
)
from minikafka.cluster import LocalCluster
from minikafka.cluster.directory import HOST
from minikafka.cluster.processes import ProcessId


@click.command()
@click.option(
    "--config",
    metavar="FILE",
    callback=not_empty,
    help="A cluster.toml (default: ./cluster.toml if there).",
)
@click.option("--brokers", type=click.IntRange(1, 1000), metavar="N", help="How many brokers.")
@data_option
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="FIRST_PORT",
    help="Port of broker 1, the others follow; 0: free ones.",
)
@json_option
def up(
    config: str | None, brokers: int | None, data: str | None, port: int | None, as_json: bool
) -> None:
    """Start a cluster; returns when every broker serves, and the cluster stays up.

    What of it runs already is left alone. Prints the bootstrap servers.
    """
    found = load_config(config)
    wanted = LocalCluster(brokers, data=data or found.data, config=found, port=port, attached=False)
    before = _running(wanted)
    with errors_name(config_file(config)):
        run(wanted.start())
    click.echo(f"{started(before, _running(wanted))} in {wanted.directory.path}", err=True)
    click.echo(json.dumps(describe(wanted)) if as_json else wanted.bootstrap)


def _running(cluster: LocalCluster) -> dict[str, ProcessId]:
    """What runs of the cluster, by what it is called."""
    record = cluster.directory.read()
    if record is None:
        return {}
    brokers = {f"{broker.id}": cluster.process(broker.id) for broker in record.brokers}
    found = {"ZooKeeper": cluster.zookeeper_process(), **brokers}
    return {name: process for name, process in found.items() if process is not None}


def started(before: Mapping[str, ProcessId], now: Mapping[str, ProcessId]) -> str:
    """What `up` did, for people: what runs now and ran not before, beside what ran already."""
    fresh = [name for name, process in now.items() if before.get(name) != process]
    if not fresh:
        return "already running"
    former = [name for name in now if name not in fresh]
    if not former:
        count = len(now.keys() - {"ZooKeeper"})
        return f"{count} {'broker serves' if count == 1 else 'brokers serve'}, data"
    return f"started {_listed(fresh)}, already running: {_listed(former)},"


def _listed(names: Sequence[str]) -> str:
    """`ZooKeeper, brokers 1, 2`."""
    brokers = [name for name in names if name != "ZooKeeper"]
    words = ["ZooKeeper"] if "ZooKeeper" in names else []
    if brokers:
        words.append(f"broker{'s' if len(brokers) > 1 else ''} {', '.join(brokers)}")
    return ", ".join(words)


def describe(found: LocalCluster) -> dict[str, Any]:
    """Addresses and processes, as `up --json` and `status --json` give them."""
    record = found.record
    brokers = []
    for broker in record.brokers:
        process = found.process(broker.id)
        brokers.append(
            {
                "id": broker.id,
                "host": HOST,
                "port": broker.port,
                "pid": process.pid if process else None,
                "log_dir": str(found.directory.broker_data(broker.id)),
            }
        )
    zookeeper = found.zookeeper_process()
    return {
        "bootstrap": record.bootstrap,
        "zookeeper": record.zookeeper,
        "zookeeper_pid": zookeeper.pid if zookeeper else None,
        "brokers": brokers,
    }


@click.command()
@data_option
def down(data: str | None) -> None:
    """End all brokers and the managed ZooKeeper; the data stays."""
    found = cluster(data)
    run(found.stop())
    click.echo(f"{found.directory.path}: all processes ended", err=True)


@click.command()
@click.argument("broker_id", type=int, metavar="ID")
@data_option
def start(broker_id: int, data: str | None) -> None:
    """Start one broker, with its id, ports and data; returns when it serves."""
    found = cluster(data)
    run(found.start(broker_id))
    click.echo(
        f"broker {broker_id} serves on {HOST}:{found.record.broker(broker_id).port}", err=True
    )


@click.command()
@click.argument("broker_id", type=int, metavar="ID")
@data_option
def stop(broker_id: int, data: str | None) -> None:
    """Shut one broker down: it hands its leaderships over first."""
    run(cluster(data).stop(broker_id))
    click.echo(f"broker {broker_id} has stopped", err=True)
