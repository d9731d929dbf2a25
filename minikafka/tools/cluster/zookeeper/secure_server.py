"""How minikafka's ZooKeeper server encrypts and authenticates, from its configuration file (`--config`)."""

from __future__ import annotations

import ssl
from functools import partial
from typing import Final

from minikafka.base.errors import ConfigError
from minikafka.runtime.tls import TlsServer
from minikafka.zookeeper.server.authentication import ClientAuthentication
from minikafka.zookeeper.server.config import (
    JAAS_FILE,
    NEED,
    NONE,
    WANT,
    ServerKeys,
    authentication_of,
    parse,
)
from minikafka.zookeeper.server.server import SecurePort

_VERIFY: Final = {NEED: ssl.CERT_REQUIRED, WANT: ssl.CERT_OPTIONAL, NONE: ssl.CERT_NONE}


def load_security(file: str, host: str) -> tuple[ClientAuthentication, SecurePort | None]:
    """Return who may do what at the server, and its port with TLS.

    `host`: address of that port, if the file names none. Raises ConfigError, whose text names the file and the key.
    """
    try:
        keys = parse(_content("--config", file))
        jaas = keys.java_security_auth_login_config
        text = None if jaas is None else _content(JAAS_FILE, jaas)
        return authentication_of(keys, text), _secure_port(keys, host)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error


def _secure_port(keys: ServerKeys, host: str) -> SecurePort | None:
    if keys.secureClientPort is None:
        return None
    stores = (keys.ssl_keyStore_location, keys.ssl_trustStore_location)
    tls = TlsServer(partial(_server_context, keys), [file for file in stores if file is not None])
    return SecurePort(keys.secureClientPortAddress or host, keys.secureClientPort, tls)


def _server_context(keys: ServerKeys) -> ssl.SSLContext:
    from minikafka.runtime import tls_files  # cryptography takes 30 ms

    assert keys.ssl_keyStore_location is not None
    identity = tls_files.load_identity(
        "ssl.keyStore",
        keys.ssl_keyStore_location,
        keys.ssl_keyStore_password,
        kind=keys.ssl_keyStore_type,
    )
    trust = None
    if keys.ssl_trustStore_location is not None:
        trust = tls_files.load_trust(
            "ssl.trustStore",
            keys.ssl_trustStore_location,
            keys.ssl_trustStore_password,
            keys.ssl_trustStore_type,
        )
    return tls_files.server_context(
        "ssl",
        identity,
        trust,
        verify=_VERIFY[keys.ssl_clientAuth.lower()],
        protocols=keys.ssl_enabledProtocols,
        cipher_suites=keys.ssl_ciphersuites,
    )


def _content(key: str, name: str) -> str:
    try:
        with open(name, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"{key}: {name} cannot be read: {reason}") from error
