"""The configuration keys of encryption and authentication, and their values for one listener.

A key may be set for one listener, as `listener.name.NAME.KEY`, and keys of SASL for one mechanism of a listener, as
`listener.name.NAME.MECHANISM.KEY`, both names in lower case. The longest name that is set has precedence (KIP-103).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from minikafka.base.config.keys import INT_MAX, ConfigType, Key, key, table, unknown_key
from minikafka.base.errors import ConfigError

_, BOOLEAN, STRING, INT, LONG, DOUBLE, LIST, PASSWORD = ConfigType

PREFIX: Final = "listener.name."
JAAS: Final = "sasl.jaas.config"
GSSAPI: Final = "GSSAPI"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The SASL mechanisms that brokers implement."""
CLIENT_AUTH: Final = ("none", "requested", "required")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityKeys:
    """The keys of TLS and SASL, a part of `BrokerConfig`. `security_of` returns their values for one listener."""

    # TLS.
    ssl_keystore_location: str | None = key(
        STRING, None, "File with the broker's private key and certificates, PKCS12 or PEM."
    )
    ssl_keystore_type: str = key(
        STRING,
        "JKS",
        "Format of the keystore; JKS stands for the format of the file. Java's own format must be converted.",
        choices=("JKS", "PKCS12", "PEM"),
    )
    ssl_keystore_password: str | None = key(PASSWORD, None, "Password of a PKCS12 keystore.")
    ssl_keystore_key: str | None = key(
        PASSWORD, None, "Private key in PEM format, in the place of ssl.keystore.location."
    )
    ssl_keystore_certificate_chain: str | None = key(
        PASSWORD, None, "Certificates of ssl.keystore.key in PEM format, the broker's own first."
    )
    ssl_key_password: str | None = key(PASSWORD, None, "Password of a private key in PEM format.")
    ssl_truststore_location: str | None = key(
        STRING,
        None,
        "File with the certificates of the authorities that are trusted, PKCS12 or PEM.",
    )
    ssl_truststore_type: str = key(
        STRING,
        "JKS",
        "Format of the truststore; JKS stands for the format of the file.",
        choices=("JKS", "PKCS12", "PEM"),
    )
    ssl_truststore_password: str | None = key(PASSWORD, None, "Password of a PKCS12 truststore.")
    ssl_truststore_certificates: str | None = key(
        PASSWORD,
        None,
        "Certificates of trusted authorities in PEM format, in the place of ssl.truststore.location.",
    )
    ssl_client_auth: str = key(
        STRING,
        "none",
        "Whether clients of an SSL listener need a certificate: none, requested or required.",
        choices=CLIENT_AUTH,
    )
    ssl_principal_mapping_rules: str = key(
        STRING,
        "DEFAULT",
        "Rules that turn the distinguished name of a client's certificate into the name of its principal, as "
        "RULE:pattern/replacement/[LU], separated by commas; DEFAULT: the distinguished name itself.",
    )
    ssl_enabled_protocols: tuple[str, ...] = key(
        LIST, ("TLSv1.2", "TLSv1.3"), "Versions of TLS.", choices=("TLSv1.2", "TLSv1.3")
    )
    ssl_cipher_suites: tuple[str, ...] = key(
        LIST, (), "Cipher suites by Java's names; empty: those of OpenSSL."
    )
    ssl_endpoint_identification_algorithm: str = key(
        STRING,
        "https",
        "Whether brokers check that the certificate of a broker has its host name; empty: they do not.",
        choices=("https", ""),
    )
    ssl_allow_dn_changes: bool = key(
        BOOLEAN,
        False,
        "Whether a certificate that is replaced while the broker runs may have another distinguished name.",
    )
    ssl_allow_san_changes: bool = key(
        BOOLEAN,
        False,
        "Whether a certificate that is replaced while the broker runs may lack subject alternative names of the old "
        "one.",
    )

    # SASL.
    sasl_enabled_mechanisms: tuple[str, ...] = key(
        LIST,
        (GSSAPI,),
        "SASL mechanisms of a listener. GSSAPI is not implemented.",
    )
    sasl_mechanism_inter_broker_protocol: str = key(
        STRING, GSSAPI, "SASL mechanism with which a broker authenticates to other brokers."
    )
    sasl_jaas_config: str | None = key(
        PASSWORD,
        None,
        "Login module of a mechanism: the broker's own name and password, and for PLAIN the users. It must be set for "
        "a mechanism of a listener: listener.name.NAME.MECHANISM.sasl.jaas.config.",
    )
    sasl_server_max_receive_size: int = key(
        INT, 524_288, "Maximum size of a request before authentication.", low=1
    )
    connections_max_reauth_ms: int = key(
        LONG,
        0,
        "Time after which a client of a SASL listener must authenticate again; at most 0: never (KIP-368).",
    )

    # Tokens of OAUTHBEARER.
    sasl_oauthbearer_jwks_endpoint_url: str | None = key(
        STRING,
        None,
        "Address of the JSON Web Key Set with which tokens of OAUTHBEARER are checked: file:///…, http:// or https://.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = key(
        LONG, 3_600_000, "Interval at which the key set is read again.", low=1
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = key(
        LONG, 100, "Pause after the first failed reading of the key set; it doubles.", low=1
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = key(
        LONG, 10_000, "Longest pause after a failed reading of the key set.", low=1
    )
    sasl_oauthbearer_clock_skew_seconds: int = key(
        INT, 30, "How far the clock of the issuer of tokens may differ.", low=0
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = key(
        LIST, (), "Audiences of which a token must have one; empty: a token must have none."
    )
    sasl_oauthbearer_expected_issuer: str | None = key(
        STRING, None, "Issuer that a token must have; any issuer if not set."
    )
    sasl_oauthbearer_scope_claim_name: str = key(
        STRING, "scope", "Claim of a token that contains its scopes."
    )
    sasl_oauthbearer_sub_claim_name: str = key(
        STRING, "sub", "Claim of a token that contains the name of the user."
    )

    # The own login with OAUTHBEARER.
    sasl_oauthbearer_token_endpoint_url: str | None = key(
        STRING,
        None,
        "Where a broker or client gets the token for its own login: the token endpoint of an identity provider, "
        "http:// or https://, or a file, file:///….",
    )
    sasl_oauthbearer_header_urlencode: bool = key(
        BOOLEAN, False, "Whether clientId and clientSecret are URL-encoded for the token endpoint."
    )
    sasl_login_connect_timeout_ms: int | None = key(
        INT, None, "Timeout of a connection to the token endpoint; 10 s if not set.", low=1
    )
    sasl_login_read_timeout_ms: int | None = key(
        INT, None, "Timeout of an answer of the token endpoint; 10 s if not set.", low=1
    )
    sasl_login_retry_backoff_ms: int = key(
        LONG, 100, "Pause after the first failed request to the token endpoint; it doubles.", low=1
    )
    sasl_login_retry_backoff_max_ms: int = key(
        LONG, 10_000, "Time for which a failed request to the token endpoint is repeated.", low=1
    )
    sasl_login_refresh_window_factor: float = key(
        DOUBLE,
        0.8,
        "Share of a token's life after which the next one is fetched.",
        low=0.5,
        high=1.0,
    )
    sasl_login_refresh_window_jitter: float = key(
        DOUBLE, 0.05, "Largest random share that is added to the window factor.", low=0.0, high=0.25
    )
    sasl_login_refresh_min_period_seconds: int = key(
        INT, 60, "Shortest time between two fetches of a token.", low=0, high=900
    )
    sasl_login_refresh_buffer_seconds: int = key(
        INT,
        300,
        "Time before the end of a token at which the next one is fetched at the latest.",
        low=0,
        high=3600,
    )

    @property
    def has_truststore(self) -> bool:
        """True if authorities to trust are configured."""
        return bool(self.ssl_truststore_location or self.ssl_truststore_certificates)


LISTENER_LIMITS: Final = {
    name: Key(INT, INT_MAX, "Limit of one listener.", low=1, name=name)
    for name in ("max.connections", "max.connection.creation.rate")
}
"""The keys of limits that may be set for one listener too. `ConnectionQuotas` reads them."""
_KEYS: Final = table(SecurityKeys)
_OF_MECHANISM: Final = {
    JAAS,
    "connections.max.reauth.ms",
    *(name for name in _KEYS if name.startswith(("sasl.oauthbearer.", "sasl.login."))),
}
"""The keys that may be set for one mechanism of a listener."""


def parse_prefixed(values: Mapping[str, object]) -> dict[str, Any]:
    """Return the checked values of the keys `listener.name.…` by full name. Raises ConfigError."""
    rows = {name: row for name in values if (row := listener_key(name)) is not None}
    return {name: row.parse(values[name]) for name, row in rows.items()}


def listener_key(name: str) -> Key | None:
    """Return the key that `listener.name.NAME.KEY` sets; None for another form of name. Raises ConfigError."""
    if not name.startswith(PREFIX):
        return None
    _, rest = listener_part(name)
    found = rest if rest in LISTENER_LIMITS or rest in _KEYS else rest.partition(".")[2]
    if found != rest and found not in _OF_MECHANISM:
        raise unknown_key(name, [name.removesuffix(rest) + known for known in _KEYS])
    scope = name.removesuffix(found)
    if scope != scope.lower():
        raise ConfigError(f"{name} must begin in lower case: write {scope.lower()}{found}")
    return replace(LISTENER_LIMITS.get(found) or _KEYS[found], name=name)


def is_listener_limit(name: str) -> bool:
    """Return True for a limit of one listener, such as `listener.name.out.max.connections`."""
    return name.startswith(PREFIX) and listener_part(name)[1] in LISTENER_LIMITS


def listener_part(name: str) -> tuple[str, str]:
    """Return the listener's name, and the key without its prefix, of a key `listener.name.…`."""
    listener, _, key = name.removeprefix(PREFIX).partition(".")
    return listener, key


def security_of(
    keys: SecurityKeys, prefixed: Mapping[str, Any], listener: str, mechanism: str = ""
) -> SecurityKeys:
    """Return the values for a listener and one of its mechanisms. `prefixed`: value by full name."""
    scopes = [f"{PREFIX}{listener.lower()}."]
    if mechanism:
        scopes.append(f"{scopes[0]}{mechanism.lower()}.")
    own = {
        row.attribute: prefixed[scope + name]
        for scope in scopes
        for name, row in _KEYS.items()
        if scope + name in prefixed
    }
    return replace(keys, **own)
