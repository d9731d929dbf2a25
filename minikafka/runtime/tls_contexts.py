"""The TLS contexts of Python's `ssl`, from keys and certificates in PEM format.

This module needs no library, so the executors of Spark use it too. Errors are ConfigError, and name the configuration
key: `names` is its beginning, such as `ssl` for `ssl.cipher.suites`. No password and no private key is in a text or in
`repr`.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from textwrap import fill
from typing import Final

from minikafka.base.errors import ConfigError

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
PROTOCOLS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
"""The versions of TLS that are served, by Java's names."""
_SUITES_1_3: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
_SUITE: Final = re.compile(r"TLS_(?:(ECDHE|DHE)_)?(RSA|ECDSA)_WITH_([A-Z0-9_]+)")
PEM: Final = "PEM"
PKCS12: Final = "PKCS12"
_JAVA_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""The first bytes of the formats JKS and JCEKS."""
_DER_SEQUENCE: Final = b"\x30"
_BLOCK: Final = re.compile(r"(-----BEGIN ([A-Z0-9 ]+)-----)([A-Za-z0-9+/=\s]+)(-----END \2-----)")
_LINE: Final = 64
"""Length of a line of a PEM text."""
_NO_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)
"""OpenSSL's reasons when the other side sends something else than TLS."""
EXPIRED: Final = 10
"""OpenSSL's code of a certificate that has expired (X509_V_ERR_CERT_HAS_EXPIRED)."""
_OTHER_NAME: Final = (62, 64)
"""OpenSSL's codes of a certificate for another host name, or for another IP address."""
RENEWAL: Final = (
    "`minikafka up` replaces it in a secure cluster, else replace the file of the broker"
)


def content_of(names: str, location: str, kind: str) -> bytes:
    """Return the bytes of a file in PEM or PKCS12. `kind`: the value of the key `….type`, as for `load_identity`."""
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
    found = PKCS12 if is_pkcs12(data) else PEM
    if kind.upper() not in ("", "JKS", found):
        raise ConfigError(f"{names}.type is {kind}, but {location} is not; its format is {found}")
    return data


def is_pkcs12(data: bytes) -> bool:
    """True if the bytes of a file are in the format PKCS12, if it is one of the two that can be read."""
    return data.startswith(_DER_SEQUENCE)


@dataclass(frozen=True)
class PemIdentity:
    """A private key with its certificates, the own one first, as one PEM text. `source`: the file or key it came from.

    `key` and `opened_by`: the configuration keys of the text and of `password`, which opens an encrypted private key.
    """

    key: str
    source: str
    pem: bytes = field(repr=False)
    password: str = field(default="", repr=False)
    opened_by: str = ""


def new_client_context(
    names: str,
    identity: PemIdentity | None,
    authorities: str | bytes | None,
    *,
    check_hostname: bool,
    protocols: Sequence[str] = (TLS_1_2, TLS_1_3),
    cipher_suites: Sequence[str] = (),
) -> ssl.SSLContext:
    """Return the context of a client. `authorities`: PEM text or DER bytes; None trusts those of the system.

    Raises ssl.SSLError if the authorities cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    restrict(context, names, protocols, cipher_suites)
    context.check_hostname = check_hostname
    if authorities is None:
        context.load_default_certs()
    else:
        trust_authorities(context, authorities)
    if identity is not None:
        install_identity(context, identity)
    return context


def trust_authorities(context: ssl.SSLContext, authorities: str | bytes) -> None:
    """Trust these authorities: PEM text, or DER bytes of one or more certificates. Raises ssl.SSLError."""
    if not authorities:  # otherwise a ValueError
        raise ssl.SSLError("there is no certificate")
    context.load_verify_locations(cadata=authorities)
    # An authority that is not self-signed is trusted too, as in Java.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def install_identity(context: ssl.SSLContext, identity: PemIdentity) -> None:
    """Let a context show these certificates."""
    asked = []

    def password() -> str:
        asked.append(True)
        return identity.password

    try:
        with _readable(identity.pem) as path:
            context.load_cert_chain(path, password=password)
    except (ssl.SSLError, ValueError) as error:
        reason = _unusable(error, bool(identity.password) if asked else None, identity.opened_by)
        raise ConfigError(f"{identity.key}: {identity.source} cannot be used: {reason}") from error


def _unusable(error: Exception, has_password: bool | None, opened_by: str) -> str:
    """Return why a private key cannot be used. `has_password`: None if the key is not encrypted."""
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the certificate"
    if has_password is not None:
        why = "is wrong" if has_password else "is not set"
        return f"the private key is encrypted, and {opened_by} {why}"
    return getattr(error, "reason", None) or "it needs a private key and its certificates in PEM"


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


def with_line_ends(pem: str) -> str:
    """Return a PEM text whose blocks have lines, as OpenSSL needs it. Properties often have the text in one line."""

    def lines(block: re.Match[str]) -> str:
        body = fill("".join(block[3].split()), _LINE)
        return f"{block[1]}\n{body}\n{block[4]}\n"

    return _BLOCK.sub(lines, pem)


def restrict(
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


def tls_reason(error: ssl.SSLError) -> str:
    """Return why a TLS handshake with a broker has failed, with the configuration key that mends it if there is one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        message = error.verify_message.rstrip(".")
        if error.verify_code == EXPIRED:
            return f"the certificate of the broker is not trusted: {message}; {RENEWAL}"
        if error.verify_code in _OTHER_NAME:
            advice = "connect to a name in the certificate (ssl.endpoint.identification.algorithm)"
            return f"the certificate of the broker is not trusted: {message}; {advice}"
        return f"the certificate of the broker is not trusted: {message} (ssl.truststore.location)"
    reason: str = getattr(error, "reason", None) or str(error)
    if reason in _NO_TLS:
        return "the listener does not use TLS (security.protocol)"
    if "ALERT" in reason:
        return f"the broker has refused the client: {reason} (ssl.keystore.location)"
    return reason
