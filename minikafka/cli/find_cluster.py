"""Finding the cluster that `--data` and `--bootstrap` name.

Without `--data` a command uses the directory named in ./cluster.toml, else ./data.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.cluster.directory import BrokerRecord
    from minikafka.cluster.local import LocalCluster


def data_directory(data: str | None) -> str:
    """Return `data`, else the data directory that the cluster configuration names."""
    from minikafka.cli.config_files import load_cluster_config

    return data or load_cluster_config(None).data


def find_cluster(data: str | None) -> LocalCluster:
    """Return the cluster whose files are in `data`. Raises ClusterError when there is none."""
    from minikafka.cluster.local import LocalCluster

    found = LocalCluster(data=data_directory(data), attached=False)
    _ = found.record
    return found


def find_running_cluster(data: str | None) -> LocalCluster:
    """Return the cluster in `data`. Raises ClusterError when none of its brokers is running."""
    from minikafka.cluster.directory import ClusterError

    found = find_cluster(data)
    if not any(_may_answer(found, broker) for broker in found.record.brokers):
        where = f"--data {quote(str(found.directory.path))}"
        text = f"no broker of the cluster in {found.directory.path} is running"
        one = f"minikafka start {found.record.brokers[0].id} {where} starts one"
        raise ClusterError(f"{text}: minikafka up {where} starts all, {one}")
    return found


def _may_answer(found: LocalCluster, broker: BrokerRecord) -> bool:
    """True if the broker's process runs, or its port is in use.

    The process may be invisible here, for example in another container.
    """
    from minikafka.cluster.directory import is_free

    return found.process(broker.id) is not None or not is_free(broker.port)


def bootstrap_servers(bootstrap: str | None, data: str | None) -> str:
    """Return `bootstrap`, else the brokers of the running cluster in `data`. Raises ClusterError."""
    return bootstrap or find_running_cluster(data).bootstrap


def cluster_options(bootstrap: str | None, data: str | None) -> list[str]:
    """Return the options that make another command use the same cluster."""
    given = [("--bootstrap", bootstrap)] if bootstrap else [("--data", data)]
    return [word for option, value in given if value for word in (option, value)]
