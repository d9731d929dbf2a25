"""The end of a session: of one's own by its connection, and of that of a process that has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from minikafka.base.errors import CoordinationError, NotConnected
from minikafka.base.ports import Clock, Transport
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.client.access import OPEN_ACCESS, ZooKeeperAccess
from minikafka.zookeeper.client.connection import ZooKeeperConnection
from minikafka.zookeeper.client.login import log_in

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_MS: Final = 1_000
_END_TIMEOUT_MS: Final = 5_000
_MS_PER_S: Final = 1_000


async def end_session(
    servers: Sequence[tuple[str, int]],
    session_id: int,
    password: bytes,
    clock: Clock,
    transport: Transport,
    access: ZooKeeperAccess = OPEN_ACCESS,
) -> bool:
    """End the session of another client. Return False if there is none. Raises NotConnected if no server answers."""
    for server in servers:
        try:
            return await _end_session_at(server, session_id, password, clock, transport, access)
        except (OSError, ValueError, CoordinationError) as error:
            logger.info("ZooKeeper at %s:%d did not end the session: %r", *server, error)
    names = ",".join(f"{host}:{port}" for host, port in servers)
    raise NotConnected(f"no ZooKeeper server answers at {names}")


async def _end_session_at(
    server: tuple[str, int],
    session_id: int,
    password: bytes,
    clock: Clock,
    transport: Transport,
    access: ZooKeeperAccess,
) -> bool:
    connection = ZooKeeperConnection(NoOwner(), clock.now)
    try:
        async with asyncio.timeout(_END_TIMEOUT_MS / _MS_PER_S):
            await transport.connect(lambda: connection, *server, access.tls)
            attached = await connection.handshake(session_id, password, _END_TIMEOUT_MS, 0)
            is_alive = attached.session_id == session_id
            if is_alive:
                await log_in(connection, access.login)
                await end(connection)
            return is_alive
    finally:
        connection.abort()


async def end(connection: ZooKeeperConnection) -> None:
    """End the session of a connection, and close the connection. Raises OSError and CoordinationError."""
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        connection.submit(calls.close(), answer)
        async with asyncio.timeout(CLOSE_TIMEOUT_MS / _MS_PER_S):
            await answer
    finally:
        connection.abort()


class NoOwner:
    """An Owner that ignores all events, for a connection that only ends a session."""

    def on_answer(self, sent: int) -> None:
        """Ignore the answer."""

    def on_released(self, size: int) -> None:
        """Ignore that a request was answered."""

    def on_event(self, change: int, path: str) -> None:
        """Ignore a watch event."""

    def on_lost(self, connection: ZooKeeperConnection) -> None:
        """Ignore the loss of the connection."""
