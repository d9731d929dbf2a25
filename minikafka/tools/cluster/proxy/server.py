"""The calls that the proxy answers (`calls.py`), and its life as a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from contextlib import suppress
from typing import Any

from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.tools.cluster.processes import identify
from minikafka.tools.cluster.proxy.calls import LINE_MAX, address_of, is_same_user
from minikafka.tools.cluster.proxy.front import ProxyRoute
from minikafka.tools.cluster.proxy.proxy import FaultProxy, RequestWait
from minikafka.tools.cluster.proxy.rules import FaultRule


async def serve() -> None:
    """Run the proxy until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    process = identify(os.getpid())
    assert process is not None, "this process runs"
    listening = socket.socket(socket.AF_UNIX)
    listening.setblocking(False)
    listening.bind(address_of(process))
    tasks = TaskRegistry()
    proxy = FaultProxy(SystemClock(), tasks)
    calls = _Calls(proxy)
    server = await asyncio.start_unix_server(calls.handle, sock=listening, limit=LINE_MAX)
    tasks.spawn(proxy.keep_looking(), "look")
    await ended.wait()
    server.close()
    proxy.close()
    await tasks.close()


class _Calls:
    """The calls to one proxy."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy
        self._verbs = {
            "routes": self._routes,
            "look": self._look,
            "cause": self._cause,
            "count": self._count,
            "heal": self._heal,
            "list": self._list,
        }

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one call."""
        try:
            if is_same_user(writer.get_extra_info("socket")) and (line := await reader.readline()):
                answer = await self._answer(json.loads(line), reader)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except OSError:
            pass  # the caller has gone
        finally:
            writer.close()

    async def _answer(self, request: dict[str, Any], reader: asyncio.StreamReader) -> Any:
        verb = request.pop("verb")
        if verb == "after":
            return {"result": await self._after(request, reader)}
        if verb not in self._verbs:
            return {"error": f"the proxy of faults is of another version: it has no call {verb}"}
        return {"result": self._verbs[verb](request)}

    def _routes(self, request: dict[str, Any]) -> None:
        self._proxy.set_routes(ProxyRoute(*values) for values in request["routes"])

    def _look(self, request: dict[str, Any]) -> None:
        self._proxy.look()

    def _cause(self, request: dict[str, Any]) -> int:
        return self._proxy.cause(FaultRule(*request["rule"]))

    def _count(self, request: dict[str, Any]) -> dict[str, int]:
        return self._proxy.active[request["key"]].hits()

    def _heal(self, request: dict[str, Any]) -> None:
        keys = request.get("keys")
        self._proxy.heal(
            self._proxy.current(request.get("a"), request.get("b")) if keys is None else keys
        )

    def _list(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        found = ((key, self._proxy.active[key]) for key in self._proxy.current())
        return [{"key": key, "name": one.name, "hits": one.hits()} for key, one in found]

    async def _after(self, request: dict[str, Any], reader: asyncio.StreamReader) -> dict[str, Any]:
        """Answer when the requests have passed, or when the caller has gone or its time is over."""
        wait = RequestWait(request["api"], request["number"], request["broker"], request["sender"])
        key = self._proxy.wait_for(wait, request["name"])
        self._proxy.spawn(_note_departure(reader, wait), "caller")
        with suppress(TimeoutError):
            async with asyncio.timeout(request["timeout_ms"] / 1000):
                await wait.reached
        if not wait.is_reached or not request["hold_ms"]:
            self._proxy.heal([key])
        else:
            seconds = request["hold_ms"] / 1000
            asyncio.get_running_loop().call_later(seconds, self._proxy.heal, [key])
        return {"key": key, "passed": wait.passed}


async def _note_departure(reader: asyncio.StreamReader, wait: RequestWait) -> None:
    """End a wait whose caller closes its connection."""
    with suppress(OSError):
        await reader.read(1)
    if not wait.reached.done():
        wait.reached.set_result(None)
