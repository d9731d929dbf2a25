"""Kafka's own file of a broker, `server.properties`: which of its keys minikafka reads.

A key of Kafka 3.9 that minikafka does not implement has no effect. If a broker without its effect would give more
access, keep records less safely or lack a limit, the file is refused. All other such keys are named once at the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from minikafka.base.config.broker import BrokerConfig
from minikafka.base.config.security import PREFIX, listener_key
from minikafka.base.errors import ConfigError
from minikafka.base.properties import Property

BROKER_ID: Final = "broker.id"
NODE_ID: Final = "node.id"
_SIMILAR: Final = 0.85
"""An unknown name is taken for a misspelt key if its similarity to a key of Kafka's is at least this."""
_KRAFT: Final = "minikafka runs with ZooKeeper, without KRaft"
_TIERED: Final = "minikafka has no tiered storage"
_PLUGINS: Final = "minikafka loads no Java classes"
_REVOKED: Final = "certificates that were revoked would be accepted"
_VALIDATORS: Final = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{part}OAuthBearerValidatorCallbackHandler"
    for part in ("", "secured.")
)


class _Needed(NamedTuple):
    """What would be lost without a key's effect, and the values with which nothing is lost."""

    loss: str
    harmless: tuple[str, ...] = ()


_NEEDED: Final = {
    "alter.config.policy.class.name": _Needed(f"{_PLUGINS}, so every change would be allowed"),
    "client.quota.callback.class": _Needed(f"{_PLUGINS}, so its quotas would not count"),
    "config.providers": _Needed("write the values into the file"),
    "controller.listener.names": _Needed(_KRAFT),
    "controller.quorum.bootstrap.servers": _Needed(_KRAFT),
    "controller.quorum.voters": _Needed(_KRAFT),
    "create.topic.policy.class.name": _Needed(f"{_PLUGINS}, so every topic would be allowed"),
    "principal.builder.class": _Needed(
        f"{_PLUGINS}, so users would have other names",
        ("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",),
    ),
    "process.roles": _Needed(_KRAFT),
    "queued.max.request.bytes": _Needed("requests that wait would have another limit", ("-1",)),
    "remote.log.storage.system.enable": _Needed(_TIERED, ("false",)),
    "sasl.client.callback.handler.class": _Needed(_PLUGINS),
    "sasl.login.class": _Needed(_PLUGINS),
    "sasl.server.callback.handler.class": _Needed(_PLUGINS, _VALIDATORS),
    "security.providers": _Needed(_PLUGINS),
    "ssl.engine.factory.class": _Needed(_PLUGINS),
    "ssl.protocol": _Needed("set ssl.enabled.protocols", ("TLS", "TLSv1.2", "TLSv1.3")),
    "ssl.provider": _Needed("TLS is OpenSSL's"),
    "ssl.trustmanager.algorithm": _Needed("certificates are checked by PKIX", ("PKIX",)),
    "zookeeper.metadata.migration.enable": _Needed(_KRAFT, ("false",)),
    "zookeeper.ssl.crl.enable": _Needed(_REVOKED, ("false",)),
    "zookeeper.ssl.ocsp.enable": _Needed(_REVOKED, ("false",)),
}
"""The keys without which a broker would give more access, keep records less safely or lack a limit."""

