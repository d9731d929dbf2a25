"""What the next keys and certificates of a listener must have in common with the current ones (Kafka's SslFactory).

The certificate keeps its names, unless `ssl.allow.dn.changes` or `ssl.allow.san.changes` says otherwise. Brokers with
the old and with the new keys can connect to each other, because brokers are changed one after the other.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509

from minikafka.base.config.security import SecurityKeys
from minikafka.base.errors import ConfigError
from minikafka.runtime.tls import shake_hands


class BetweenBrokers(NamedTuple):
    """Both sides of a connection between brokers. The client does not check host names."""

    server: ssl.SSLContext
    client: ssl.SSLContext


class InUse(NamedTuple):
    """What one side of connections uses, as it was read from the files.

    `certificate`: the own one; None without a keystore. `between`: None unless brokers connect to each other with these
    keys.
    """

    keys: SecurityKeys
    certificate: x509.Certificate | None
    has_truststore: bool
    between: BetweenBrokers | None

    def check_next(self, following: InUse) -> None:
        """Raise ConfigError unless `following` may take the place of this."""
        keys = following.keys
        if self.certificate is not None and following.certificate is not None:
            if not keys.ssl_allow_dn_changes:
                _check_name(self.certificate, following.certificate)
            if not keys.ssl_allow_san_changes:
                _check_alternatives(self.certificate, following.certificate)
        if following.has_truststore and not self.has_truststore:
            raise ConfigError("ssl.truststore: it cannot be added to a listener that has none")
        if self.between is not None and following.between is not None:
            _check_between(self.between, following.between)


def _check_name(current: x509.Certificate, following: x509.Certificate) -> None:
    before, after = (item.subject.rfc4514_string() for item in (current, following))
    if _canonical(before) != _canonical(after):
        raise ConfigError(
            f"ssl.keystore: the new certificate is for {after}, and the current one for {before}: keep the name, or "
            "set ssl.allow.dn.changes in the broker's file"
        )


def _canonical(name: str) -> list[str]:
    """Return a name as Java compares it: without regard to case and to the number of spaces."""
    return name.casefold().split()


def _check_alternatives(current: x509.Certificate, following: x509.Certificate) -> None:
    kept = _alternatives(following)
    lost = [name for name in _alternatives(current) if name not in kept]
    if lost:
        names = ", ".join(str(name.value) for name in lost)
        raise ConfigError(
            f"ssl.keystore: the new certificate lacks the subject alternative name {names} of the current one: keep "
            "it, or set ssl.allow.san.changes in the broker's file"
        )


def _alternatives(certificate: x509.Certificate) -> Sequence[x509.GeneralName]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(found.value)


def _check_between(current: BetweenBrokers, following: BetweenBrokers) -> None:
    for server, client in (
        (current.server, following.client),
        (following.server, current.client),
    ):
        try:
            shake_hands(server, client)
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or str(error)
            raise ConfigError(
                "ssl.keystore: brokers with the current and with the new keys would not connect to each other: "
                f"{reason.rstrip('.')}; the truststores of both must have the authorities of both keystores"
            ) from error
