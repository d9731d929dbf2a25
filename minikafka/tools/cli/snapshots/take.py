"""`snapshot`: keep the state of a whole cluster at one moment."""

from __future__ import annotations

import click

from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.arguments.options import needs_machine, timeout_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.snapshots.table import SNAPSHOTS
from minikafka.tools.cli.terminal.columns import objects
from minikafka.tools.cli.terminal.echo import echo, json_option, show, wants_json


@click.command()
@click.argument("name")
@needs_machine("copies the data directories of brokers")
@timeout_option
@json_option
def snapshot(name: str, data: str | None) -> None:
    """Keep the state of all brokers and ZooKeeper at one moment as NAME, for `minikafka restore NAME`.

    The processes stand while their files are linked and copied. Everything that was acknowledged before is kept.
    """
    taken = run(find_cluster(data).snapshot(name))
    show(objects(SNAPSHOTS, [taken])[0])
    if not wants_json():
        copied, linked = taken.copied_bytes, taken.linked_bytes
        text = f"the processes stood for {taken.stopped_ms} ms, {copied} bytes were copied and {linked} linked"
        echo(f"snapshot {name} is taken: {text}", err=True)