_READ: Final = {*BrokerConfig.keys(), NODE_ID}
_HARMLESS: Final = (
    "alter.log.dirs.replication.quota.",
    "auto.include.jmx.reporter",
    "background.threads",
    "broker.heartbeat.",
    "broker.id.generation.enable",
    "broker.session.timeout.ms",
    "controller.quorum.",
    "delete.records.purgatory.",
    "early.start.listeners",
    "eligible.leader.replicas.enable",
    "fetch.purgatory.",
    "group.consumer.",
    "group.coordinator.",
    "group.share.",
    "initial.broker.registration.",
    "inter.broker.protocol.version",
    "kafka.metrics.",
    "log.dir.failure.timeout.ms",
    "log.flush.scheduler.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "log.local.retention.",
    "max.request.partition.size.limit",
    "metadata.",
    "metric.reporters",
    "metrics.",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.alter.log.dirs.threads",
    "num.replica.fetchers",
    "offsets.commit.required.acks",
    "producer.id.expiration.check.interval.ms",
    "producer.purgatory.",
    "queued.max.requests",
    "remote.",
    "replica.socket.receive.buffer.bytes",
    "request.timeout.ms",
    "reserved.broker.max.id",
    "sasl.kerberos.",
    "sasl.login.callback.handler.class",
    "sasl.mechanism.controller.protocol",
    "server.max.startup.time.ms",
    "socket.connection.setup.",
    "socket.listen.backlog.size",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "ssl.keymanager.algorithm",
    "ssl.secure.random.implementation",
    "telemetry.max.bytes",
    "unclean.leader.election.interval.ms",
    "unstable.",
    "zookeeper.max.in.flight.requests",
    "zookeeper.metadata.migration.min.batch.size",
)
"""Beginnings of keys of threads, buffers, times, metrics and KRaft, and of features that another key switches on."""


class KafkaFile(NamedTuple):
    """The content of a `server.properties`.

    `values`: the text of each key that minikafka reads. `unread`: the lines of the keys that have no effect, by name.
    """

    values: dict[str, str]
    unread: dict[str, int]


def read_kafka_file(entries: Iterable[Property]) -> KafkaFile:
    """Return what the entries mean. Of two entries with one name the last one counts, as in Java.

    Raises ConfigError for a key whose effect is needed and missing, and for one that is probably misspelt.
    """
    found = {entry.name: entry for entry in entries}
    values, unread = {}, {}
    for name, (_, value, line) in found.items():
        if _is_read(name):
            values[name] = value.strip()
        else:
            _check_unread(name, value.strip())
        if name not in values or _waits(name):
            unread[name] = line
    return KafkaFile(_with_id(values), unread)


def effect_of(name: str) -> str:
    """Return whether a key is "read", is "needed" and missing, is "harmless", or is "unknown" to Kafka 3.9."""
    base = _without_listener(name)
    if _is_read(name):
        return "read"
    if base in _NEEDED:
        return "needed"
    return "harmless" if base.startswith(_HARMLESS) else "unknown"


def _is_read(name: str) -> bool:
    """True if minikafka reads the key, also if only for one listener."""
    try:
        return name in _READ or listener_key(name) is not None
    except ConfigError:
        return False


def _waits(name: str) -> bool:
    """True if minikafka reads the key, but lacks the feature that it belongs to."""
    row = BrokerConfig.keys().get(name)
    return row is not None and bool(row.waits_for)


def _check_unread(name: str, value: str) -> None:
    base = _without_listener(name)
    needed = _NEEDED.get(base)
    if needed is not None and value and value not in needed.harmless:
        raise ConfigError(f"{name} is not implemented: {needed.loss}; remove it")
    if effect_of(name) == "unknown":
        known = [*_READ, *_NEEDED, *_HARMLESS]
        if meant := get_close_matches(base, known, n=1, cutoff=_SIMILAR):
            raise ConfigError(f"unknown key {name}; did you mean {meant[0]}?")


def _without_listener(name: str) -> str:
    """Return the key that `listener.name.NAME.KEY` or `listener.name.NAME.MECHANISM.KEY` sets."""
    if not name.startswith(PREFIX):
        return name
    rest = name.removeprefix(PREFIX).partition(".")[2]
    of_mechanism = rest.partition(".")[2]
    is_known = of_mechanism in _NEEDED or of_mechanism.startswith(_HARMLESS)
    return of_mechanism if is_known else rest


def _with_id(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values with the id as `broker.id`, without an id that Kafka would choose. Raises ConfigError."""
    ids = {values[name] for name in (BROKER_ID, NODE_ID) if values.get(name, "-1") != "-1"}
    if len(ids) > 1:
        raise ConfigError("node.id must be equal to broker.id; remove node.id")
    others = {name: text for name, text in values.items() if name not in (BROKER_ID, NODE_ID)}
    return {**others, BROKER_ID: ids.pop()} if ids else others
