"""The classes `kafka.Kafka` and `QuorumPeerMain`: a broker and a ZooKeeper server from files of a distribution."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import minikafka.tools.cli.foreground.zookeeper_process as zookeeper_process
from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.properties import Property, decode_properties
from minikafka.tools.cli.arguments.config_files import errors_name_file, read_bytes
from minikafka.tools.cli.foreground.broker import no_certificates, no_client_of_aiokafka
from minikafka.tools.cli.foreground.broker_file import OWN_FILE, BrokerFile, load_properties
from minikafka.tools.cli.kafka_home.server_lines import KafkaLog, ZooKeeperLog
from minikafka.tools.cli.kafka_home.static_logins import LOGIN_CONFIG, logins_of
from minikafka.tools.cli.kafka_home.version import HOME, KAFKA_VERSION
from minikafka.tools.cli.lazy import import_at_once
from minikafka.tools.cli.terminal.echo import echo

_USAGE: Final = (
    "USAGE: kafka-server-start.sh [-daemon] server.properties [--override property=value]*"
)
_ZOOKEEPER_USAGE: Final = "USAGE: zookeeper-server-start.sh [-daemon] zookeeper.properties"
_TICK_MS: Final = 3000
_SNAPSHOT_COUNT: Final = 100_000
_OLD_TLS: Final = ("TLSv1", "TLSv1.1")
_PROTOCOLS: Final = "ssl.enabled.protocols"


def run_kafka(arguments: Sequence[str], properties: Mapping[str, str]) -> None:
    """Run a broker until SIGTERM or Ctrl-C. Raises MinikafkaError, whose exit code is 1 as Kafka's."""
    if "--version" in arguments:
        echo(f"{KAFKA_VERSION} (minikafka)")
        return
    if not arguments or arguments[0].startswith("-"):
        raise MinikafkaError(_USAGE)
    file, added = Path(arguments[0]), _overrides(arguments[1:])
    import_at_once()
    with no_certificates(), no_client_of_aiokafka():
        from minikafka.tools.cli.foreground.broker_process import run_process
    log = KafkaLog(properties)
    try:
        run_process(file, partial(_read, file, added, properties), log)
    except MinikafkaError as error:
        error.exit_code = 1
        raise


def _overrides(words: Sequence[str]) -> list[Property]:
    """Return the keys of `--override NAME=VALUE`. Raises MinikafkaError for anything else."""
    found = []
    rest = iter(words)
    for word in rest:
        option, equals, pair = word.partition("=")
        if option != "--override":
            raise MinikafkaError(f"Found non argument parameters: {word}; {_USAGE}")
        name, has_value, value = (pair if equals else next(rest, "")).partition("=")
        if not has_value:
            raise MinikafkaError(f"--override must be followed by property=value; {_USAGE}")
        found.append(Property(name, value, 0))
    return found


def _read(file: Path, added: Sequence[Property], properties: Mapping[str, str]) -> BrokerFile:
    home = properties.get(HOME)
    own = Path(home, "config", OWN_FILE) if home else None

    def complete(entries: Sequence[Property]) -> list[Property]:
        found = [*entries, *added]
        values = {entry.name: entry.value.strip() for entry in found}
        if protocols := values.get(_PROTOCOLS):
            kept = [one for one in protocols.split(",") if one.strip() not in _OLD_TLS]
            found.append(Property(_PROTOCOLS, ",".join(kept) or protocols, 0))
        if login := properties.get(LOGIN_CONFIG):
            found += logins_of(login, values)
        return found

    return load_properties(file, complete, own)


def run_zookeeper(arguments: Sequence[str], properties: Mapping[str, str]) -> None:
    """Run a ZooKeeper server until SIGTERM or Ctrl-C. Raises MinikafkaError."""
    if len(arguments) != 1:
        raise MinikafkaError(_ZOOKEEPER_USAGE)
    file = Path(arguments[0])
    with errors_name_file(file):
        keys = {
            entry.name: entry.value.strip()
            for entry in decode_properties(read_bytes(file, _ZOOKEEPER_USAGE))
        }
        if members := [name for name in keys if name.startswith("server.")]:
            raise ConfigError(
                f"{members[0]}: minikafka's server is one node; use an ensemble of Apache ZooKeeper"
            )
        if "dataDir" not in keys:
            raise ConfigError("dataDir is not set")
        port, tick = _number(keys, "clientPort"), _number(keys, "tickTime") or _TICK_MS
        longest = _number(keys, "maxSessionTimeout")
    host = keys.get("clientPortAddress", "0.0.0.0")  # noqa: S104 - ZooKeeper's default
    import_at_once()
    zookeeper_process.run_zookeeper(
        os.path.abspath(keys["dataDir"]),
        host,
        port,
        str(file) if "secureClientPort" in keys else None,
        tick,
        longest,
        _SNAPSHOT_COUNT,
        ZooKeeperLog(properties, f"{host}/{host}:{port}"),
        None,
    )


def _number(keys: Mapping[str, str], name: str) -> int | None:
    text = keys.get(name)
    if text is None or text.lstrip("-").isdecimal():
        return None if text is None or int(text) < 0 else int(text)
    raise ConfigError(f"{name} must be a number, got {text!r}")
