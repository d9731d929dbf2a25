"""Keys and certificates from files of PEM and PKCS12, and the `ssl.SSLContext` that is made of them.

Errors are ConfigError, and name the configuration key: `names` is its beginning, such as `ssl.keystore` for the keys
`ssl.keystore.location` and `ssl.keystore.password`. No password and no private key is in a text or in `repr`. The
format of a file is found by its content. Java's own formats, JKS and JCEKS, cannot be read.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import pkcs12

from minikafka.base.errors import ConfigError
from minikafka.runtime.tls_contexts import (
    TLS_1_2,
    TLS_1_3,
    PemIdentity,
    content_of,
    install_identity,
    is_pkcs12,
    new_client_context,
    restrict,
    trust_authorities,
)

_KEY_BLOCK: Final = re.compile(
    rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL
)


@dataclass(frozen=True)
class OwnIdentity:
    """A private key with its certificates, the own one first. `source`: the file or key it came from."""

    key: str
    """The configuration key, for errors."""
    source: str
    certificates: tuple[x509.Certificate, ...]
    key_pem: bytes = field(repr=False)
    """The private key without encryption (PKCS8)."""

    def pem(self) -> bytes:
        """Return the key and the certificates as one PEM text."""
        chain = (item.public_bytes(serialization.Encoding.PEM) for item in self.certificates)
        return self.key_pem + b"".join(chain)

    def in_pem(self) -> PemIdentity:
        """Return the key and the certificates for a context."""
        return PemIdentity(self.key, self.source, self.pem())


@dataclass(frozen=True)
class Trust:
    """The certificates of the authorities that are trusted. `source`: the file or key they came from."""

    source: str
    certificates: tuple[x509.Certificate, ...]

    def der(self) -> bytes:
        """Return the certificates, one behind the other, in the format DER."""
        return b"".join(item.public_bytes(serialization.Encoding.DER) for item in self.certificates)

    def pem(self) -> str:
        """Return the certificates as one PEM text."""
        found = (item.public_bytes(serialization.Encoding.PEM) for item in self.certificates)
        return b"".join(found).decode()


# ---- reading


def load_identity(
    names: str,
    location: str,
    password: str = "",
    key_password: str = "",
    kind: str = "",
    *,
    opened_by: str = "",
) -> OwnIdentity:
    """Return the key and the certificates of a file.

    `password` opens a PKCS12 file, `key_password` the private key of a PEM file. `kind`: the value of the key
    `….type`, which must be that of the file; JKS, which Kafka assumes, and "" stand for any. `opened_by`: the
    configuration key of `key_password`.
    """
    data = content_of(names, location, kind)
    key_name = f"{names}.location"
    if not is_pkcs12(data):
        lock = opened_by or f"{names}.password"
        return identity_of_pem(key_name, location, data, key_password or password, lock)
    try:
        key, own, others = pkcs12.load_key_and_certificates(data, password.encode() or None)
    except ValueError as error:
        raise _unreadable(names, location, password) from error
    if key is None or own is None:
        raise ConfigError(f"{key_name}: {location} contains no private key with certificate")
    return OwnIdentity(key_name, location, _chain(own, others), _plain(key))


def identity_of_pem(
    key_name: str, source: str, data: bytes, password: str = "", opened_by: str = ""
) -> OwnIdentity:
    """Return the key and the certificates of PEM texts: a file, or the inline values of the configuration.

    `key_name` and `opened_by`: the configuration keys of the texts and of `password`.
    """
    block = _KEY_BLOCK.search(data)
    if block is None:
        raise ConfigError(f"{key_name}: {source} has no block BEGIN PRIVATE KEY")
    try:
        key = serialization.load_pem_private_key(block[0], password.encode() or None)
    except TypeError as error:  # encrypted without a password, or the other way round
        need = "the key is not encrypted: leave it out" if password else "it is not set"
        raise _locked(key_name, source, opened_by, need) from error
    except ValueError as error:
        raise _locked(key_name, source, opened_by, "it is wrong, or the text is damaged") from error
    first, *others = _pem_certificates(key_name, source, data)
    return OwnIdentity(key_name, source, _chain(first, others), _plain(key))


def load_trust(names: str, location: str, password: str = "", kind: str = "") -> Trust:
    """Return the certificates of the trusted authorities in a file. The arguments are those of `load_identity`."""
    data = content_of(names, location, kind)
    if not is_pkcs12(data):
        return trust_of_pem(f"{names}.location", location, data)
    try:
        store = pkcs12.load_pkcs12(data, password.encode() or None)
    except ValueError as error:
        raise _unreadable(names, location, password) from error
    found = [store.cert, *store.additional_certs]
    certificates = tuple(item.certificate for item in found if item is not None)
    if not certificates:
        raise ConfigError(f"{names}.location: {location} contains no certificate")
    return Trust(location, certificates)


def trust_of_pem(key_name: str, source: str, data: bytes) -> Trust:
    """Return the certificates of trusted authorities of a PEM text."""
    return Trust(source, tuple(_pem_certificates(key_name, source, data)))


def _unreadable(names: str, location: str, password: str) -> ConfigError:
    reason = "is wrong, or the file is damaged" if password else "is not set"
    return ConfigError(f"{names}.password: {location} does not open: the password {reason}")


def _locked(key_name: str, source: str, opened_by: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{key_name}: the private key of {source} does not open with {opened_by}: {reason}"
    )


def _pem_certificates(key_name: str, source: str, data: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise ConfigError(f"{key_name}: {source} has no certificate in PEM format") from error


def _plain(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _chain(
    own: x509.Certificate, others: Iterable[x509.Certificate]
) -> tuple[x509.Certificate, ...]:
    """Return the own certificate, and behind each certificate that of its issuer. A PKCS12 file has any order."""
    chain, rest = [own], [item for item in others if item != own]
    while True:
        issuer = next((item for item in rest if item.subject == chain[-1].issuer), None)
        if issuer is None or issuer in chain:
            return tuple(chain)
        chain.append(issuer)
        rest.remove(issuer)


# ---- contexts


def server_context(
    names: str,
    identity: OwnIdentity,
    trust: Trust | None,
    *,
    verify: ssl.VerifyMode,
    protocols: Sequence[str] = (TLS_1_2, TLS_1_3),
    cipher_suites: Sequence[str] = (),
) -> ssl.SSLContext:
    """Return the context of a server. `verify`: whether clients may or must have a certificate.

    `names`: the beginning of the keys, such as `ssl`. Without `trust`, certificates of clients cannot be checked.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    restrict(context, names, protocols, cipher_suites)
    install_identity(context, identity.in_pem())
    if verify is not ssl.CERT_NONE:
        if trust is None:
            wanted = "certificates of clients are checked with it"
            raise ConfigError(f"{names}: no truststore is set, but {wanted}")
        trust_authorities(context, trust.der())
    context.verify_mode = verify
    context.num_tickets = 0  # no resumption: every connection shows its certificate
    return context


def client_context(
    names: str,
    identity: OwnIdentity | None,
    trust: Trust | None,
    *,
    check_hostname: bool,
    protocols: Sequence[str] = (TLS_1_2, TLS_1_3),
    cipher_suites: Sequence[str] = (),
) -> ssl.SSLContext:
    """Return the context of a client. Without `trust`, the authorities of the system are trusted."""
    return new_client_context(
        names,
        None if identity is None else identity.in_pem(),
        None if trust is None else trust.der(),
        check_hostname=check_hostname,
        protocols=protocols,
        cipher_suites=cipher_suites,
    )
