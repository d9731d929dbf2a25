"""The console's web server: the page's files, the API, and the checks of every request.

Invariants: it listens on 127.0.0.1 only. No view runs before Host, Origin and token are checked. A view that lasts
longer than its limit is cancelled, and the page is told so.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from minikafka.base.errors import MinikafkaError
from minikafka.base.ports import Clock
from minikafka.tools.console.access import (
    SECURITY_HEADERS,
    TOKEN_HEADER,
    check_origin,
    check_token,
    url_of,
)
from minikafka.tools.console.context import Asked
from minikafka.tools.console.errors import RequestRefused, status_of, unknown
from minikafka.tools.console.site import Route, Site, Stream, StreamEvent
from minikafka.tools.console.stream import EventStream

PAGE: Final = Path(__file__).with_name("page")
IDLE_POLL_MS: Final = 1_000
STREAMS_MAX: Final = 64
BODY_BYTES: Final = 1024 * 1024
_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
}
_encode: Final = json.JSONEncoder(separators=(",", ":"), default=str).encode

_HTTP: Final = {
    404: "there is no such path",
    405: "the path does not allow this method",
    413: f"the body is larger than {BODY_BYTES} bytes",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ConsoleServer:
    """The server of one console. `site`: answers its requests. `token`: every request to the API needs it."""

    def __init__(self, site: Site, token: str, clock: Clock) -> None:
        self.site = site
        self._clock = clock
        self.port = 0
        self._token = token
        self._files = _page_files()
        self._streams = 0
        self._last_request = clock.now()
        application = web.Application(client_max_size=BODY_BYTES, middlewares=[self._guard()])
        for path, opened in site.streams.items():
            application.router.add_get(path, self._stream(opened))
        for route in site.routes:
            application.router.add_route(route.method, route.path, self._view(route))
        application.router.add_get("/{path:(?!api/).*}", self._file)
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=1.0
        )

    async def start(self, listening: socket.socket) -> None:
        """Serve on a socket that listens on 127.0.0.1."""
        self.port = listening.getsockname()[1]
        await self._runner.setup()
        await web.SockSite(self._runner, listening).start()

    @property
    def url(self) -> str:
        """The address of the page, with the token."""
        return url_of(self.port, self._token)

    async def until_idle(self, idle_ms: int) -> None:
        """Wait until nobody has looked for this time."""
        clock = self._clock
        while True:
            left = self._last_request + idle_ms - clock.now()
            if left <= 0 and not self._streams:
                return
            await clock.sleep(max(left, IDLE_POLL_MS))

    async def close(self) -> None:
        """End all requests, and close the site."""
        await self._runner.cleanup()
        await self.site.close()

    def _guard(self) -> Any:
        """Return the function around all handlers, which checks requests and returns errors as JSON."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            self._last_request = self._clock.now()
            try:
                check_origin(request.headers, self.port)
                if request.path.startswith("/api/"):
                    given = request.headers.get(TOKEN_HEADER) or request.query.get("token")
                    check_token(given, self._token)
                answer = await handler(request)
                self._last_request = self._clock.now()
                return answer
            except web.HTTPException as error:
                return _failure(error.status, _HTTP.get(error.status, error.reason), "")
            except TimeoutError:
                return _failure(503, "the cluster does not answer in time", "try again")
            except (MinikafkaError, OSError) as error:
                return _failure(status_of(error), str(error), getattr(error, "hint", ""))

        return guard

    def _view(self, route: Route) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            body = await _body(request) if route.method == "POST" else {}
            asked = Asked(request.match_info, request.query, body)
            async with asyncio.timeout(route.limit_s):
                return _json(200, await route.view(asked))

        return answer

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.path.removeprefix("/") or "index.html"
        file = self._files.get(name)
        if file is None:
            raise unknown(f"page {request.path}")
        cache = "no-store" if name == "index.html" else "no-cache"
        headers = {**SECURITY_HEADERS, "Cache-Control": cache}
        kind = _TYPES[file.suffix]
        charset = None if kind == "image/png" else "utf-8"
        return web.Response(
            body=file.read_bytes(), content_type=kind, charset=charset, headers=headers
        )

    def _stream(self, opened: Stream) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            if self._streams >= STREAMS_MAX:
                text = f"{STREAMS_MAX} streams of this console are open"
                raise RequestRefused(503, text, "close a page of it")
            last_id = request.headers.get("Last-Event-ID", "")
            asked = Asked(request.match_info, request.query, {}, last_id)
            async with aclosing(opened(asked)) as events:
                first = await anext(events)  # its errors have a status of HTTP
                return await self._send(request, first, events)

        return answer

    async def _send(
        self, request: web.Request, first: StreamEvent, events: AsyncIterator[StreamEvent]
    ) -> web.StreamResponse:
        """Send events until the viewer is gone, or does not read."""
        stream = EventStream(request, SECURITY_HEADERS)
        self._streams += 1
        response = await stream.open()
        try:
            await stream.send(first)
            async for event in events:
                await stream.send(event)
        except (MinikafkaError, OSError):  # TimeoutError too: its browser connects again
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._streams -= 1
            self._last_request = self._clock.now()
        return response


async def _body(request: web.Request) -> Mapping[str, Any]:
    try:
        found = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, "the body is not JSON") from error
    if not isinstance(found, dict):
        raise RequestRefused(400, "the body is not a JSON object")
    return found


def _page_files() -> dict[str, Path]:
    """Return the files of the page by path. Only these are served."""
    found = (path for path in PAGE.rglob("*") if path.suffix in _TYPES and path.is_file())
    return {path.relative_to(PAGE).as_posix(): path for path in found}


def _json(status: int, result: Any) -> web.Response:
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
    return web.Response(
        status=status, text=_encode(result), content_type="application/json", headers=headers
    )


def _failure(status: int, text: str, hint: str) -> web.Response:
    return _json(status, {"error": text, "hint": hint})
