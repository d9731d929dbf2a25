"""The ControlPlane port without sockets: calls between the brokers of one event loop, signed as over HTTP."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.ports import Call, Clock, Listener
from minikafka.base.protocol_versions import UNVERSIONED, VERSIONS, Versions
from minikafka.broker.rpc.envelope import with_version, without_version
from minikafka.broker.rpc.signatures import Signer, Verifier
from minikafka.simulation.cuts import Cuts, name_of
from minikafka.simulation.loop import PROCESS, start_in

Handler: TypeAlias = "Callable[[Call], Awaitable[dict[str, Any]]]"
SECRET: Final = "a secret of the simulation"  # noqa: S105  it protects nothing
INCARNATIONS = itertools.count()


class MemoryServer:
    """The handler of control-plane calls on one port, with the simulated process that serves the port."""

    def __init__(self, plane: MemoryControlPlane, handler: Handler, port: int) -> None:
        self.servers = plane.servers
        self.plane = plane
        self.handler = handler
        self.port = port
        self.process = PROCESS.get()
        self.calls: set[asyncio.Future[Any]] = set()
        self.servers[port] = self

    async def close(self) -> None:
        self.servers.pop(self.port, None)

    def kill(self) -> None:
        """Close the port and fail every open call, as the kernel closes the sockets of a killed process."""
        self.servers.pop(self.port, None)
        for call in self.calls:
            if not call.done():
                call.set_exception(ConnectionResetError("the peer was killed"))


class MemoryControlPlane:
    """A ControlPlane without sockets, whose calls are signed and verified as over HTTP.

    `servers`: the servers of all brokers, by TCP port number.
    """

    def __init__(
        self,
        servers: dict[int, MemoryServer],
        broker_id: int,
        clock: Clock,
        delay: Callable[[], float] = lambda: 0,
        cuts: Cuts | None = None,
        versions: Versions = VERSIONS,
    ) -> None:
        self.versions = versions
        self.broker_id = broker_id
        self.servers = servers
        self.clock = clock
        self.delay = delay
        self.cuts = cuts or Cuts()
        self.mine: list[MemoryServer] = []
        incarnation = next(INCARNATIONS).to_bytes(8)
        self.signer = Signer(SECRET.encode(), "", broker_id, incarnation)
        self.verifier = Verifier(SECRET.encode(), "", broker_id, incarnation)

    async def serve(
        self, handler: Handler, host: str, port: int, metrics: object = None, refusal: object = None
    ) -> Listener:
        port = port or 50_000 + len(self.servers) + 1
        while port in self.servers:
            port += 1
        self.cuts.own(port)
        self.mine.append(MemoryServer(self, handler, port))
        return self.mine[-1]

    async def call(
        self,
        endpoint: Endpoint,
        method: str,
        body: dict[str, Any],
        *,
        target_id: int,
        timeout_ms: int,
        version: str = UNVERSIONED,
    ) -> dict[str, Any]:
        """Send a call and return the answer. The call is handled in a task of the server's process."""
        await asyncio.sleep(self.delay())
        async with asyncio.timeout(timeout_ms / 1_000):
            here, there = name_of(), self.cuts.owner(endpoint.port)
            await self.cuts.wait_until_open(here, there)
            sent = with_version(body, version)
            answer = await self._exchange(endpoint, method, sent, target_id)
            await self.cuts.wait_until_open(there, here)
            return answer

    async def _exchange(
        self, endpoint: Endpoint, method: str, body: dict[str, Any], target_id: int
    ) -> dict[str, Any]:
        server = self.server(endpoint.port)
        self._authenticate(server.plane, target_id, method)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        received = without_version(body, str(self.broker_id), target_id)
        task = start_in(server.process, _handle(server, Call(method, received), answer))
        server.calls.add(answer)
        try:
            return await answer
        finally:
            server.calls.discard(answer)
            if not server.process.is_dead:
                task.cancel()

    async def clock_offset(self, endpoint: Endpoint, *, target_id: int, timeout_ms: int) -> int:
        async with asyncio.timeout(timeout_ms / 1_000):
            here, there = name_of(), self.cuts.owner(endpoint.port)
            await self.cuts.wait_until_open(here, there)
            await self.cuts.wait_until_open(there, here)
            return self.server(endpoint.port).plane.clock.wall_ms() - self.clock.wall_ms()

    def server(self, port: int) -> MemoryServer:
        """Return the server on a port. Raises ConnectionRefusedError."""
        server = self.servers.get(port)
        if server is None:
            raise ConnectionRefusedError(f"nobody serves on port {port}")
        return server

    def _authenticate(self, server: MemoryControlPlane, target_id: int, method: str) -> None:
        """Sign a call and let the server verify it. The body is not signed, to save time."""
        challenge = server.verifier.challenge(server.clock.now())
        headers = self.signer.headers(target_id, "POST", method, b"", challenge)
        sealed = server.verifier.verify("POST", method, headers, server.clock.now())
        if isinstance(sealed, str):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, sealed)

    async def close(self) -> None:
        for server in self.mine:
            await server.close()


async def _handle(server: MemoryServer, call: Call, answer: asyncio.Future[dict[str, Any]]) -> None:
    """Set the handler's result or exception as the answer, unless the caller has given up."""
    try:
        result = await server.handler(call)
    except Exception as error:  # noqa: BLE001  (it is the caller's)
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(result)
