"""`minikafka generate`: the files with which services, containers, logrotate, Prometheus and Grafana use a cluster."""

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
    "prometheus-rules": Entry("prometheus_rules", "Alerts and rates for Prometheus."),
    "grafana": Entry("grafana", "Dashboard for Grafana."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def generate() -> None:
    """Print a file for systemd, Docker, logrotate, Prometheus or Grafana. Nothing is installed."""
