"""The protection of connections to brokers: TLS, and the login by SASL.

Executors need no library for it. No error contains a secret.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from minikafka.base.config.client import ClientConfig
from minikafka.base.errors import ConfigError, ErrorCode, MinikafkaError
from minikafka.base.known_cluster import Address
from minikafka.runtime.tls_contexts import tls_reason
from minikafka.security.client_login import login_from
from minikafka.security.sasl import OAUTHBEARER
from minikafka.security.sasl_client import Login, ServerNotTrusted, new_client_exchange
from minikafka.spark.security_options import PROTOCOL, by_option
from minikafka.spark.wire import protocol
from minikafka.spark.wire.tls import context_of
from minikafka.spark.wire.tokens import current_token

SASL_HANDSHAKE: Final = (17, 1)
SASL_AUTHENTICATE: Final = (36, 1)
"""API key and version of each request of this module."""
PLAIN: Final = ClientConfig()
"""Connections without encryption and without login."""
Call = Callable[[tuple[int, int], bytes], memoryview]


class ConnectionNotAllowed(MinikafkaError):
    """The client and a broker do not trust each other. Another attempt would fail too."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(f"{address[0]}:{address[1]}: {reason}; then start the query again")


def check(config: ClientConfig) -> None:
    """Raise ConfigError if these options cannot be used for any connection. Reads the files that they name."""
    try:
        if config.protocol.is_encrypted:
            context_of(config)
        login = login_from(config)
        if login is not None and login.mechanism == OAUTHBEARER:
            current_token(config)
    except ConfigError as error:
        raise ConfigError(f"option {by_option(str(error))}") from None


def encrypted(config: ClientConfig, plain: socket.socket, address: Address) -> socket.socket:
    """Return the socket under TLS, after the handshake. Raises OSError, ConnectionNotAllowed and ConfigError."""
    try:
        return context_of(config).wrap_socket(plain, server_hostname=address[0])
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        raise ConnectionResetError(
            "the broker closed the connection in the TLS handshake"
        ) from error
    except ssl.SSLError as error:
        raise refused(address, error) from error
    except ConfigError as error:
        raise ConfigError(f"option {by_option(str(error))}") from None


def refused(address: Address, error: ssl.SSLError) -> ConnectionNotAllowed:
    """Return the error about a failed handshake, or about a certificate of the client that the broker refuses."""
    return ConnectionNotAllowed(address, f"no connection by TLS: {by_option(tls_reason(error))}")


def log_in(config: ClientConfig, call: Call, address: Address) -> int:
    """Log in on a connection; `call` sends a request on it. Return the length of the session in ms, 0 without end.

    Raises OSError, ConnectionNotAllowed and ConfigError.
    """
    try:
        login = login_from(config)
        if login is None:
            return 0
        if login.mechanism == OAUTHBEARER:
            login = replace(login, token=current_token(config))
    except ConfigError as error:
        raise ConfigError(f"option {by_option(str(error))}") from None
    _choose_mechanism(login, call, address)
    exchange = new_client_exchange(login, os.urandom)
    token, lifetime_ms = exchange.step(b""), 0
    while token is not None:
        body = protocol.encoded(SASL_AUTHENTICATE, auth_bytes=token)
        answer = protocol.decoded(SASL_AUTHENTICATE, call(SASL_AUTHENTICATE, body))
        if answer.error_code:
            raise _refused_login(address, login, answer)
        lifetime_ms = answer.session_lifetime_ms
        try:
            token = exchange.step(bytes(answer.auth_bytes))
        except ServerNotTrusted as error:
            raise ConnectionNotAllowed(
                address, f"the broker is not trusted: {error}; check kafka.bootstrap.servers"
            ) from None
    return lifetime_ms


def _choose_mechanism(login: Login, call: Call, address: Address) -> None:
    body = protocol.encoded(SASL_HANDSHAKE, mechanism=login.mechanism)
    answer = protocol.decoded(SASL_HANDSHAKE, call(SASL_HANDSHAKE, body))
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise ConnectionNotAllowed(
            address, f"the listener serves no login: correct option {PROTOCOL}"
        )
    if answer.error_code:
        served = ", ".join(answer.mechanisms)
        raise ConnectionNotAllowed(
            address,
            f"the broker does not serve the SASL mechanism {login.mechanism}, but {served}: "
            "correct option kafka.sasl.mechanism",
        )


def _refused_login(address: Address, login: Login, answer: Any) -> ConnectionNotAllowed:
    reason = answer.error_message or ErrorCode(answer.error_code).name
    who = f" of {login.user}" if login.user else ""
    return ConnectionNotAllowed(
        address,
        f"the broker refuses the login{who} with {login.mechanism}: {reason.rstrip('.')}: "
        "correct option kafka.sasl.jaas.config",
    )
