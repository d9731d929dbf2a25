"""Why a broker closes a connection before its first answer: the listener has another security protocol.

Kafka's brokers do not say this, so a second connection finds it out.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import nullcontext, suppress
from struct import Struct
from typing import Final

from minikafka.base.config.client import ClientConfig
from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import ErrorCode
from minikafka.base.known_cluster import Address
from minikafka.spark.security_options import PROTOCOL
from minikafka.spark.wire import protocol
from minikafka.spark.wire.security import SASL_HANDSHAKE, ConnectionNotAllowed

_HEADER: Final = Struct(">iih")
"""The start of the response to SaslHandshake: size, correlation id, error code."""
_CORRELATION: Final = 1
_PROBE_MECHANISM: Final = "NONE"
_TIMEOUT_S: Final = 1.0


def wrong_protocol(address: Address, config: ClientConfig, timeout_s: float) -> None:
    """Raise ConnectionNotAllowed if the listener at an address has another security protocol than these options."""
    chosen = config.protocol
    limit_s = min(timeout_s, _TIMEOUT_S)
    with suppress(TimeoutError):
        _ask(address, chosen, limit_s)


def _ask(address: Address, chosen: SecurityProtocol, limit_s: float) -> None:
    if not chosen.is_encrypted and _uses_tls(address, limit_s):
        raise _wrong(address, "uses TLS", "SASL_SSL" if chosen.is_sasl else "SSL or SASL_SSL")
    demands_login = _demands_login(address, limit_s, None)
    if chosen.is_encrypted and demands_login is not None:
        needed = "SASL_PLAINTEXT" if demands_login else "PLAINTEXT"
        raise _wrong(address, "does not use TLS", needed)
    if chosen.is_encrypted and not chosen.is_sasl:
        demands_login = _demands_login(address, limit_s, _any_certificate())
    if demands_login and not chosen.is_sasl:
        needed = "SASL_SSL" if chosen.is_encrypted else "SASL_PLAINTEXT"
        raise _wrong(address, "demands a login", needed)


def _wrong(address: Address, what: str, needed: str) -> ConnectionNotAllowed:
    return ConnectionNotAllowed(address, f"the listener {what}: set option {PROTOCOL} to {needed}")


def _any_certificate() -> ssl.SSLContext:
    """Return a context that trusts every broker. No secret is sent: only the kind of the listener is asked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _uses_tls(address: Address, timeout_s: float) -> bool:
    with (
        suppress(ConnectionError, ssl.SSLError),
        socket.create_connection(address, timeout_s) as plain,
    ):
        try:
            with _any_certificate().wrap_socket(plain):
                return True
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")
    return False


def _demands_login(address: Address, timeout_s: float, tls: ssl.SSLContext | None) -> bool | None:
    """Return whether a listener demands a login; None if it does not answer, with TLS or without."""
    body = protocol.encoded(SASL_HANDSHAKE, mechanism=_PROBE_MECHANISM)
    with (
        suppress(ConnectionError, ssl.SSLError),
        socket.create_connection(address, timeout_s) as plain,
        nullcontext(plain) if tls is None else tls.wrap_socket(plain) as asked,
    ):
        asked.sendall(protocol.request(SASL_HANDSHAKE, _CORRELATION, "", body))
        answer = asked.recv(_HEADER.size)
        if len(answer) == _HEADER.size:
            _, correlation, code = _HEADER.unpack(answer)
            if correlation == _CORRELATION:
                return bool(code == ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    return None
