"""The login of a new connection: SASL DIGEST-MD5, before anything else is sent."""

from __future__ import annotations

import asyncio
from typing import Final

from minikafka.base.errors import CoordinationError, ServerError, ZooKeeperLoginRefused
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.client.access import ZooKeeperLogin
from minikafka.zookeeper.client.connection import ZooKeeperConnection
from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.digest_md5 import DigestClient, DigestRefused

_CNONCE_BYTES: Final = 16
_REFUSALS: Final = frozenset({codes.AUTH_FAILED, codes.AUTHENTICATION_REQUIRED})


async def log_in(connection: ZooKeeperConnection, login: ZooKeeperLogin | None) -> None:
    """Authenticate the connection, which has a session; do nothing without a login.

    Raises ZooKeeperLoginRefused, and OSError if the connection is lost.
    """
    if login is None:
        return
    exchange = DigestClient(login.user, login.password, login.random(_CNONCE_BYTES))
    try:
        challenge = await _ask(connection, b"")
        exchange.check(await _ask(connection, exchange.respond(challenge)))
    except ServerError as error:
        if error.code not in _REFUSALS:
            raise ConnectionError(f"the server answers a login with {error.code}") from error
        raise ZooKeeperLoginRefused(
            f"ZooKeeper refuses the user {login.user} of {login.key}, or the password"
        ) from None
    except DigestRefused as refused:
        raise ZooKeeperLoginRefused(
            f"ZooKeeper does not accept the login of {login.key} as {login.user}: {refused}"
        ) from None


async def _ask(connection: ZooKeeperConnection, token: bytes) -> bytes:
    """Send a token; return the server's. Raises ServerError, and OSError if the connection is lost."""
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    try:
        connection.submit(calls.sasl(token), answer)
        return await answer
    except ServerError:
        raise
    except CoordinationError as error:
        raise ConnectionError(f"the login has no answer: {error}") from error
