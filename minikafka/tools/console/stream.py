"""Server-sent events: the stream of a cluster's changes to one viewer.

Invariant: nothing is queued for a viewer. While a write to it lasts, its changes are a set of names; a viewer that
reads nothing for WRITE_S loses its connection, and its browser connects again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

from aiohttp import web

from minikafka.tools.console.frames import frame, ledger_records, seen_and_unseen, snapshot
from minikafka.tools.console.watch import FRAME_MS, ClusterWatch, Viewer

WRITE_S: Final = 30
"""Time for a viewer to read what was sent."""
PING_S: Final = 10
"""Interval of comments that show whether a viewer is still there."""
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

    async def send(self, event: str, data: Any, id_: str = "") -> None:
        """Send one event. Raises ConnectionError if the viewer is gone, TimeoutError if it does not read."""
        name = f"id: {id_}\n" if id_ else ""
        await self._write(f"event: {event}\n{name}data: {_encode(data)}\n\n")

    async def ping(self) -> None:
        """Send a comment, which fails if the viewer is gone."""
        await self._write(": ping\n\n")

    async def _write(self, text: str) -> None:
        async with asyncio.timeout(WRITE_S):
            await self._response.write(text.encode())


async def send_changes(stream: EventStream, watch: ClusterWatch, viewer: Viewer, run: str) -> None:
    """Send the cluster and its changes until the viewer is gone.

    `run`: begins the ids of ledger records, so that an id of an earlier console is not taken for one of this.
    """
    await watch.ready()
    await stream.send("snapshot", snapshot(watch, viewer))
    while True:
        viewer.changed.clear()
        if found := frame(watch, viewer):
            await stream.send("frame", found)
        for event, data in seen_and_unseen(watch, viewer):
            await stream.send(event, data)
        for number, record in ledger_records(watch, viewer):
            await stream.send("ledger", record, f"{run}-{number}")
        await watch.clock.sleep(FRAME_MS)
        with suppress(TimeoutError):
            async with asyncio.timeout(PING_S):
                await viewer.changed.wait()
            continue
        await stream.ping()


async def send_tail(
    stream: EventStream, first: Mapping[str, Any], messages: AsyncIterator[Mapping[str, Any]]
) -> None:
    """Send the records that are added to a topic until the viewer is gone."""
    await stream.send("records", first)
    async for message in messages:
        if message:
            await stream.send("records", message)
        else:
            await stream.ping()


def resume(viewer: Viewer, last_id: str | None, run: str) -> None:
    """Let a viewer that was connected before get only the ledger records after the last one that it received."""
    prefix, _, number = (last_id or "").rpartition("-")
    if prefix == run and number.isascii() and number.isdecimal():
        viewer.ledger_at = int(number) + 1
