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
import minikafka.tools.cluster.secure.files as secure_files
from minikafka.base.endpoints import PLAINTEXT
from minikafka.base.errors import ConfigError
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.arguments.command_config import (
    command_config_file,
    profile_in_use,
    use_by_default,
)


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
    _running_cluster(data)
    return find_cluster(data)


def bootstrap_servers(
    bootstrap: str | None, data: str | None, context: click.Context | None = None
) -> str:
    """Return `bootstrap`, else the brokers of the running cluster in `data`.

    If the brokers in `data` demand a login, the running command, or that of `context`, connects as the administrator of
    a secure cluster. Raises ClusterError, also if there is neither an administrator's file nor a `--command-config`.
    """
    if bootstrap:
        return bootstrap
    directory, record = _running_cluster(data)
    if command_config_file(context) is None:
        _choose_login(directory, record, context)
    return record.bootstrap


def recorded_servers(data: str | None) -> str:
    """Return the brokers of the cluster in `data`, also if none of them runs; connect as `bootstrap_servers` does.

    Raises ClusterError.
    """
    directory = directories.ClusterDirectory(Path(data_directory(data)))
    record = directory.read_existing()
    if command_config_file() is None:
        _choose_login(directory, record, None)
    return record.bootstrap


def _choose_login(
    directory: directories.ClusterDirectory,
    record: directories.ClusterRecord,
    context: click.Context | None,
) -> None:
    listener = record.brokers[0].clients[0]
    admin = secure_files.SecurityFiles(directory).properties(secure_files.ADMIN)
    if record.is_secure and admin.exists():
        use_by_default(str(admin), context)
    elif listener.security is not PLAINTEXT:
        protocol = listener.security.value
        named = f"the listener {listener.name} of the cluster has the security protocol {protocol}"
        file = f"a file of properties with security.protocol={protocol}"
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


def _running_cluster(
    data: str | None,
) -> tuple[directories.ClusterDirectory, directories.ClusterRecord]:
    """Return the data directory of a running cluster, and the content of its `cluster.json`.

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
    return directory, record


def where_option(data: str | None) -> str:
    """Return the option that names the cluster in commands shown to the user, with a space in front; "" if none."""
    return f" --data {quote(data)}" if data else ""


def remote_where(bootstrap: str) -> str:
    """Return the options that name a cluster elsewhere in commands shown to the user, with a space in front.

    Return "" for the cluster of a profile, which `minikafka --cluster` names.
    """
    if profile_in_use() is not None:
        return ""
    file = command_config_file()
    more = f" --command-config {quote(file)}" if file else ""
    return f" --bootstrap {bootstrap}{more}"


def cluster_options(bootstrap: str | None, data: str | None) -> list[str]:
    """Return the command-line options with which another command uses the same cluster."""
    where = ("--bootstrap", bootstrap) if bootstrap else ("--data", data)
    given = [where, ("--command-config", command_config_file())]
    return [word for option, value in given if value for word in (option, value)]
