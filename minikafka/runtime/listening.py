"""Closing of an asyncio server without leaking the connections that it has just accepted."""

from __future__ import annotations

import asyncio
from typing import Final

_TURNS_TO_CONNECT: Final = 2
"""Iterations of the event loop between accepting a connection and calling `connection_made`."""


async def stop_listening(server: asyncio.Server) -> None:
    """Stop accepting connections. Close the server after `connection_made` of each accepted connection.

    Without this, asyncio would leak a connection that it accepts just before the server is closed, and the
    server's owner would have to close connections that have no transport yet.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())  # has no effect in uvloop
    for _ in range(_TURNS_TO_CONNECT):
        await asyncio.sleep(0)
    server.close()
    await asyncio.sleep(0)  # uvloop frees the port in its next iteration
