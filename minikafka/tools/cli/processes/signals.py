"""`kill`, `pause` and `resume`: send a signal to one broker, or to ZooKeeper.

They share a file, because they differ only in the signal.
"""

from __future__ import annotations

import click

from minikafka.tools.cli.arguments.completion import ZOOKEEPER
from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.arguments.options import needs_machine, timeout_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.processes.process_argument import ProcessName, process_argument, shown
from minikafka.tools.cli.terminal.echo import echo


@click.command()
@process_argument
@needs_machine("sends a signal to a process")
@timeout_option
def kill(process: ProcessName, data: str | None) -> None:
    """Kill the broker ID, or ZooKeeper, with SIGKILL.

    A broker then neither hands over its leaderships nor closes its files.
    """
    found = find_cluster(data)
    run(found.kill_zookeeper() if process == ZOOKEEPER else found.kill(int(process)))
    echo(f"{shown(process)} was killed", err=True)


@click.command()
@process_argument
@needs_machine("sends a signal to a process")
@timeout_option
def pause(process: ProcessName, data: str | None) -> None:
    """Pause the broker ID, or ZooKeeper, with SIGSTOP: it keeps its connections and answers nothing."""
    found = find_cluster(data)
    run(found.pause_zookeeper() if process == ZOOKEEPER else found.pause(int(process)))
    echo(f"{shown(process)} is paused", err=True)


@click.command()
@process_argument
@needs_machine("sends a signal to a process")
@timeout_option
def resume(process: ProcessName, data: str | None) -> None:
    """Let the paused broker ID, or ZooKeeper, continue, with SIGCONT."""
    found = find_cluster(data)
    run(found.resume_zookeeper() if process == ZOOKEEPER else found.resume(int(process)))
    echo(f"{shown(process)} continues", err=True)
