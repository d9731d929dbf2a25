"""The configuration file of a server: Apache ZooKeeper's keys of encryption and authentication.

It has Java's properties format, as zoo.cfg. A key that Apache ZooKeeper takes as a Java property may have the name of
that property, with `zookeeper.` in front. What a server cannot do is refused with the name of the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from minikafka.base.config.keys import ConfigType, Key, key, parse_all, table
from minikafka.base.errors import ConfigError
from minikafka.base.properties import parse_properties
from minikafka.security.jaas import DIGEST_MODULE, InvalidJaas, parse_section
from minikafka.zookeeper.server.authentication import ClientAuthentication
from minikafka.zookeeper.server.core.acl import DIGEST, IP, SASL, X509

_, BOOLEAN, STRING, INT, _, _, LIST, PASSWORD = ConfigType
NEED, WANT, NONE = "need", "want", "none"
STORES: Final = "", "JKS", "PKCS12", "PEM"
JAAS_FILE: Final = "java.security.auth.login.config"
JAAS_SECTION: Final = "Server"
_PREFIX: Final = "zookeeper."
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, kw_only=True, repr=False)
class ServerKeys:
    """The keys of the file, under their names without `zookeeper.`."""

    secureClientPort: int | None = key(
        INT, None, "Port for clients under TLS.", low=0, high=_PORT_MAX
    )
    secureClientPortAddress: str | None = key(STRING, None, "Address of secureClientPort.")
    ssl_keyStore_location: str | None = key(
        STRING, None, "File with the private key and the certificates of the server, PEM or PKCS12."
    )
    ssl_keyStore_password: str = key(PASSWORD, "", "Password of that file.")
    ssl_keyStore_type: str = key(STRING, "", "Format of that file.", choices=STORES)
    ssl_trustStore_location: str | None = key(
        STRING, None, "File with the authorities of the certificates of clients, PEM or PKCS12."
    )
    ssl_trustStore_password: str = key(PASSWORD, "", "Password of that file.")
    ssl_trustStore_type: str = key(STRING, "", "Format of that file.", choices=STORES)
    ssl_clientAuth: str = key(
        STRING,
        NEED,
        "Whether clients of secureClientPort must (need), may (want) or cannot (none) have certificates.",
        choices=tuple(case(word) for word in (NEED, WANT, NONE) for case in (str.lower, str.upper)),
    )
    ssl_enabledProtocols: tuple[str, ...] = key(
        LIST, ("TLSv1.3", "TLSv1.2"), "Versions of TLS.", choices=("TLSv1.2", "TLSv1.3")
    )
    ssl_ciphersuites: tuple[str, ...] = key(
        LIST, (), "Cipher suites by Java's names; empty: those of OpenSSL."
    )
    DigestAuthenticationProvider_superDigest: str = key(
        PASSWORD, "", "User and hash of the super user of the scheme digest, as in an ACL."
    )
    X509AuthenticationProvider_superUser: str = key(
        STRING, "", "Subject of a certificate whose owner is a super user."
    )
    superUser: str = key(STRING, "", "User of SASL that is a super user.")
    java_security_auth_login_config: str | None = key(
        STRING,
        None,
        "JAAS file whose section Server has the users of SASL, as options user_NAME of the DigestLoginModule.",
    )
    enforce_auth_enabled: bool = key(
        BOOLEAN, False, "Whether only clients get answers that have authenticated."
    )
    enforce_auth_schemes: tuple[str, ...] = key(
        LIST, (), "How: schemes of which one is needed.", choices=(DIGEST, IP, SASL, X509)
    )
    sessionRequireClientSASLAuth: bool = key(
        BOOLEAN, False, "Whether only clients get answers that have authenticated by SASL."
    )

    @property
    def required(self) -> frozenset[str]:
        """The schemes of which a client needs one; empty: none."""
        if self.sessionRequireClientSASLAuth:
            return frozenset({SASL})
        return frozenset(self.enforce_auth_schemes if self.enforce_auth_enabled else ())


_KEYS: Final[Mapping[str, Key]] = table(ServerKeys)


def parse(text: str) -> ServerKeys:
    """Return the keys of a file. Raises ConfigError."""
    values: dict[str, object] = {}
    for full, value, line in parse_properties(text):
        name = full.removeprefix(_PREFIX)
        if name in values:
            raise ConfigError(f"line {line}: {name} is given twice; remove one")
        values[name] = value.strip()
    found = ServerKeys(**parse_all(_KEYS, values))
    _check(found)
    return found


def _check(keys: ServerKeys) -> None:
    """Check rules that involve several keys. Raises ConfigError."""
    if keys.secureClientPort is not None and keys.ssl_keyStore_location is None:
        raise ConfigError("ssl.keyStore.location is not set: secureClientPort needs a certificate")
    if keys.secureClientPort is None and keys.ssl_keyStore_location is not None:
        raise ConfigError("ssl.keyStore.location is set, but secureClientPort is not")
    if keys.secureClientPortAddress is not None and keys.secureClientPort is None:
        raise ConfigError("secureClientPortAddress is set, but secureClientPort is not")
    if keys.enforce_auth_enabled and not keys.required:
        raise ConfigError("enforce.auth.enabled is true, but enforce.auth.schemes is empty")
    if SASL in keys.required and keys.java_security_auth_login_config is None:
        raise ConfigError(f"SASL is required, but {JAAS_FILE} is not set")
    if X509 in keys.required and keys.secureClientPort is None:
        raise ConfigError("enforce.auth.schemes has x509, but secureClientPort is not set")
    digest = keys.DigestAuthenticationProvider_superDigest
    if digest and digest.count(":") != 1:
        raise ConfigError(
            "DigestAuthenticationProvider.superDigest must be USER:HASH, with the hash of "
            "USER:PASSWORD: base64 of its SHA-1"
        )


def authentication_of(keys: ServerKeys, jaas: str | None) -> ClientAuthentication:
    """Return how clients authenticate. `jaas`: the text of the JAAS file. Raises ConfigError."""
    return ClientAuthentication(
        super_digest=keys.DigestAuthenticationProvider_superDigest,
        users=None if jaas is None else _users(jaas),
        sasl_supers=frozenset({keys.superUser} - {""}),
        has_tls=keys.secureClientPort is not None,
        x509_super=keys.X509AuthenticationProvider_superUser,
        required=keys.required,
    )


def _users(jaas: str) -> dict[str, str]:
    """Return the users of SASL. Raises ConfigError."""
    where = f"{JAAS_FILE}: the section {JAAS_SECTION}"
    try:
        entry = parse_section(jaas, JAAS_SECTION)
    except InvalidJaas as error:
        raise ConfigError(f"{JAAS_FILE}: the file {error}") from error
    if entry is None:
        raise ConfigError(f"{where} is missing")
    if entry.module != DIGEST_MODULE:
        raise ConfigError(f"{where} must have the module {DIGEST_MODULE}, the only one that works")
    if not entry.users:
        raise ConfigError(f'{where} names no user; expected: user_NAME="PASSWORD"')
    return entry.users
