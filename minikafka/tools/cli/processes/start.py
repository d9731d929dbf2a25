"""`start`: start one broker, or ZooKeeper, as it was configured before."""

from __future__ import annotations

import click

import minikafka.tools.cli.arguments.config_files as config_files
import minikafka.tools.cluster.local as clusters
from minikafka.base.errors import ConfigError
from minikafka.tools.cli.arguments.completion import ZOOKEEPER
from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.arguments.options import needs_machine, timeout_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.processes.differences import change_text
from minikafka.tools.cli.processes.process_argument import ProcessName, process_argument, shown
from minikafka.tools.cli.processes.waits import (
    LATE,
    start_timeout_ms,
    until_serving,
    until_zookeeper_serves,
)
from minikafka.tools.cli.terminal.echo import echo


@click.command()
@process_argument
@needs_machine("starts a process")
@timeout_option
def start(process: ProcessName, data: str | None) -> None:
    """Start the broker ID, or ZooKeeper, with its former ports and data, and wait until it serves clients."""
    found = find_cluster(data)
    if process == ZOOKEEPER:
        reason = until_zookeeper_serves(found)
        run(found.start_zookeeper(), reason=reason)
        address = found.zookeeper
    else:
        broker_id = int(process)
        reason = until_serving(found, data, [broker_id])
        run(found.start(broker_id, timeout_ms=start_timeout_ms()), late=LATE, reason=reason)
        address = found.record.address(broker_id)
        _tell_unapplied(broker_id, data)
    echo(f"{shown(process)} serves on {address}", err=True)


def _tell_unapplied(broker_id: int, data: str | None) -> None:
    """Print the settings of ./cluster.toml that a broker was started without, because `start` does not read them."""
    if data is not None or (file := config_files.find_cluster_file(None)) is None:
        return
    try:
        with config_files.errors_name_file(file):
            config = config_files.load_cluster_config(None)
            cluster = clusters.LocalCluster(data=config.data, config=config, attached=False)
            changes, kept = cluster.unapplied(broker_id), cluster.kept_settings(file)
    except ConfigError:  # `find_cluster` has printed it
        return
    for change in changes:
        text = f"{change_text(change)}: not in effect, `start` does not read {file}"
        echo(f"{text}; minikafka restart {broker_id} applies it", err=True)
    for line in kept:
        echo(line, err=True)
