"""`fault-proxy`: run the proxy of a cluster with faults in the foreground."""

from __future__ import annotations

import click
import uvloop

import minikafka.tools.cluster.proxy.server as server
from minikafka.runtime.descriptors import raise_soft_limit
from minikafka.runtime.spawning import die_with
from minikafka.tools.cli.lazy import import_at_once


@click.command()
@click.option("--parent", type=int, metavar="PID", hidden=True, help="End when this process ends.")
def fault_proxy(parent: int | None) -> None:
    """Run the proxy of a cluster until SIGTERM or Ctrl-C. `minikafka up --faults` starts it, and tells it the ports."""
    import_at_once()
    if parent is not None:
        die_with(parent)
    raise_soft_limit()  # each connection takes two descriptors
    uvloop.run(server.serve())
