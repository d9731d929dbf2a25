"""`minikafka generate`: the files with which services, containers, logrotate and Prometheus use a cluster."""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "systemd": Entry("systemd", "Unit of systemd for a broker or a ZooKeeper server."),
    "dockerfile": Entry("dockerfile", "Dockerfile of an image with minikafka's wheel."),
    "compose": Entry("compose", "Compose file of three brokers and ZooKeeper."),
    "logrotate": Entry("logrotate", "Configuration of logrotate for the logs of `minikafka up`."),
    "prometheus-targets": Entry(
        "prometheus_targets", "List of the brokers' metrics for Prometheus (file_sd)."
    ),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def generate() -> None:
    """Print a file for systemd, Docker, logrotate or Prometheus. Nothing is installed."""
