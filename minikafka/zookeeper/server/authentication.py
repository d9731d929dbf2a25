"""Who may authenticate to a server, and as whom: by password, certificate or SASL.

An identity is (scheme, id). The keys of Apache ZooKeeper that set this are in `config.py`.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from minikafka.security.principals import subject_of
from minikafka.zookeeper.messages.digest_md5 import DigestServer
from minikafka.zookeeper.messages.jute import Identity
from minikafka.zookeeper.server.core import acl
from minikafka.zookeeper.server.core.acl import DIGEST, IP, SASL, SUPER, X509
from minikafka.zookeeper.server.settings import CREDENTIALS_MAX


@dataclass(frozen=True)
class ClientAuthentication:
    """How clients authenticate.

    `super_digest`: user and hash of the super user of the scheme `digest`; "" for none. `users`: name → password for
    SASL; None: the server has no SASL. `sasl_supers`: users of SASL that are super users. `has_tls`: whether there is a
    port with TLS, so that clients may have certificates. `x509_super`: the subject that is a super user. `required`: a
    client without an identity of one of these schemes gets no answer; empty: every client gets one.
    """

    super_digest: str = field(default="", repr=False)
    users: Mapping[str, str] | None = field(default=None, repr=False)
    sasl_supers: frozenset[str] = frozenset()
    has_tls: bool = False
    x509_super: str = ""
    required: frozenset[str] = frozenset()

    @property
    def schemes(self) -> frozenset[str]:
        """The schemes that access control lists of this server may have."""
        found = set(acl.SCHEMES)
        if self.users is not None:
            found.add(SASL)
        if self.has_tls:
            found.add(X509)
        return frozenset(found)

    def of_request(self, scheme: str | None, credentials: bytes) -> list[Identity] | None:
        """Return the identities that an `auth` request proves; None if it proves none, and must be refused."""
        if scheme == IP:
            return []
        if scheme != DIGEST or len(credentials) > CREDENTIALS_MAX:
            return None
        identity = acl.digest_identity(credentials)
        expected = self.super_digest.encode()
        is_super = bool(expected) and hmac.compare_digest(identity[1].encode(), expected)
        return [SUPER, identity] if is_super else [identity]

    def of_certificate(self, certificate: bytes) -> list[Identity]:
        """Return the identities of a client with this certificate (DER), which TLS has verified.

        Raises InvalidCertificate if its subject cannot be read.
        """
        name = subject_of(certificate)
        identity: Identity = X509, name
        return [SUPER, identity] if name == self.x509_super and name else [identity]

    def of_user(self, user: str) -> list[Identity]:
        """Return the identities of a user that SASL has authenticated."""
        identity: Identity = SASL, user
        return [identity, SUPER] if user in self.sasl_supers else [identity]

    def exchange(self, nonce: bytes) -> DigestServer | None:
        """Return a new exchange of SASL; None if the server has no SASL."""
        return None if self.users is None else DigestServer(self.users, nonce)

    def is_enough(self, identities: Collection[Identity]) -> bool:
        """True if a connection with these identities gets answers."""
        return not self.required or any(scheme in self.required for scheme, _ in identities)


NO_AUTHENTICATION: Final = ClientAuthentication()
"""Passwords of the scheme `digest` work, without a super user."""
