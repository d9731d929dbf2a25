"""The web server of the console, asked by a real client over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import aiohttp
import pytest

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.runtime.clock import SystemClock
from minikafka.tools.console import server as serving
from minikafka.tools.console import stream as streaming
from minikafka.tools.console.context import Asked
from minikafka.tools.console.errors import RequestRefused, unknown
from minikafka.tools.console.opening import listen
from minikafka.tools.console.server import ConsoleServer
from minikafka.tools.console.site import Route, StreamEvent

TOKEN = "0123"


class Site:
    """A site whose views echo, fail and hang, and whose stream sends numbers as long as the viewer reads them."""

    def __init__(self) -> None:
        self.routes = [
            Route("GET", "/api/echo/{name}", self.echo),
            Route("POST", "/api/echo", self.echo_body),
            Route("GET", "/api/unknown", self.fail_unknown),
            Route("GET", "/api/denied", self.fail_denied),
            Route("GET", "/api/hangs", self.hang, 0.01),
        ]
        self.streams = {"/api/stream": self.numbers, "/api/flood": self.flood}
        self.sent = 0
        self.is_ended = asyncio.Event()
        self.last_id = ""

    async def echo(self, asked: Asked) -> Any:
        return {"name": asked.path["name"], "query": dict(asked.query)}

    async def echo_body(self, asked: Asked) -> Any:
        return asked.body

    async def fail_unknown(self, asked: Asked) -> Any:
        raise unknown("topic t", "create it")

    async def fail_denied(self, asked: Asked) -> Any:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no ACL allows Read on topic t")

    async def hang(self, asked: Asked) -> Any:
        await asyncio.sleep(3600)

    async def numbers(self, asked: Asked) -> AsyncGenerator[StreamEvent, None]:
        self.last_id = asked.last_id
        yield StreamEvent("first", {"text": "line\nend"}, "a-1")
        yield StreamEvent("")
        yield StreamEvent("second", 2)

    async def flood(self, asked: Asked) -> AsyncGenerator[StreamEvent, None]:
        try:
            while True:
                self.sent += 1
                yield StreamEvent("data", "x" * 100_000)
                await asyncio.sleep(0)
        finally:
            self.is_ended.set()

    async def close(self) -> None: ...


@pytest.fixture
async def site() -> Site:
    return Site()


@pytest.fixture
async def server(site: Site) -> AsyncIterator[ConsoleServer]:
    with listen(0) as listening:
        server = ConsoleServer(site, TOKEN, SystemClock())
        await server.start(listening)
        yield server
        await server.close()


@pytest.fixture
async def client(server: ConsoleServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as client:
        yield client


async def failure(response: aiohttp.ClientResponse) -> tuple[int, str]:
    body = json.loads(await response.text())
    assert body.keys() == {"error", "hint"}
    return response.status, body["error"]


async def test_view_gets_path_query_and_body(client: aiohttp.ClientSession) -> None:
    headers = {"X-Minikafka-Token": TOKEN}
    async with client.get("/api/echo/a%2Fb?x=1", headers=headers) as response:
        assert await response.json() == {"name": "a/b", "query": {"x": "1"}}
        assert response.headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert response.headers["Cache-Control"] == "no-store"
    async with client.post(f"/api/echo?token={TOKEN}", data='{"a": 1}') as response:
        assert await response.json() == {"a": 1}


async def test_failure_is_one_sentence_as_json(client: aiohttp.ClientSession) -> None:
    cases = [
        ("GET", "/api/unknown", 404, "there is no topic t"),
        ("GET", "/api/denied", 403, "TOPIC_AUTHORIZATION_FAILED: no ACL allows Read on topic t"),
        ("GET", "/api/hangs", 503, "the cluster does not answer in time"),
        ("GET", "/api/nothing", 404, "there is no such path"),
        ("PUT", "/api/unknown", 405, "the path does not allow this method"),
    ]
    for method, path, status, text in cases:
        async with client.request(method, f"{path}?token={TOKEN}") as response:
            assert await failure(response) == (status, text)
    for body in ("no json", "[1]", "{" * 100_000):
        async with client.post(f"/api/echo?token={TOKEN}", data=body) as response:
            assert (await failure(response))[0] == 400


async def test_api_needs_the_token_and_its_own_host(client: aiohttp.ClientSession) -> None:
    for path in ("/api/echo/a", "/api/stream", "/api/nothing"):
        async with client.get(path) as response:
            assert (await failure(response))[0] == 401
        async with client.get(f"{path}?token=wrong") as response:
            assert (await failure(response))[0] == 403
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        for path in ("/", f"/api/echo/a?token={TOKEN}"):
            async with client.get(path, headers=headers) as response:
                assert (await failure(response))[0] == 403


async def test_only_files_of_the_page_are_served(
    client: aiohttp.ClientSession, server: ConsoleServer
) -> None:
    async with client.get("/") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/html")
        assert response.headers["X-Frame-Options"] == "DENY"
    for path in ("/../server.py", "/%2e%2e/server.py", "/page", "//etc/passwd", "/server.py"):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        host = f"127.0.0.1:{server.port}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert b"404" in await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_stream_sends_events_with_ids(client: aiohttp.ClientSession, site: Site) -> None:
    headers = {"Last-Event-ID": "a-7"}
    async with client.get(f"/api/stream?token={TOKEN}", headers=headers) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        text = await response.text()
    assert text == (
        'event: first\nid: a-1\ndata: {"text":"line\\nend"}\n\n: ping\n\nevent: second\ndata: 2\n\n'
    )
    assert site.last_id == "a-7"


async def test_viewer_that_does_not_read_is_given_up(
    client: aiohttp.ClientSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "WRITE_S", 0.2)
    async with client.get(f"/api/flood?token={TOKEN}"):
        async with asyncio.timeout(10):
            await site.is_ended.wait()
    assert site.sent < 1_000, "no event is made before the last one was written"


async def test_too_many_streams_are_refused_until_one_ends(
    client: aiohttp.ClientSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "STREAMS_MAX", 1)
    path = f"/api/flood?token={TOKEN}"
    async with client.get(path) as first:
        async with client.get(path) as second:
            assert await failure(second) == (503, "1 streams of this console are open")
        first.close()
    async with asyncio.timeout(10):
        await site.is_ended.wait()
        while True:
            async with client.get(f"/api/stream?token={TOKEN}") as again:
                if again.status == 200:
                    break


def test_second_console_on_one_port_is_refused_with_one_sentence() -> None:
    with listen(0) as first:
        port = first.getsockname()[1]
        with pytest.raises(RequestRefused, match=f"^port {port} on 127.0.0.1 is in use"):
            listen(port)
    listen(port).close()
