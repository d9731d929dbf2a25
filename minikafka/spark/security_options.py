"""The options that protect connections: `kafka.security.protocol`, `kafka.ssl.…` and `kafka.sasl.…`.

They are the keys of Kafka's clients with the prefix `kafka.`. No error contains the value of a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from minikafka.base.config.client import (
    IGNORED,
    KEYS,
    SECURITY_PREFIXES,
    ClientConfig,
    parsed_key,
)
from minikafka.base.errors import ConfigError

SERVERS: Final = "kafka.bootstrap.servers"
PREFIX: Final = "kafka."
PROTOCOL: Final = "kafka.security.protocol"
_PREFIXES: Final = tuple(PREFIX + name for name in SECURITY_PREFIXES)
_KEY: Final = re.compile(
    rf"(?<![\w./-])(?:{'|'.join(map(re.escape, sorted({*KEYS, *IGNORED}, key=len, reverse=True)))})(?![\w-])"
)
_ONLY_JAVA: Final = "Python's ssl and hashlib protect the connections"
_PAUSES: Final = "the pauses between attempts grow from 50 ms to 1 s"
_EACH_LOGIN: Final = "a token is read for each login, or fetched after a share of its life"
_ONE_TIMEOUT: Final = "kafka.sasl.login.read.timeout.ms also limits the time to connect"
_WITHOUT_EFFECT: Final = {
    "sasl.login.retry.backoff.ms": _PAUSES,
    "sasl.login.connect.timeout.ms": _ONE_TIMEOUT,
    "sasl.login.refresh.window.jitter": _EACH_LOGIN,
    "sasl.login.refresh.min.period.seconds": _EACH_LOGIN,
    "sasl.login.refresh.buffer.seconds": _EACH_LOGIN,
    "sasl.oauthbearer.scope.claim.name": _EACH_LOGIN,
}
_UNUSED: Final = "{} is {}, which does not use it"

MEANINGS: Final = {
    "kafka.security.protocol": "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.",
    "kafka.sasl.mechanism": "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`.",
    "kafka.sasl.jaas.config": "The login module with `username` and `password`, or for `OAUTHBEARER` with `token`, "
    "or with `clientId` and `clientSecret` of a token endpoint.",
    "kafka.sasl.oauthbearer.token.endpoint.url": "Where the token comes from: `file:///…`, which is read for each "
    "login, or `http://` or `https://` of a token endpoint.",
    "kafka.ssl.truststore.location": "A file with the certificates of trusted authorities: PEM, which each machine "
    "reads under this path, or PKCS12, which the driver reads. The authorities of the system are trusted if no "
    "truststore is set.",
    "kafka.ssl.truststore.password": "The password of a PKCS12 truststore.",
    "kafka.ssl.truststore.certificates": "The certificates themselves in PEM format, instead of a file.",
    "kafka.ssl.keystore.location": "A file with the client's private key and certificates: PEM, which each machine "
    "reads under this path, or PKCS12, which the driver reads.",
    "kafka.ssl.keystore.password": "The password of a PKCS12 keystore.",
    "kafka.ssl.keystore.key": "The private key itself in PEM format, instead of a file.",
    "kafka.ssl.keystore.certificate.chain": "The certificates of `kafka.ssl.keystore.key` in PEM format, the "
    "client's own first.",
    "kafka.ssl.key.password": "The password of an encrypted private key in PEM format.",
    "kafka.ssl.endpoint.identification.algorithm": "`https`: the certificate of a broker must have its host name. "
    "Empty: any name.",
    "kafka.ssl.enabled.protocols": "The versions of TLS.",
    "kafka.ssl.cipher.suites": "The cipher suites, by Java's names; those of OpenSSL if not set.",
}
"""The meaning of the most important options, for docs/spark-options.md."""


NAMES: Final = tuple(PREFIX + name for name in KEYS)
"""The options that have an effect."""


def default_of(option: str) -> str:
    """Return the default of an option of `MEANINGS` as text."""
    row = KEYS[option.removeprefix(PREFIX)]
    return row.text(row.default) or ""


def is_of_security(option: str) -> bool:
    """True if an option, in lower case, protects connections."""
    return option.startswith(_PREFIXES)


def connection_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return those options of a read or write that say how to connect: the brokers, and what protects connections."""
    return {
        name: value
        for name, value in options.items()
        if name.lower() == SERVERS or is_of_security(name.lower())
    }


def parse(given: Mapping[str, str]) -> tuple[ClientConfig, dict[str, str]]:
    """Return how to connect, and the options without an effect, each with what happens instead. Raises ConfigError.

    `given`: the options of security by lower-case name.
    """
    values: dict[str, Any] = {}
    ignored = {}
    for option, text in given.items():
        key = option.removeprefix(PREFIX)
        try:
            found = parsed_key(key, text)
        except ConfigError as error:
            raise ConfigError(_about(key, str(error))) from None
        values |= found
        if not found or key in _WITHOUT_EFFECT:
            ignored[option] = _WITHOUT_EFFECT.get(key, _ONLY_JAVA)
    config = ClientConfig(**values)
    return config, ignored | _unused(config, given)


def _about(key: str, text: str) -> str:
    """Return the text of an error about a key with the name of the option instead."""
    found = by_option(text.replace(key, PREFIX + key, 1))
    return (
        found.replace("unknown key", "unknown option")
        if "unknown key" in found
        else f"option {found}"
    )


def _unused(config: ClientConfig, given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the security protocol does not use."""
    protocol = config.protocol
    unused = {"kafka.ssl.": not protocol.is_encrypted, "kafka.sasl.": not protocol.is_sasl}
    text = _UNUSED.format(PROTOCOL, protocol.value)
    return {
        name: text
        for name in given
        for prefix, is_unused in unused.items()
        if is_unused and name.startswith(prefix)
    }


def by_option(text: str) -> str:
    """Return a text about keys of Kafka's clients with the names of the options instead."""
    return _KEY.sub(lambda match: PREFIX + match[0], text)
