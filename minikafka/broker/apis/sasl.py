"""Authentication on a connection that is open already (KIP-43, KIP-152, KIP-368).

SaslHandshake 17, versions 0–1. SaslAuthenticate 36, versions 0–2.
- The first authentication comes before every other request but ApiVersions, and is not handled here
  (`broker/network/newcomer.py`).
- A client whose session has an end may authenticate again, at most once a second, with the same mechanism and as the
  same principal. The session then has its full length again.
- Everybody else gets ILLEGAL_SASL_STATE.
- After a failure, the response is sent after `connection.failed.authentication.delay.ms`, and the connection is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from minikafka.base.errors import ErrorCode, ProtocolViolation
from minikafka.broker.clients.authentication import LoginRefused, State
from minikafka.broker.services import Entity, Handler, RequestContext, Services
from minikafka.kafka.wire.codec import response
from minikafka.kafka.wire.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE

_BEGIN_EVERY_MS: Final = 1_000


def sasl_handshake(
    services: Services, request: Entity, context: RequestContext
) -> bytes | Awaitable[bytes]:
    """Return the response to a SaslHandshake request."""
    client, now = context.connection, services.clock.now()
    authentication, began = client.authentication, client.reauthenticated_at
    is_early = began is not None and now - began < _BEGIN_EVERY_MS
    if authentication is None or authentication.expires is None or is_early:
        code = ErrorCode.ILLEGAL_SASL_STATE
        return response(SASL_HANDSHAKE, context.version, error_code=code, mechanisms=[])
    client.reauthenticated_at = now
    authentication.again()
    try:
        return authentication.on_handshake(max(context.version, 1), request)
    except LoginRefused as refused:
        return _end(services, context, refused)


def sasl_authenticate(
    services: Services, request: Entity, context: RequestContext
) -> bytes | Awaitable[bytes]:
    """Return the response to a SaslAuthenticate request."""
    authentication = context.connection.authentication
    if authentication is None or authentication.state is State.DONE:
        return response(
            SASL_AUTHENTICATE,
            context.version,
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
            auth_bytes=b"",
        )
    try:
        return authentication.on_authenticate(context.version, request)
    except LoginRefused as refused:
        return _end(services, context, refused)


async def _end(services: Services, context: RequestContext, refused: LoginRefused) -> bytes:
    """Return the response to a client that has failed, after a delay; the connection then ends."""
    await services.clock.sleep(services.config.connection_failed_authentication_delay_ms)
    if refused.body is None:
        raise ProtocolViolation(str(refused))
    context.connection.is_ending = True
    return refused.body


HANDLERS: Final[dict[int, Handler]] = {
    SASL_HANDSHAKE: sasl_handshake,
    SASL_AUTHENTICATE: sasl_authenticate,
}
