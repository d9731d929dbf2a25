"""The TLS context that Kafka's `ssl.*` keys describe."""

from __future__ import annotations

import ssl
from dataclasses import replace
from functools import partial
from typing import Final

from cryptography import x509

from minikafka.base.config.security import SecurityKeys
from minikafka.base.encryption import Expiry
from minikafka.base.errors import ConfigError
from minikafka.runtime.tls import Source
from minikafka.runtime.tls_changes import BetweenBrokers, InUse
from minikafka.runtime.tls_files import (
    OwnIdentity,
    Trust,
    client_context,
    identity_of_pem,
    load_identity,
    load_trust,
    server_context,
    trust_of_pem,
)

_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def context_of(keys: SecurityKeys, *, server: bool) -> ssl.SSLContext:
    """Return the context of a listener, or of connections to it. Raises ConfigError, which names the key."""
    return _context(keys, _identity(keys), _trust(keys), server=server)


def _context(
    keys: SecurityKeys, identity: OwnIdentity | None, trust: Trust | None, *, server: bool
) -> ssl.SSLContext:
    if not server:
        return client_context(
            "ssl",
            identity,
            trust,
            check_hostname=bool(keys.ssl_endpoint_identification_algorithm),
            protocols=keys.ssl_enabled_protocols,
            cipher_suites=keys.ssl_cipher_suites,
        )
    if trust is None and keys.ssl_client_auth != "none":
        raise ConfigError(
            "ssl.truststore.location is not set: name a PKCS12 or PEM file with the authorities of clients, because "
            f"ssl.client.auth is {keys.ssl_client_auth}"
        )
    if identity is None:
        raise ConfigError(
            "ssl.keystore.location is not set: name a PKCS12 or PEM file with the broker's key and certificates"
        )
    return server_context(
        "ssl",
        identity,
        trust,
        verify=_VERIFY[keys.ssl_client_auth],
        protocols=keys.ssl_enabled_protocols,
        cipher_suites=keys.ssl_cipher_suites,
    )


def expiries_of(keys: SecurityKeys) -> list[Expiry]:
    """Return when the certificates of the keystore and of the truststore expire. Raises ConfigError."""
    identity, trust = _identity(keys), _trust(keys)
    found = []
    if identity is not None:
        is_inline = keys.ssl_keystore_location is None
        source = "ssl.keystore.certificate.chain" if is_inline else identity.source
        found += [_expiry(source, each) for each in identity.certificates]
    if trust is not None:
        is_inline = keys.ssl_truststore_location is None
        source = "ssl.truststore.certificates" if is_inline else trust.source
        found += [_expiry(source, each) for each in trust.certificates]
    return found


def _expiry(source: str, certificate: x509.Certificate) -> Expiry:
    ends_ms = int(certificate.not_valid_after_utc.timestamp() * 1000)
    return Expiry(source, certificate.subject.rfc4514_string(), ends_ms)


def source_of(keys: SecurityKeys, *, server: bool, between: bool = False) -> Source:
    """Return the source of the context of a listener, or of connections to it.

    `between`: brokers connect to each other with these keys.
    """
    files = (keys.ssl_keystore_location, keys.ssl_truststore_location)
    named = [path for path in files if path is not None]
    load = partial(context_of, keys, server=server)
    return Source(load, named, partial(expiries_of, keys), partial(_in_use, keys, between=between))


def _in_use(keys: SecurityKeys, *, between: bool) -> InUse:
    identity, trust = _identity(keys), _trust(keys)
    if identity is None:
        return InUse(keys, None, trust is not None, None)
    sides = None
    if between:
        unnamed = replace(keys, ssl_endpoint_identification_algorithm="")
        sides = BetweenBrokers(
            _context(keys, identity, trust, server=True),
            _context(unnamed, identity, trust, server=False),
        )
    return InUse(keys, identity.certificates[0], trust is not None, sides)


def _identity(keys: SecurityKeys) -> OwnIdentity | None:
    key_password = keys.ssl_key_password or ""
    if keys.ssl_keystore_key is not None:
        if keys.ssl_keystore_location is not None:
            raise ConfigError("set ssl.keystore.location or ssl.keystore.key, not both")
        chain = keys.ssl_keystore_certificate_chain
        if chain is None:
            raise ConfigError("ssl.keystore.certificate.chain is not set, but ssl.keystore.key is")
        text = f"{keys.ssl_keystore_key}\n{chain}"
        return identity_of_pem(
            "ssl.keystore.key", "its value", text.encode(), key_password, "ssl.key.password"
        )
    if keys.ssl_keystore_location is None:
        return None
    return load_identity(
        "ssl.keystore",
        keys.ssl_keystore_location,
        keys.ssl_keystore_password or "",
        key_password,
        keys.ssl_keystore_type,
        opened_by="ssl.key.password",
    )


def _trust(keys: SecurityKeys) -> Trust | None:
    if keys.ssl_truststore_certificates is not None:
        if keys.ssl_truststore_location is not None:
            raise ConfigError(
                "set ssl.truststore.location or ssl.truststore.certificates, not both"
            )
        text = keys.ssl_truststore_certificates.encode()
        return trust_of_pem("ssl.truststore.certificates", "its value", text)
    if keys.ssl_truststore_location is None:
        return None
    return load_trust(
        "ssl.truststore",
        keys.ssl_truststore_location,
        keys.ssl_truststore_password or "",
        keys.ssl_truststore_type,
    )
