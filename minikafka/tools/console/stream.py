"""Server-sent events to one viewer.

Invariant: nothing is queued for a viewer. The next event is made when the last one was written, so a slow viewer costs
no memory. A viewer that reads nothing for WRITE_S loses its connection, and its browser connects again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from minikafka.tools.console.site import StreamEvent

WRITE_S: Final = 30
"""Time for a viewer to read what was sent."""
HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
_encode: Final = json.JSONEncoder(separators=(",", ":"), default=str).encode


class EventStream:
    """The response to one viewer."""

    def __init__(self, request: web.Request, headers: Mapping[str, str]) -> None:
        self._request = request
        self._response = web.StreamResponse(headers={**headers, **HEADERS})
        self._response.enable_chunked_encoding()

    async def open(self) -> web.StreamResponse:
        """Send the headers; return the response."""
        await self._response.prepare(self._request)
        return self._response

    async def send(self, event: StreamEvent) -> None:
        """Send one event. Raises ConnectionError if the viewer is gone, TimeoutError if it does not read."""
        text = ": ping\n\n"
        if event.name:
            named = f"id: {event.id}\n" if event.id else ""
            text = f"event: {event.name}\n{named}data: {_encode(event.data)}\n\n"
        async with asyncio.timeout(WRITE_S):
            await self._response.write(text.encode())
