"""The configuration keys of a client's connections: the properties file of Kafka's tools (`--command-config`).

A key without an effect here is ignored if a connection without it is as secure as with it. Otherwise it is refused:
a misspelt key, or a key of a feature that does not exist here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from minikafka.base.config.keys import ConfigType, key, table
from minikafka.base.config.security import GSSAPI, SecurityKeys
from minikafka.base.endpoints import PLAINTEXT, SecurityProtocol
from minikafka.base.errors import ConfigError
from minikafka.base.properties import Property

_WHITESPACE: Final = "".join(map(chr, range(33)))
"""The characters that Java's `trim` removes."""
_NEAR: Final = 0.85
"""A name is a misspelt key of `KEYS` if its similarity (difflib ratio) to one of them is at least this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(SecurityKeys):
    """How a client connects to brokers. `KEYS` lists the keys that a file may set."""

    security_protocol: str = key(
        ConfigType.STRING,
        PLAINTEXT.value,
        "Whether connections use TLS, SASL or both.",
        choices=tuple(item.value for item in SecurityProtocol),
    )
    sasl_mechanism: str = key(
        ConfigType.STRING, GSSAPI, "SASL mechanism of the login. GSSAPI is not implemented."
    )

    @property
    def protocol(self) -> SecurityProtocol:
        """The value of `security.protocol`."""
        return SecurityProtocol(self.security_protocol)


_OF_BROKERS: Final = {
    "ssl.client.auth",
    "ssl.principal.mapping.rules",
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    "sasl.enabled.mechanisms",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.server.max.receive.size",
    "connections.max.reauth.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
}
KEYS: Final = {name: row for name, row in table(ClientConfig).items() if name not in _OF_BROKERS}
"""The keys that a file may set, by name."""
_REFUSED: Final = {
    "config.providers": "values that are kept elsewhere cannot be read: write them into the file",
    "security.providers": "Java's security providers cannot be used",
    "ssl.provider": "Java's security providers cannot be used",
    "ssl.engine.factory.class": "Java classes cannot be used",
    "sasl.client.callback.handler.class": "Java classes cannot be used: write sasl.jaas.config",
    "sasl.login.callback.handler.class": "Java classes cannot be used: write sasl.jaas.config",
    "sasl.login.class": "Java classes cannot be used: write sasl.jaas.config",
}
"""The keys of Kafka's clients that are refused, with the reason."""
_OWN_CLASSES: Final = {
    "sasl.login.callback.handler.class": tuple(
        f"org.apache.kafka.common.security.oauthbearer.{part}OAuthBearerLoginCallbackHandler"
        for part in ("", "secured.")
    )
}
"""The Java classes that do what is done here without them."""
IGNORED: Final = _OF_BROKERS | {
    "ssl.protocol",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
}
"""The keys of TLS and SASL that have no effect on the connections of a client here."""
_IGNORED_PREFIXES: Final = ("sasl.kerberos.",)
SECURITY_PREFIXES: Final = ("security.", "ssl.", "sasl.")
"""The beginnings of the names of all keys that protect connections."""
_OF_LIBRDKAFKA: Final = {
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.key.location": "ssl.keystore.location",
    "sasl.username": "sasl.jaas.config",
    "sasl.password": "sasl.jaas.config",
    "enable.ssl.certificate.verification": "ssl.endpoint.identification.algorithm",
}
"""Keys of librdkafka, with the key of Kafka's Java clients that has the same purpose."""


def is_of_security(name: str) -> bool:
    """True for a key that `client_config` does not ignore."""
    return name in KEYS or name in _REFUSED or name.lower().startswith(SECURITY_PREFIXES)


def is_secret(name: str) -> bool:
    """True for a key whose value nobody else may see."""
    return name in KEYS and KEYS[name].sensitive


def client_config(entries: Iterable[Property]) -> ClientConfig:
    """Return the configuration that the entries of a properties file describe. Raises ConfigError, with the line."""
    values: dict[str, Any] = {}
    for name, value, line in entries:
        try:
            values |= parsed_key(name, value)
        except ConfigError as error:
            raise ConfigError(f"line {line}: {error}") from None
    return ClientConfig(**values)


def parsed_key(name: str, value: str) -> dict[str, Any]:
    """Return the checked value of a key by the attribute of `ClientConfig`; {} for a key without an effect here.

    Raises ConfigError.
    """
    if name in KEYS:
        return {KEYS[name].attribute: KEYS[name].parse(_as_kafka_reads(name, value))}
    _check_ignored(name, value)
    return {}


def _as_kafka_reads(name: str, value: str) -> str:
    trimmed = value.strip(_WHITESPACE)
    if name == "security.protocol":
        return trimmed.upper()
    return trimmed.lower() if name == "ssl.endpoint.identification.algorithm" else trimmed


def _check_ignored(name: str, value: str) -> None:
    """Raise ConfigError for a key that is not in `KEYS`, if a connection without it could be less secure."""
    if name in _REFUSED:
        if value.strip(_WHITESPACE) not in ("", *_OWN_CLASSES.get(name, ())):
            raise ConfigError(f"{name}: {_REFUSED[name]}")
    elif name in _OF_LIBRDKAFKA:
        raise ConfigError(
            f"{name} is a key of librdkafka, not of Kafka; write {_OF_LIBRDKAFKA[name]}"
        )
    elif name not in IGNORED and not name.startswith(_IGNORED_PREFIXES):
        lower = name.lower().replace("_", ".")
        near = difflib.get_close_matches(lower, KEYS, n=1, cutoff=_NEAR)
        if near or lower.startswith(SECURITY_PREFIXES):
            known = f"did you mean {near[0]}?" if near else f"known keys are {', '.join(KEYS)}"
            raise ConfigError(f"unknown key {name}; {known}")
