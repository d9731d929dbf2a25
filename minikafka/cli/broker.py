"""`broker`: run one broker in the foreground."""

from __future__ import annotations

import click


@click.command()
@click.option(
    "--config", metavar="FILE", required=True, help="TOML file with Kafka keys in [broker]."
)
@click.option("--parent", type=int, metavar="PID", hidden=True, help="End when this process ends.")
def broker(config: str, parent: int | None) -> None:
    """Run one broker until SIGTERM or Ctrl-C, which cause a controlled shutdown."""
    from minikafka.cli.broker_process import run_broker

    run_broker(config, parent)
