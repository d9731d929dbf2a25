"""The TLS context of connections to brokers, from the options `kafka.ssl.…`.

Executors need no library for it. Files in PEM format are read again when they change, so that they may be replaced
while a query runs. Errors name the keys of Kafka's clients.
"""

from __future__ import annotations

import os
import socket
import ssl
from functools import lru_cache
from typing import Final

from minikafka.base.config.client import ClientConfig
from minikafka.base.errors import ConfigError
from minikafka.runtime.tls_contexts import PemIdentity, new_client_context, with_line_ends

_CONTEXTS_MAX: Final = 8


def context_of(config: ClientConfig) -> ssl.SSLContext:
    """Return the context of these options. It is made again when a file of them has changed. Raises ConfigError."""
    files = {
        "ssl.keystore": config.ssl_keystore_location,
        "ssl.truststore": config.ssl_truststore_location,
    }
    return _context(config, tuple(_stamp(name, path) for name, path in files.items() if path))


def _stamp(name: str, path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError as error:
        raise _unreadable(name, path, error) from None
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=_CONTEXTS_MAX)
def _context(config: ClientConfig, _: tuple[tuple[int, int], ...]) -> ssl.SSLContext:
    authorities, source = _authorities(config)
    try:
        return new_client_context(
            "ssl",
            _identity(config),
            authorities,
            check_hostname=bool(config.ssl_endpoint_identification_algorithm),
            protocols=config.ssl_enabled_protocols,
            cipher_suites=config.ssl_cipher_suites,
        )
    except ssl.SSLError as error:
        raise ConfigError(f"{source} has no certificate in PEM format") from error


def _authorities(config: ClientConfig) -> tuple[str | None, str]:
    """Return the certificates of the trusted authorities, and where they are from. None: those of the system."""
    inline, path = config.ssl_truststore_certificates, config.ssl_truststore_location
    if inline is not None:
        if path is not None:
            raise ConfigError(
                "ssl.truststore.location and ssl.truststore.certificates exclude each other: remove one"
            )
        return with_line_ends(inline), "ssl.truststore.certificates"
    if path is None:
        return None, "ssl.truststore.location"
    return _text("ssl.truststore", path), f"ssl.truststore.location: {path}"


def _identity(config: ClientConfig) -> PemIdentity | None:
    key, path = config.ssl_keystore_key, config.ssl_keystore_location
    password = config.ssl_key_password or ""
    if key is not None:
        if path is not None:
            raise ConfigError(
                "ssl.keystore.location and ssl.keystore.key exclude each other: remove one"
            )
        chain = config.ssl_keystore_certificate_chain
        if chain is None:
            raise ConfigError("ssl.keystore.certificate.chain is not set, but ssl.keystore.key is")
        pem = with_line_ends(f"{key}\n{chain}").encode()
        return PemIdentity("ssl.keystore.key", "its value", pem, password, "ssl.key.password")
    if path is None:
        return None
    pem = _text("ssl.keystore", path).encode()
    return PemIdentity("ssl.keystore.location", path, pem, password, "ssl.key.password")


def _text(name: str, path: str) -> str:
    try:
        with open(path, encoding="latin-1") as file:
            return with_line_ends(file.read())
    except OSError as error:
        raise _unreadable(name, path, error) from None


def _unreadable(name: str, path: str, error: OSError) -> ConfigError:
    inline = "ssl.keystore.key" if name == "ssl.keystore" else "ssl.truststore.certificates"
    return ConfigError(
        f"{name}.location: {path} cannot be read on {socket.gethostname()}: {error.strerror or error}; "
        f"place it on every machine under this path, or give its text in {inline}"
    )
