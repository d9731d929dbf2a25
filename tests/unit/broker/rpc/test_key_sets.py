"""Key sets that are read from an HTTP address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from minikafka.broker.rpc.key_sets import fetch_text


@asynccontextmanager
async def serving(handler: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    """Yield the address of a server on 127.0.0.1 that answers with `handler`."""
    app = web.Application()
    app.router.add_get("/keys", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
    finally:
        await runner.cleanup()


async def test_text_at_an_address_is_returned():
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text='{"keys": []}')

    async with serving(answer) as url:
        assert await fetch_text(url) == '{"keys": []}'


async def test_long_text_is_returned_whole_up_to_a_limit():
    sizes = iter([1024 * 1024, 1024 * 1024 + 1])

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="x" * next(sizes))

    async with serving(answer) as url:
        assert len(await fetch_text(url)) == 1024 * 1024
        with pytest.raises(OSError, match="longer than 1048576 bytes"):
            await fetch_text(url)


async def test_answer_with_another_status_is_an_error():
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=404)

    async with serving(answer) as url:
        with pytest.raises(OSError, match="HTTP status 404"):
            await fetch_text(url)


async def test_refused_connection_is_an_error():
    async def answer(_: web.Request) -> web.Response:
        return web.Response()

    async with serving(answer) as url:
        pass
    with pytest.raises(OSError, match="onnect"):
        await fetch_text(url)
