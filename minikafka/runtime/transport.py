"""The Transport port over TCP: connections in the clear (`connection.py`) or under TLS (`tls.py`)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from minikafka.base.encryption import Tls
from minikafka.base.ports import Listener, StreamHandler
from minikafka.runtime.connection import SocketConnection
from minikafka.runtime.listening import stop_listening
from minikafka.runtime.tls import RenewableTls, TlsAccepted, TlsServer, connect_tls

if TYPE_CHECKING:  # a ZooKeeper server does not load the configuration of brokers, 2 MB
    from minikafka.base.config.security import SecurityKeys

BACKLOG: Final = 1024


class _Refused(asyncio.Protocol):
    """The protocol of a connection that is closed as soon as it is accepted."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


class SocketListener:
    """A listening socket; `port` is the actual port."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop accepting connections. Open connections stay open.

        `asyncio.Server.wait_closed` is not used: since Python 3.12 it waits for the open connections.
        """
        await stop_listening(self._server)


class SocketTransport:
    """The Transport port over TCP. `after_read` is called after the handling of each read.

    `source`: the address from which connections are opened; None: the system chooses.
    """

    def __init__(
        self, after_read: Callable[[], None] | None = None, source: str | None = None
    ) -> None:
        self._after_read = after_read
        self._source = None if source is None else (source, 0)

    def tls(self, keys: SecurityKeys, *, server: bool, between: bool = False) -> RenewableTls:
        from minikafka.runtime.tls_keys import source_of  # cryptography takes 30 ms

        find = partial(source_of, server=server, between=between)
        load, files, find_expiries, read = find(keys)
        made = TlsServer if server else RenewableTls
        return made(load, files, find_expiries=find_expiries, read=read, source_of=find)

    async def listen(
        self,
        factory: Callable[[], StreamHandler | None],
        host: str,
        port: int,
        tls: Tls | None = None,
    ) -> Listener:
        loop = asyncio.get_running_loop()
        if port == 0:
            # A name with several addresses would get a different free port on each: use the first.
            found = await loop.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
            host = str(found[0][4][0])

        def accept() -> asyncio.BaseProtocol:
            handler = factory()
            if handler is None:
                return _Refused()
            if tls is not None:
                return TlsAccepted(handler, self._after_read, cast("TlsServer", tls))
            return SocketConnection(handler, self._after_read)

        server = await loop.create_server(accept, host, port, backlog=BACKLOG)
        return SocketListener(server)

    async def connect(
        self,
        factory: Callable[[], StreamHandler],
        host: str,
        port: int,
        tls: Tls | None = None,
    ) -> StreamHandler:
        loop = asyncio.get_running_loop()
        if tls is not None:
            return await connect_tls(
                factory, host, port, cast("RenewableTls", tls), self._after_read, self._source
            )
        _, connection = await loop.create_connection(
            lambda: SocketConnection(factory(), self._after_read),
            host,
            port,
            local_addr=self._source,
        )
        return connection.handler
