"""The content of `cluster.toml`: the number of brokers, their ports, and keys for all brokers or single brokers.

Invariant: an existing config object is valid. An invalid value raises ConfigError, whose text names the
key and the fix. `docs/configuration.md` is generated from the table of keys, `_CLUSTER_KEYS`.

The table `[listeners]` has a port for each listener besides PLAINTEXT, the listener of `cluster.port`. A file with
this table has a listener PLAINTEXT only if it sets `cluster.port`, so that no listener is open without being named.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from minikafka.base.config import BrokerConfig
from minikafka.base.config.keys import ConfigType, Key, flatten, parse_all, unknown_key
from minikafka.base.config.security import PREFIX, parse_prefixed
from minikafka.base.coordination import COORDINATION
from minikafka.base.endpoints import PLAINTEXT
from minikafka.base.errors import ConfigError
from minikafka.base.toml import Statement, read_toml, statements, table_of

_BROKERS: Final = 3
_PORT: Final = 9092
_METRICS_PORT: Final = 0
_DATA: Final = "data"
_DATA_KEY: Final = "cluster.data"
_PORT_KEY: Final = "cluster.port"
LISTENER_KEY: Final = "listeners."
"""The beginning of the names of the keys in `[listeners]`."""
_REPLICAS: Final = 3
"""Maximum default replication factor of __consumer_offsets and, without a cluster.toml, of new topics."""


_OF_TOPICS: Final = ("default.replication.factor", "min.insync.replicas")
"""The broker keys that decide whether a topic survives the loss of a broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """The content of `cluster.toml`: number of brokers, ports, data directory, and keys for the brokers.

    `zookeeper`: see `base/zookeeper.py`; None for the one that the cluster already uses. `overrides`: keys
    of single brokers by id, from `[broker.N]`. `given`: names of the keys in `[cluster]` and `[zookeeper]`
    that the file sets. `was_named`: True if the user gave the path of the file. The number of brokers and the port
    in such a file always override those of the existing cluster. Those in another file override them only after
    the file was edited.
    `is_default`: True if the user gave no configuration; an existing cluster then keeps the keys of its last start.
    `listeners`: port of broker 1 by listener name, from `[listeners]`; None if the cluster keeps its listeners.
    `replicates_topics`: True if there is no configuration file. The topics of a new cluster are then replicated
    (`topic_defaults`).
    """

    brokers: int = _BROKERS
    port: int = _PORT
    metrics_port: int = _METRICS_PORT
    data: str = _DATA
    zookeeper: str | None = None
    listeners: Mapping[str, int] | None = None
    broker: Mapping[str, object] = field(default_factory=dict, repr=False)
    overrides: Mapping[int, Mapping[str, object]] = field(default_factory=dict, repr=False)
    given: frozenset[str] = frozenset()
    was_named: bool = False
    is_default: bool = False
    replicates_topics: bool = False

    @classmethod
    def keys(cls) -> dict[str, Key]:
        """Return the keys of `[cluster]` and `[zookeeper]` by dotted name, such as `cluster.brokers`."""
        return _CLUSTER_KEYS

    @classmethod
    def parse(cls, text: str) -> ClusterConfig:
        """Parse the text of a `cluster.toml`. Raises ConfigError."""
        document = read_toml(text)
        for section in document:
            if section not in _TABLES:
                raise unknown_key(section, _TABLES)
        own = {name: table_of(document, name) for name in ("cluster", "zookeeper")}
        values = parse_all(_CLUSTER_KEYS, flatten(own))
        tables = table_of(document, "broker")
        singles = _tables_of_brokers(tables)
        common = flatten({name: value for name, value in tables.items() if name not in singles})
        overrides = {int(name): flatten(tables[name]) for name in singles}
        for keys in (common, *overrides.values()):
            _check_cluster_keys(keys)
        if any(COORDINATION in keys for keys in overrides.values()):
            raise ConfigError(f"{COORDINATION} is the same for all brokers: set it in [broker]")
        fields = {name.removeprefix("cluster_"): value for name, value in values.items()}
        zookeeper = fields.pop("zookeeper_connect", None)
        return cls(
            **fields,
            zookeeper=zookeeper,
            listeners=parse_listener_ports(flatten(table_of(document, "listeners"))),
            broker=common,
            overrides=overrides,
            given=frozenset(flatten(own)),
        )

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers in `[cluster]` and `[listeners]` by key, without the keys that the file does not set."""
        found = {
            "cluster.brokers": self.brokers,
            _PORT_KEY: self.port,
            "cluster.metrics.port": self.metrics_port,
        }
        ports = {f"{LISTENER_KEY}{name}": port for name, port in (self.listeners or {}).items()}
        return {name: number for name, number in found.items() if name in self.given} | ports

    @property
    def listener_names(self) -> tuple[str, ...] | None:
        """The names of the listeners for clients, PLAINTEXT first; None if the cluster keeps its listeners."""
        if self.listeners is None:
            return None
        is_plain = not self.listeners or _PORT_KEY in self.given
        return (*([PLAINTEXT.value] if is_plain else []), *self.listeners)

    def topic_defaults(self, brokers: int) -> dict[str, int]:
        """Return the replication factor and the minimum ISR size of topics, for a new cluster of this many brokers.

        The cluster keeps these values until a configuration file sets others. Without a file, the replication factor
        is 3; `laid_topic_defaults` limits it to the number of brokers.
        """
        found = {
            name: row.default for name, row in BrokerConfig.keys().items() if name in _OF_TOPICS
        }
        if self.replicates_topics:
            found = dict(
                zip(_OF_TOPICS, (_REPLICAS, _in_sync(min(_REPLICAS, brokers))), strict=True)
            )
        given = {name: value for name, value in self.broker.items() if name in _OF_TOPICS}
        return found | {name: BrokerConfig.keys()[name].parse(v) for name, v in given.items()}

    def keys_of(self, broker_id: int) -> dict[str, object]:
        """Return the keys that the file sets for a broker; `[broker.N]` overrides `[broker]`."""
        return {**self.broker, **self.overrides.get(broker_id, {})}


def parse_listener_ports(values: Mapping[str, object]) -> dict[str, int]:
    """Return the ports of the listeners by name in upper case. Raises ConfigError."""
    found: dict[str, int] = {}
    for name, value in values.items():
        listener = name.upper()
        if (key := _OWN_PORTS.get(listener)) is not None:
            raise ConfigError(
                f"{LISTENER_KEY}{name} cannot be set: the port of {listener} is {key}"
            )
        if not _LISTENER_NAME.fullmatch(name):
            rule = "write letters, digits, '-' and '_'"
            raise ConfigError(f"{LISTENER_KEY}{name} is not the name of a listener: {rule}")
        if listener in found:
            raise ConfigError(f"{LISTENER_KEY}{name} is given twice; remove one")
        row = Key(ConfigType.INT, 0, "", low=0, high=65_535, name=f"{LISTENER_KEY}{name}")
        found[listener] = row.parse(value)
    return found


def data_in(text: str) -> str | None:
    """Return the data directory that an invalid `cluster.toml` names, or the default; None if that is not certain.

    It is not certain if the mistake may be in the line that names the directory.
    """
    is_certain = True
    for one in statements(text):
        for name, value in zip(one.names, (one.values or {}).values(), strict=True):
            if name == _DATA_KEY and isinstance(value, str) and value:
                return value
        is_certain &= not _may_name_data(one)
    return _DATA if is_certain else None


def _may_name_data(one: Statement) -> bool:
    """True if the statement may be the misspelt key `cluster.data`."""
    if (
        one.values == {}
        or one.table in ("zookeeper", "listeners")
        or f"{one.table}.".startswith("broker.")
    ):
        return False
    word = re.split(r"[\s=]", one.text, maxsplit=1)[0].strip("\"'")
    names = [name.removeprefix("cluster.") for name in (*(one.values or {word: None}),)]
    known = {name.removeprefix("cluster.") for name in _CLUSTER_KEYS} | BrokerConfig.keys().keys()
    nearest = [difflib.get_close_matches(name, known, 1, 0.6) for name in names]
    is_root = not one.table  # the keys of the tables [broker] and [zookeeper] as dotted names
    return any(
        found in ([], ["data"]) and not (is_root and name.startswith(("broker.", "zookeeper.")))
        for name, found in zip(names, nearest, strict=True)
    )


def laid_topic_defaults(made_with: Mapping[str, int], brokers: int) -> dict[str, int]:
    """Return the broker keys of topics that differ from Kafka's defaults, for a cluster of this many brokers.

    `made_with`: the `topic_defaults` of the cluster's first start.
    """
    replicas, in_sync = (made_with[name] for name in _OF_TOPICS)
    found = dict(zip(_OF_TOPICS, (min(replicas, brokers), in_sync), strict=True))
    return {name: n for name, n in found.items() if n != BrokerConfig.keys()[name].default}


def internal_topic_defaults(brokers: int) -> dict[str, object]:
    """Return values for broker keys that apply to the internal topics of a cluster of this many brokers.

    Kafka's defaults would leave a cluster of fewer than 3 brokers without consumer groups and transactions, and a
    cluster of 2 brokers without transactions while one of them is down.
    """
    replicas = min(_REPLICAS, brokers)
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": _in_sync(replicas),
    }


def _in_sync(replicas: int) -> int:
    """Return the default of min.insync.replicas for topics with this number of replicas."""
    return 2 if replicas == _REPLICAS else 1


_CLUSTER_KEYS: Final = {
    row.name: row
    for row in (
        Key(
            ConfigType.INT,
            _BROKERS,
            "Number of brokers; their ids start at 1.",
            low=1,
            high=1000,
            name="cluster.brokers",
        ),
        Key(
            ConfigType.INT,
            _PORT,
            "Port of the listener PLAINTEXT of broker 1; the other brokers use the ports after it. 0: any free ports.",
            low=0,
            high=65_535,
            name=_PORT_KEY,
        ),
        Key(
            ConfigType.INT,
            _METRICS_PORT,
            "Port of broker 1 for /metrics and for the calls of other brokers; the other brokers use the ports after "
            "it. 0: any free ports.",
            low=0,
            high=65_535,
            name="cluster.metrics.port",
        ),
        Key(
            ConfigType.STRING,
            _DATA,
            "Directory of all files of the cluster.",
            low=1,
            name=_DATA_KEY,
        ),
        Key(
            ConfigType.STRING,
            None,
            "`embedded`: the cluster runs this project's ZooKeeper server. `managed`: it runs Apache ZooKeeper, which "
            "needs Java. host:port,…[/chroot]: it uses an existing ZooKeeper. If not set, a new cluster uses "
            "`embedded`, and an existing cluster keeps its ZooKeeper.",
            low=1,
            name="zookeeper.connect",
        ),
    )
}
_TABLES: Final = ("cluster", "listeners", "zookeeper", "broker")
_OWN_PORTS: Final = {PLAINTEXT.value: _PORT_KEY, "CONTROLLER": "cluster.metrics.port"}
"""The keys of the listeners that are not in `[listeners]`."""
_LISTENER_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_BROKER_NUMBER: Final = re.compile(r"[1-9][0-9]{0,3}")
"""Broker numbers start at 1. They have at most four digits, as does cluster.brokers."""
_OF_THE_CLUSTER: Final = (
    "broker.id",
    "listeners",
    "control.plane.listener.name",
    "log.dir",
    "log.dirs",
    "zookeeper.connect",
)


def _check_cluster_keys(keys: Mapping[str, object]) -> None:
    """Raise ConfigError for an invalid key, and for a key that the cluster sets itself for each broker."""
    plain = {name: value for name, value in keys.items() if not name.startswith(PREFIX)}
    parse_all(BrokerConfig.keys(), plain)
    parse_prefixed(keys)
    for name in _OF_THE_CLUSTER:
        if name in keys:
            raise ConfigError(f"{name} is set by the cluster for each broker; remove it")


def _is_key_of_a_broker(table: str, key: str) -> bool:
    """True if a user who writes `key` in `[broker.TABLE]` means the table of a single broker.

    False if `key` is not a broker key, or if TABLE.key is also a broker key. For example, TOML parses the broker
    key `advertised.listeners` as `listeners` in `[broker.advertised]`, which means no single broker.
    """
    keys = BrokerConfig.keys()
    return key in keys and f"{table}.{key}" not in keys


def _tables_of_brokers(tables: Mapping[str, Any]) -> set[str]:
    """Return the names of the tables for single brokers in `[broker]`, such as "1" for `[broker.1]`.

    Raises ConfigError if a number names a plain value instead of a table, and if a table is meant for a single
    broker but its name is not a valid broker number.
    """
    singles = {name for name in tables if name.isdecimal()}
    for name, value in tables.items():
        if name in singles and not isinstance(value, dict):
            raise ConfigError(f"broker.{name} must be a table: [broker.{name}]")
        # TOML parses `[broker.x]` and a key such as `x.broker.rack` in `[broker]` into the same table `x`.
        is_meant = isinstance(value, dict) and (
            not value or any(_is_key_of_a_broker(name, key) for key in flatten(value))
        )
        if (is_meant or name in singles) and not _BROKER_NUMBER.fullmatch(name):
            rule = "broker numbers start at 1, as in [broker.1]"
            raise ConfigError(f"[broker.{name}] names no broker: {rule}")
    return singles
