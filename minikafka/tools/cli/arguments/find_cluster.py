"""Finding the cluster that `--data` and `--bootstrap` name.

Without `--data`, a command uses the directory in the environment variable MINIKAFKA_DATA, else the one that
./cluster.toml names, else ./data.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

import minikafka.tools.cli.arguments.config_files as config_files
import minikafka.tools.cluster.directory as directories
import minikafka.tools.cluster.local as clusters
import minikafka.tools.cluster.ports as ports
import minikafka.tools.cluster.running as running_processes
from minikafka.base.endpoints import PLAINTEXT, Endpoint
from minikafka.base.errors import ConfigError
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.arguments.command_config import command_config_file


def data_directory(data: str | None) -> str:
    """Return `data` if given, else the data directory that the cluster configuration names.

    An invalid configuration is only a warning if it names the directory without doubt; else ConfigError is raised.
    """
    if data:
        return data

    try:
        return config_files.load_cluster_config(None).data
    except ConfigError as error:
        return config_files.data_of_invalid_file(error)


def find_cluster(data: str | None) -> clusters.LocalCluster:
    """Return the cluster whose files are in `data`. Raises ClusterError if there is no cluster."""
    found = clusters.LocalCluster(data=data_directory(data), attached=False)
    _ = found.record
    return found


def find_running_cluster(data: str | None) -> clusters.LocalCluster:
    """Return the cluster in `data`. Raises ClusterError if no broker is running."""
    _record_of_running_cluster(data)
    return find_cluster(data)


def bootstrap_servers(bootstrap: str | None, data: str | None) -> str:
    """Return `bootstrap`, else the brokers of the running cluster in `data`.

    Raises ClusterError, also if the brokers in `data` demand TLS or a login, but there is no `--command-config`.
    """
    if bootstrap:
        return bootstrap
    record = _record_of_running_cluster(data)
    if command_config_file() is None:
        _check_plaintext(record.brokers[0].clients[0])
    return record.bootstrap


def addresses(bootstrap: str | None, data: str | None) -> str:
    """Return the same as `bootstrap_servers`, for callers that know themselves how to log in. Raises ClusterError."""
    return bootstrap or _record_of_running_cluster(data).bootstrap


def _check_plaintext(listener: Endpoint) -> None:
    protocol = listener.security
    if protocol is PLAINTEXT:
        return
    named = (
        f"the listener {listener.name} of the cluster has the security protocol {protocol.value}"
    )
    file = f"a file of properties with security.protocol={protocol.value}"
    raise directories.ClusterError(f"{named}: name {file}", "--command-config FILE")


def zookeeper_servers(zookeeper: str, bootstrap: str | None, data: str | None) -> str:
    """Return `zookeeper` if given, else the ZooKeeper address of the cluster in the directory `data`.

    Raises ClusterError, and UsageError if `bootstrap` is given without `zookeeper`.
    """
    if zookeeper:
        return zookeeper
    if bootstrap:
        raise click.UsageError(
            "--bootstrap does not show which ZooKeeper the cluster uses: give --via-zookeeper HOST:PORT"
        )

    return directories.ClusterDirectory(Path(data_directory(data))).read_existing().zookeeper


def _record_of_running_cluster(data: str | None) -> directories.ClusterRecord:
    """Return the content of `cluster.json` in the data directory of a running cluster.

    This function does not import the modules that can start clusters.
    Raises ClusterError if no broker has a process or uses its port. The ports are checked too, because processes
    in another container are invisible.
    """
    directory = directories.ClusterDirectory(Path(data_directory(data)))
    record = directory.read_existing()
    running = running_processes.RunningProcesses(directory, SystemClock()).running_ids(record)
    clients = (item.port for broker in record.brokers for item in broker.clients)
    if not running and all(map(ports.is_free, clients)):
        where = f"--data {quote(str(directory.path))}"
        text = f"no broker of the cluster in {directory.path} is running"
        one = f"minikafka start {record.brokers[0].id} {where} starts one"
        raise directories.ClusterError(f"{text}: minikafka up {where} starts all, {one}")
    return record


def where_option(data: str | None) -> str:
    """Return the option that names the cluster in commands shown to the user, with a space in front; "" if none."""
    return f" --data {quote(data)}" if data else ""


def cluster_options(bootstrap: str | None, data: str | None) -> list[str]:
    """Return the command-line options with which another command uses the same cluster."""
    where = ("--bootstrap", bootstrap) if bootstrap else ("--data", data)
    given = [where, ("--command-config", command_config_file())]
    return [word for option, value in given if value for word in (option, value)]
