"""`generate prometheus-targets`: the addresses of the brokers' metrics, in the format of Prometheus' file_sd."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import click

import minikafka.base.config as configs
import minikafka.client as clients
import minikafka.client.administration.results as administration
import minikafka.tools.cluster.directory as directories
from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ConfigError, KafkaError
from minikafka.tools.cli.arguments.find_cluster import data_directory
from minikafka.tools.cli.arguments.options import connection_options, timeout_option
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.generate.output import output_option, write
from minikafka.tools.cli.terminal.echo import echo

_KEYS: Final = frozenset(
    {
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "security.inter.broker.protocol",
        "control.plane.listener.name",
        "minikafka.control.listener",
        "minikafka.metrics.enable",
    }
)
"""The keys of a broker that decide where its metrics are."""


@click.command("prometheus-targets")
@connection_options
@timeout_option
@output_option
def prometheus_targets(bootstrap: str | None, data: str | None, output: str | None) -> None:
    """Print the list of the brokers' metrics, for file_sd_configs of Prometheus.

    The brokers are those of the cluster in --data, also while they are down, or those that the cluster at --bootstrap
    has now. A broker without metrics is named on standard error.
    """
    found = _at(bootstrap) if bootstrap else _in(data_directory(data))
    write(json.dumps([_group(*one) for one in sorted(found.items())], indent=2) + "\n", output)


def _group(broker_id: int, control: Endpoint) -> dict[str, Any]:
    host = f"[{control.host}]" if ":" in control.host else control.host
    scheme = {"__scheme__": "https"} if control.security.is_encrypted else {}
    return {
        "targets": [f"{host}:{control.port}"],
        "labels": {"broker": str(broker_id), **scheme},
    }


def _in(data: str) -> dict[int, Endpoint]:
    """Return the control listeners of the brokers in a data directory that serve metrics."""
    directory = directories.ClusterDirectory(Path(data))
    found = {}
    for broker in directory.read_existing().brokers:
        if directory.serves_metrics(broker.id):
            found[broker.id] = broker.control
        else:
            _leave_out(broker.id, "its configuration disables them, or cannot be read")
    return found


def _at(bootstrap: str) -> dict[int, Endpoint]:
    """Return the control listeners of a cluster's brokers that serve metrics. Raises KafkaError."""
    found = {}
    for broker_id, settings in run_with_client(_settings, bootstrap).items():
        try:
            found[broker_id] = metrics_of(broker_id, settings)
        except ConfigError as error:
            _leave_out(broker_id, str(error))
    return found


async def _settings(client: clients.Client) -> dict[int, dict[str, str]]:
    """Return the values of `_KEYS` that are set, by broker."""
    ids = (await client.admin.describe_cluster()).brokers
    kind = administration.ResourceType.BROKER
    answers = await client.admin.describe_configs(
        administration.Resource(kind, str(broker_id)) for broker_id in sorted(ids)
    )
    found = {}
    for resource, settings in answers.items():
        if not settings.outcome.ok:
            reason = f"broker {resource.name}: {settings.outcome.message}"
            raise KafkaError(settings.outcome.code, reason)
        found[int(resource.name)] = _given(settings.entries)
    return found


def _given(entries: Iterable[administration.Setting]) -> dict[str, str]:
    return {entry.name: entry.value for entry in entries if entry.name in _KEYS and entry.value}


def metrics_of(broker_id: int, settings: Mapping[str, str]) -> Endpoint:
    """Return the endpoint of a broker's metrics. Raises ConfigError if there are none, or their port is not known."""
    if not settings.keys() & {"minikafka.metrics.enable"}:
        raise ConfigError("it is not a broker of minikafka")
    config = configs.BrokerConfig.from_mapping({"broker.id": broker_id, **settings})
    if not config.minikafka_metrics_enable:
        raise ConfigError("minikafka.metrics.enable is false")
    name = config.endpoints.control.name
    [control] = [item for item in config.endpoints.advertised if item.name == name]
    if not control.port:
        raise ConfigError(
            "its control listener has a free port; set one in minikafka.control.listener"
        )
    return control


def _leave_out(broker_id: int, reason: str) -> None:
    echo(f"broker {broker_id} is left out: {reason}", err=True)
