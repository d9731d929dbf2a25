"""`faults fill-disk`, `slow-sync` and `fail-sync`."""

from __future__ import annotations

import click

from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.faults.arguments import broker_argument, cause, fault_command

_log_dir = click.option(
    "--log-dir", metavar="DIR", help="Only this log directory (default: each of the broker)."
)


@click.command()
@broker_argument
@_log_dir
@click.option(
    "--free-bytes", type=int, default=0, metavar="N", help="Bytes that still fit (default: 0)."
)
@fault_command
def fill_disk(broker: int, log_dir: str | None, free_bytes: int, data: str | None) -> None:
    """Fill the log directories of the broker ID: a write that does not fit fails."""
    cause(find_cluster(data).fill_disk(broker, log_dir, free_bytes))


@click.command()
@broker_argument
@click.option(
    "--ms", type=int, required=True, metavar="MS", help="Milliseconds that each takes more."
)
@_log_dir
@fault_command
def slow_sync(broker: int, ms: int, log_dir: str | None, data: str | None) -> None:
    """Let each fsync of the broker ID take longer. The broker answers nothing meanwhile."""
    cause(find_cluster(data).slow_sync(broker, ms, log_dir))


@click.command()
@broker_argument
@_log_dir
@fault_command
def fail_sync(broker: int, log_dir: str | None, data: str | None) -> None:
    """Let each fsync of the broker ID fail with an input/output error."""
    cause(find_cluster(data).fail_sync(broker, log_dir))
