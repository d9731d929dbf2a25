"""The configuration file of one broker: TOML with Kafka's keys in [broker], or Kafka's own `server.properties`.

The second has a file `minikafka-secret.properties` beside it, which `minikafka init-secret` makes. It has the keys that
Kafka does not know, so that Kafka can still be started with its own file.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.config.server_properties import BROKER_ID, read_kafka_file
from minikafka.base.endpoints import parse_endpoint
from minikafka.base.errors import ConfigError
from minikafka.base.properties import Property, decode_properties
from minikafka.runtime.storage import DiskStorage
from minikafka.storage.log.directory import LogDirectory
from minikafka.tools.cli.arguments.config_files import (
    errors_name_file,
    errors_name_line,
    read_bytes,
    read_config,
)

OWN_FILE: Final = "minikafka-secret.properties"
_OWN_PREFIX: Final = "minikafka."
_HINT: Final = "name a TOML file with Kafka keys in [broker], or Kafka's server.properties"


@dataclass(frozen=True, slots=True)
class BrokerFile:
    """A broker's configuration, and the line of each key in the file that has no effect."""

    config: BrokerConfig
    unread: Mapping[str, int]


def load(file: Path) -> BrokerFile:
    """Return the configuration of a broker. Raises ConfigError, whose text names the file."""
    if file.suffix == ".properties":
        return load_properties(file)
    text = read_config(file, _HINT)
    with errors_name_file(file):
        found = BrokerConfig.parse(text)
        _check(found, "write at least 16 characters, the same for every broker")
    return BrokerFile(found, {})


def load_properties(
    file: Path,
    complete: Callable[[Sequence[Property]], Sequence[Property]] = lambda entries: entries,
    own_file: Path | None = None,
) -> BrokerFile:
    """Return the configuration in Kafka's own file. Raises ConfigError, whose text names the file.

    `complete`: returns the entries with others that count too. `own_file`: the file with the keys that Kafka does not
    know, if there is none beside `file`.
    """
    entries: list[Property] = []
    with errors_name_line(file, entries):
        entries += decode_properties(read_bytes(file, _HINT))
        content = read_kafka_file(complete(entries))
    beside = file.with_name(OWN_FILE)
    own = _own_values(beside if own_file is None or beside.exists() else own_file)
    with errors_name_line(file, entries):
        values = {**own, **content.values}
        found = BrokerConfig.from_mapping({**values, **_what_kafka_finds_out(values)})
        _check(found, f"run `minikafka init-secret {file}`, or copy {OWN_FILE} of another broker")
    return BrokerFile(found, content.unread)


def _own_values(file: Path) -> dict[str, str]:
    """Return the values in `minikafka-secret.properties`, {} if there is no such file. Raises ConfigError."""
    if not file.exists():
        return {}
    entries: list[Property] = []
    with errors_name_line(file, entries):
        entries += decode_properties(read_bytes(file, "make it readable"))
        for entry in entries:
            if not entry.name.startswith(_OWN_PREFIX):
                raise ConfigError(f"{entry.name} belongs into Kafka's file; move it there")
    return {entry.name: entry.value.strip() for entry in entries}


def _what_kafka_finds_out(values: Mapping[str, str]) -> dict[str, str]:
    """Return the id that the log directories have, and the name of this host, where the file does not have them."""
    found = {}
    if BROKER_ID not in values and (broker_id := _id_in(_log_dirs(values))):
        found[BROKER_ID] = broker_id
    listeners = [parse_endpoint(text) for text in _words(values.get("listeners", ""))]
    if "advertised.listeners" not in values and any(not item.host for item in listeners):
        own = socket.getfqdn()
        shown = (str(item._replace(host=item.host or own)) for item in listeners)
        found["advertised.listeners"] = ",".join(shown)
    return found


def _id_in(directories: Iterable[str]) -> str:
    """Return the id in the first meta.properties, "" if there is none. The start compares those of all directories."""
    ids = (LogDirectory(DiskStorage(), path).read_properties() for path in directories)
    return next((found["broker.id"] for found in ids if "broker.id" in found), "")


def _log_dirs(values: Mapping[str, str]) -> list[str]:
    one = BrokerConfig.keys()["log.dir"].default
    return _words(values.get("log.dirs", "")) or [values.get("log.dir", one)]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _check(found: BrokerConfig, how_to_get_a_secret: str) -> None:
    """Raise ConfigError for what a broker's file needs and a configuration does not."""
    if not found.zookeeper_connect:
        raise ConfigError("zookeeper.connect is not set: write host:port,host:port/chroot")
    if not found.minikafka_cluster_secret:
        raise ConfigError(f"minikafka.cluster.secret is not set: {how_to_get_a_secret}")
    names: dict[str, str] = {}
    for name in found.log_dirs:
        path = os.path.realpath(name)
        if path in names:
            twice = f"{path} twice, as {names[path]} and as {name}"
            raise ConfigError(f"log.dirs names {twice}: leave one out")
        names[path] = name
