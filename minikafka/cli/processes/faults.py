"""`kill`, `pause`, `resume`: faults of single processes, to see how the cluster reacts."""

from __future__ import annotations

import click

from minikafka.cli.arguments.completion import ZOOKEEPER
from minikafka.cli.arguments.find_cluster import find_cluster
from minikafka.cli.arguments.options import data_option, timeout_option
from minikafka.cli.execution.running import run
from minikafka.cli.processes.process_argument import ProcessName, process_argument, shown
from minikafka.cli.terminal.echo import echo


@click.command(short_help="Kill a broker or ZooKeeper.")
@process_argument
@data_option
@timeout_option
def kill(process: ProcessName, data: str | None) -> None:
    """Kill the broker ID, or ZooKeeper, with SIGKILL.

    A broker then neither hands over its leaderships nor closes its files.
    """
    found = find_cluster(data)
    run(found.kill_zookeeper() if process == ZOOKEEPER else found.kill(int(process)))
    echo(f"{shown(process)} was killed", err=True)


@click.command(short_help="Pause a broker or ZooKeeper.")
@process_argument
@data_option
@timeout_option
def pause(process: ProcessName, data: str | None) -> None:
    """Pause the broker ID, or ZooKeeper, with SIGSTOP: it keeps its connections and answers nothing."""
    found = find_cluster(data)
    run(found.pause_zookeeper() if process == ZOOKEEPER else found.pause(int(process)))
    echo(f"{shown(process)} is paused", err=True)


@click.command(short_help="Let a paused process continue.")
@process_argument
@data_option
@timeout_option
def resume(process: ProcessName, data: str | None) -> None:
    """Let the paused broker ID, or ZooKeeper, continue, with SIGCONT."""
    found = find_cluster(data)
    run(found.resume_zookeeper() if process == ZOOKEEPER else found.resume(int(process)))
    echo(f"{shown(process)} continues", err=True)
