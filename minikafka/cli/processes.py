"""`up`, `down`, `start`, `stop`: the processes of a cluster that outlives the command."""

from __future__ import annotations

import json
from typing import Any

import click

from minikafka.cli.target import cluster, data_option, json_option, load_config, run
from minikafka.cluster import LocalCluster
from minikafka.cluster.directory import HOST


@click.command()
@click.option("--config", metavar="FILE", help="A cluster.toml (default: ./cluster.toml if there).")
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
    before = wanted.directory.read()
    was_running = before is not None and wanted.is_running()
    run(wanted.start())
    if was_running:
        click.echo(f"already running in {wanted.directory.path}", err=True)
    if as_json:
        click.echo(json.dumps(describe(wanted)))
        return
    if not was_running:
        click.echo(
            f"{len(wanted.record.brokers)} brokers serve, data in {wanted.directory.path}", err=True
        )
    click.echo(wanted.bootstrap)


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
