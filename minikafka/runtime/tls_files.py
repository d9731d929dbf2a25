"""Keys and certificates from PEM and PKCS12, and the `ssl.SSLContext` that is made of them.

Errors are ConfigError, and name the configuration key: `names` is its beginning, such as `ssl.keystore` for the keys
`ssl.keystore.location` and `ssl.keystore.password`. No password and no private key is in a text or in `repr`. The
format of a file is found by its content. Java's own formats, JKS and JCEKS, cannot be read.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import pkcs12

from minikafka.base.errors import ConfigError

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
PROTOCOLS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
"""The versions of TLS that are served, by Java's names."""
PEM: Final = "PEM"
PKCS12: Final = "PKCS12"
_JAVA_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""The first bytes of the formats JKS and JCEKS."""
_DER_SEQUENCE: Final = b"\x30"
_SUITES_1_3: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
_SUITE: Final = re.compile(r"TLS_(?:(ECDHE|DHE)_)?(RSA|ECDSA)_WITH_([A-Z0-9_]+)")
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


@dataclass(frozen=True)
class Trust:
    """The certificates of the authorities that are trusted. `source`: the file or key they came from."""

    source: str
    certificates: tuple[x509.Certificate, ...]


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
    data = _content(names, location, kind)
    key_name = f"{names}.location"
    if not data.startswith(_DER_SEQUENCE):
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
    data = _content(names, location, kind)
    if not data.startswith(_DER_SEQUENCE):
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


def _content(names: str, location: str, kind: str) -> bytes:
    """Return the bytes of a file whose format can be read, and is the named one."""
    try:
        with open(location, "rb") as file:
            data = file.read()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{names}.location: {location} cannot be read: {reason}") from error
    if data.startswith(_JAVA_MAGIC):
        target = location.removesuffix(".jks") + ".p12"
        command = f"keytool -importkeystore -srckeystore {location} -destkeystore {target}"
        raise ConfigError(
            f"{names}.location: {location} is a Java keystore (JKS), which cannot be read; "
            f"convert it: {command} -deststoretype PKCS12"
        )
    found = PKCS12 if data.startswith(_DER_SEQUENCE) else PEM
    if kind.upper() not in ("", "JKS", found):
        raise ConfigError(f"{names}.type is {kind}, but {location} is not; its format is {found}")
    return data


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
    _restrict(context, names, protocols, cipher_suites)
    _install(context, identity)
    if verify is not ssl.CERT_NONE:
        if trust is None:
            wanted = "certificates of clients are checked with it"
            raise ConfigError(f"{names}: no truststore is set, but {wanted}")
        _trust(context, trust)
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
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, names, protocols, cipher_suites)
    context.check_hostname = check_hostname
    if trust is None:
        context.load_default_certs()
    else:
        _trust(context, trust)
    if identity is not None:
        _install(context, identity)
    return context


def _trust(context: ssl.SSLContext, trust: Trust) -> None:
    encoded = (item.public_bytes(serialization.Encoding.DER) for item in trust.certificates)
    context.load_verify_locations(cadata=b"".join(encoded))
    # An authority that is not self-signed is trusted too, as in Java.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _install(context: ssl.SSLContext, identity: OwnIdentity) -> None:
    try:
        with _readable(identity.pem()) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        reason = "the private key does not belong to the certificate"
        if error.reason != "KEY_VALUES_MISMATCH":
            reason = error.reason or str(error)
        raise ConfigError(f"{identity.key}: {identity.source} cannot be used: {reason}") from error


@contextmanager
def _readable(data: bytes) -> Iterator[str]:
    """Yield the name of a file with these bytes, which OpenSSL can read. On Linux, it is never on a disk."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("identity")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.NamedTemporaryFile() as named:  # mode 0600
        named.write(data)
        named.flush()
        yield named.name


def _restrict(
    context: ssl.SSLContext, names: str, protocols: Sequence[str], cipher_suites: Sequence[str]
) -> None:
    """Allow only these protocols and cipher suites."""
    for name in protocols:
        if name not in PROTOCOLS:
            raise ConfigError(
                f"{names}.enabled.protocols: {name} is not one of {', '.join(PROTOCOLS)}"
            )
    if not protocols:
        raise ConfigError(f"{names}.enabled.protocols is empty: name {' or '.join(PROTOCOLS)}")
    allowed = [PROTOCOLS[name] for name in protocols]
    if cipher_suites:
        allowed = _restrict_suites(context, names, allowed, cipher_suites)
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)


def _restrict_suites(
    context: ssl.SSLContext,
    names: str,
    protocols: Sequence[ssl.TLSVersion],
    cipher_suites: Sequence[str],
) -> list[ssl.TLSVersion]:
    """Allow only these suites; return the protocols that have one of them."""
    key = f"{names}.cipher.suites"
    own = _SUITES_1_3.intersection(cipher_suites)
    if own and own != _SUITES_1_3:
        raise ConfigError(f"{key}: of TLS 1.3, name all suites or none: {', '.join(_SUITES_1_3)}")
    old = [name for name in cipher_suites if name not in _SUITES_1_3]
    if old:
        try:
            context.set_ciphers(":".join(_openssl_name(key, name) for name in old))
        except ssl.SSLError as error:
            raise ConfigError(f"{key}: OpenSSL has none of {', '.join(old)}") from error
    found = [
        version for version in protocols if (own if version is ssl.TLSVersion.TLSv1_3 else old)
    ]
    if not found:
        raise ConfigError(f"{key}: none of them belongs to a protocol of {names}.enabled.protocols")
    return found


def _openssl_name(key: str, name: str) -> str:
    """Return OpenSSL's name of a suite, such as ECDHE-RSA-AES256-GCM-SHA384, for Java's name."""
    match = _SUITE.fullmatch(name)
    if match is None:
        raise ConfigError(f"{key}: {name} is not a cipher suite of TLS 1.2 or 1.3")
    exchange, signature, cipher = match.groups()
    cipher = re.sub(r"AES_(128|256)", r"AES\1", cipher).replace("_", "-")
    cipher = cipher.replace("CHACHA20-POLY1305-SHA256", "CHACHA20-POLY1305").replace("-CBC-", "-")
    return "-".join(part for part in (exchange, signature if exchange else "", cipher) if part)
