"""`faults heal` and `faults list`."""

from __future__ import annotations

import click

from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.arguments.options import timeout_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.faults.arguments import PeerType, done, on_machine
from minikafka.tools.cli.terminal.echo import json_option, show


@click.command()
@click.argument("a", type=PeerType(), required=False, metavar="[A")
@click.argument("b", type=PeerType(), required=False, metavar="[B]]")
@on_machine
@timeout_option
@json_option
def heal(a: int | str | None, b: int | str | None, data: str | None) -> None:
    """End all faults of connections and disks; with A, those of connections of A, or between A and B."""
    run(find_cluster(data).heal(a, b))
    of = "" if a is None else f" of {a}" if b is None else f" between {a} and {b}"
    done(f"all faults{of} have ended", {"a": a, "b": b})


@click.command()
@on_machine
@timeout_option
@json_option
def list_(data: str | None) -> None:
    """Show the faults of connections and disks that are in effect, and what each has hit."""
    found = find_cluster(data)
    found.check_faults()
    rows = [(fault.name, dict(fault.hits)) for fault in run(found.active_faults())]
    texts = [
        f"{name}: {', '.join(f'{count} {kind}' for kind, count in hits.items()) or 'no hits'}"
        for name, hits in rows
    ]
    show([{"fault": name, "hits": hits} for name, hits in rows], texts or ["no fault is in effect"])
