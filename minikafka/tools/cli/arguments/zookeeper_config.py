"""How a command connects to a ZooKeeper that encrypts or authenticates: from a file, or as the cluster's brokers do."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

import minikafka.base.config as configs
import minikafka.base.properties as properties
import minikafka.tools.cluster.directory as directories
import minikafka.tools.cluster.zookeeper.access as accesses
from minikafka.base.errors import ConfigError
from minikafka.runtime.clock import SystemRng
from minikafka.tools.cli.arguments.find_cluster import data_directory

_PREFIXES: Final = ("zookeeper.", "minikafka.zookeeper.")

zookeeper_config_option = click.option(
    "--zk-tls-config-file",
    "zookeeper_config",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Properties file with a broker's keys zookeeper.ssl... and minikafka.zookeeper.jaas.config (default: those of "
    "the cluster in --data).",
)
"""The option with Kafka's name for it."""


def zookeeper_access(
    file: str | None, zookeeper: str | None, data: str | None
) -> accesses.ZooKeeperAccess:
    """Return how to connect to ZooKeeper: as the file says, else as the brokers in `data`, unless `zookeeper` is given.

    Raises ConfigError and ClusterError.
    """
    if file is not None:
        return _from_file(file)
    if zookeeper:
        return accesses.OPEN_ACCESS
    directory = directories.ClusterDirectory(Path(data_directory(data)))
    return accesses.access_of_cluster(directory, directory.read_existing(), SystemRng())


def _from_file(file: str) -> accesses.ZooKeeperAccess:
    """Return the access of a file, which may be that of a whole broker. Raises ConfigError, which names the file."""
    try:
        found = properties.decode_properties(Path(file).read_bytes())
        own = {entry.name: entry.value for entry in found if entry.name.startswith(_PREFIXES)}
        config = configs.BrokerConfig.from_mapping({"broker.id": 0, **own})
        return accesses.access_of(config, SystemRng())
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from error
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
