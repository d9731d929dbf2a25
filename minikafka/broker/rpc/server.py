"""The server of the control plane: signed msgpack bodies over HTTP, checked strictly.

A client first asks for a challenge, without a signature (`signatures.py`). Invariants: no byte of a body is read
before the signature of the headers is verified. No body is decoded before its hash is verified. State changes
from one sender reach the handler one at a time, in the order of sending. A call without a valid signature is
answered with HTTP status 401, without a reason. All other answers to calls are signed. `connections.py` limits the
number of connections and the time for a whole request, because aiohttp has no such limits.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from aiohttp import web

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.metrics import CONTENT_TYPE
from minikafka.base.ports import Call, Clock, Listener, Rng
from minikafka.base.protocol_versions import VERSIONS, Versions
from minikafka.broker.ports import ControlTls
from minikafka.broker.rpc.client import ControlPlaneClient, Encryption
from minikafka.broker.rpc.connections import Connections, ServedConnection
from minikafka.broker.rpc.encoding import BODY_MAX_BYTES, pack, unpack
from minikafka.broker.rpc.envelope import without_version
from minikafka.broker.rpc.messages import CHALLENGE, STATE_CHANGES, encode_challenge
from minikafka.broker.rpc.signatures import NONCE, STALE, Sealed, Verifier, body_hash
from minikafka.runtime.listening import stop_listening

logger = logging.getLogger(__name__)

INCARNATIONS_MAX: Final = 1024
"""Number of sending processes whose last sequence number is kept; far more than run at the same time."""
HANDSHAKE_SECONDS: Final = 10
_SERVER_NAME: Final = {"Server": "minikafka"}

HOME: Final = ("GET", "/")
METRICS: Final = ("GET", "/metrics")
NEW_CHALLENGE: Final = ("GET", f"/{CHALLENGE}")
"""Only the requests `HOME`, `METRICS` and `NEW_CHALLENGE` need no signature. Their bodies are not read."""
_AUTHORIZATION: Final = "Authorization"
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="minikafka", charset="UTF-8"'}
_NEEDS_TLS: Final = (
    "metrics are served under TLS only: set security.inter.broker.protocol to SSL or SASL_SSL\n"
)
_NEEDS_RIGHT: Final = "the user needs the right Describe on the cluster\n"
_HOME_PAGE: Final = """\
<!doctype html>
<html lang="en">
<title>minikafka broker {id}</title>
<h1>minikafka broker {id}</h1>
<p><a href="/metrics">/metrics</a>: the metrics of this broker in Prometheus' text format</p>
"""

Page: TypeAlias = Callable[[], AsyncIterator[str]]
"""A function that yields the text of the metrics page in pieces."""
Refusal: TypeAlias = Callable[[str, str], Awaitable[int]]
"""A function of the header Authorization and a reader's host:port: the HTTP status of its refusal, or 0."""
Handler: TypeAlias = Callable[[Call], Awaitable[dict[str, Any]]]


class HttpControlPlane(ControlPlaneClient):
    """The ControlPlane port: sends and serves signed calls. Each process has one.

    `cluster_id`: must be equal at the caller and the called broker (`""` while both do not know the id).
    """

    def __init__(
        self,
        secret: bytes,
        cluster_id: str,
        sender_id: int,
        clock: Clock,
        rng: Rng,
        descriptors: Callable[[], int] = lambda: sys.maxsize,
        tls: ControlTls | None = None,
        versions: Versions = VERSIONS,
        source: str | None = None,
    ) -> None:
        """`sender_id`: this broker's id, -1 for a tool. Received calls must be addressed to this id.

        `descriptors()` returns the maximum number of open file descriptors of this process. `tls`: None if calls are
        neither received nor sent under TLS. `source`: the address from which calls are sent.
        """
        client, server = (None, None) if tls is None else (tls.client, tls.server)
        super().__init__(
            secret,
            cluster_id,
            sender_id,
            clock,
            rng,
            cast("Encryption | None", client),
            versions,
            source,
        )
        self._server_tls = cast("Encryption | None", server)
        self._sender_id = sender_id
        self._verifier = Verifier(secret, cluster_id, sender_id, rng.bytes(32))
        self._descriptors = descriptors
        self._servers: list[_Server] = []

    async def serve(
        self,
        handler: Handler,
        host: str,
        port: int,
        metrics: Page | None = None,
        refusal: Refusal | None = None,
    ) -> Listener:
        """Serve signed calls on a port, and unsigned GET / and GET /metrics if `metrics` is given.

        With `refusal`, both pages are served under TLS only, and to those whom it does not refuse. If the handler
        raises a KafkaError, the sender of the call receives this error.
        """
        server = _Server(
            handler,
            self._verifier,
            self._clock,
            self._sender_id,
            metrics,
            refusal,
            self._descriptors,
        )
        await server.start(host, port, self._server_tls)
        self._servers.append(server)
        return server

    async def close(self) -> None:
        """Close all connections and listeners."""
        for server in self._servers:
            await server.close()
        self._servers.clear()
        await super().close()


class _Server:
    """One listener of the control plane."""

    def __init__(
        self,
        handler: Handler,
        verifier: Verifier,
        clock: Clock,
        broker_id: int,
        metrics: Page | None,
        refusal: Refusal | None,
        descriptors: Callable[[], int],
    ) -> None:
        self.port = 0
        self._refusal = refusal
        self._is_encrypted = False
        self._broker_id = broker_id
        self._metrics = metrics
        self._handler = handler
        self._verifier = verifier
        self._clock = clock
        self._latest: dict[str, int] = {}
        self._state_changes = asyncio.Lock()
        self._connections = Connections(clock, descriptors)
        self._running: set[asyncio.Task[Any]] = set()
        application = web.Application(client_max_size=BODY_MAX_BYTES)
        application.router.add_route("*", "/{path:.*}", self._on_request)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            auto_decompress=False,
            lingering_time=0,  # do not read the rest of a refused body
            shutdown_timeout=1.0,
        )
        self._listening: asyncio.Server

    async def start(self, host: str, port: int, tls: Encryption | None) -> None:
        self._is_encrypted = tls is not None
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            self._listening = await loop.create_server(
                self._accept,
                host,
                port,
                ssl=None if tls is None else _renewed(tls),
                ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
            )
        except OSError:
            await self._runner.cleanup()
            raise
        self.port = self._listening.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop accepting connections, wait at most two seconds for running handlers, then close all connections.

        Handlers that are still running are cancelled, so that none continues in a closed broker: aiohttp does not
        wait for a handler whose caller has disconnected. A second call of `close` has no effect.
        """
        await stop_listening(self._listening)
        await self._runner.cleanup()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._connections.close()

    def _accept(self) -> ServedConnection:
        return self._connections.accept(cast("web.Server", self._runner.server)())

    async def _on_request(self, request: web.Request) -> web.Response:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._running.add(task)
        try:
            return await self._respond(request)
        finally:
            self._running.discard(task)
            self._connections.expect_request(request.protocol)

    async def _respond(self, request: web.Request) -> web.Response:
        """Verify the headers, then the body's hash, then decode the body and call the handler."""
        asked = request.method, request.raw_path
        if asked == NEW_CHALLENGE:
            self._connections.request_received(request.protocol)
            return self._new_challenge(request)
        if self._metrics is not None and asked in (HOME, METRICS):
            self._connections.request_received(request.protocol)
            if (refused := await self._refused(request)) is not None:
                return refused
            return await self._metrics_page(self._metrics) if asked == METRICS else self._home()
        sealed = self._verifier.verify(*asked, request.headers, self._clock.now())
        if isinstance(sealed, str):
            level = logging.INFO if sealed is STALE else logging.WARNING
            logger.log(level, "control-plane call from %s refused: %s", request.remote, sealed)
            return _refusal(401)
        self._connections.mark_signed(request.protocol)
        status, body = await self._serve_signed(request, sealed)
        return self._signed(request, status, body)

    async def _serve_signed(self, request: web.Request, sealed: Sealed) -> tuple[int, bytes]:
        """Return status and body of the answer to a call whose headers are verified. Every error has an empty body."""
        if "Content-Encoding" in request.headers:
            return 415, b""
        if request.method != "POST":
            return 405, b""
        body = await request.read()
        self._connections.request_received(request.protocol)
        if not hmac.compare_digest(body_hash(body), sealed.body_hash):
            return 401, b""
        try:
            call = Call(request.raw_path[1:], unpack(body))
        except ValueError:
            return 400, b""
        return await self._answer(call, sealed)

    def _new_challenge(self, request: web.Request) -> web.Response:
        """Return a new challenge and this process's wall time, signed for the nonce in the request."""
        challenge = self._verifier.challenge(self._clock.now())
        return self._signed(request, 200, pack(encode_challenge(challenge, self._clock.wall_ms())))

    def _signed(self, request: web.Request, status: int, body: bytes) -> web.Response:
        nonce = request.headers.get(NONCE, "")
        signature = self._verifier.sign_answer(request.raw_path, nonce, status, body)
        response = web.Response(status=status, body=body, headers=_SERVER_NAME | signature)
        if status not in (200, 409):
            response.force_close()
        return response

    async def _refused(self, request: web.Request) -> web.Response | None:
        """Return the response for a reader that may not read the pages."""
        if self._refusal is None:
            return None
        if not self._is_encrypted:
            return _refusal(403, text=_NEEDS_TLS)
        host, port, *_ = request.get_extra_info("peername") or ("?", 0)
        peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        status = await self._refusal(request.headers.get(_AUTHORIZATION, ""), peer)
        if status == 401:
            return _refusal(status, _CHALLENGE)
        return _refusal(status, text=_NEEDS_RIGHT) if status else None

    def _home(self) -> web.Response:
        text = _HOME_PAGE.format(id=self._broker_id)
        return web.Response(text=text, content_type="text/html", headers=_SERVER_NAME)

    async def _metrics_page(self, metrics: Page) -> web.Response:
        """Return the metrics page. Other tasks can run between two pieces of the page."""
        pieces = []
        async for piece in metrics():
            pieces.append(piece)
            await self._clock.sleep(0)
        headers = {**_SERVER_NAME, "Content-Type": CONTENT_TYPE}
        return web.Response(body="".join(pieces).encode(), headers=headers)

    async def _answer(self, call: Call, sealed: Sealed) -> tuple[int, bytes]:
        try:
            body = without_version(call.body, sealed.sender, self._broker_id)
            return 200, pack(await self._handle(call._replace(body=body), sealed))
        except KafkaError as error:
            return 409, pack({"error": int(error.code), "detail": error.detail})
        except Exception:
            logger.exception("control-plane call %s failed", call.method)
            return 500, b""

    async def _handle(self, call: Call, sealed: Sealed) -> dict[str, Any]:
        if call.method not in STATE_CHANGES:
            return await self._handler(call)
        # A call that timed out at its sender may be read after the sender's later calls.
        if sealed.sequence <= self._latest.get(sealed.incarnation, 0):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "a later state change of this sender was already handled"
            )
        self._latest.pop(sealed.incarnation, None)
        self._latest[sealed.incarnation] = sealed.sequence
        if len(self._latest) > INCARNATIONS_MAX:
            del self._latest[next(iter(self._latest))]
        async with self._state_changes:
            return await self._handler(call)


def _renewed(tls: Encryption) -> ssl.SSLContext:
    """Return a context that passes each handshake on to the current one, because asyncio cannot replace a context."""
    context = tls.context

    def choose(handshake: ssl.SSLObject, host: str | None, _: ssl.SSLContext) -> None:
        handshake.context = tls.context

    context.sni_callback = choose
    return context


def _refusal(status: int, headers: Mapping[str, str] = {}, text: str | None = None) -> web.Response:
    """Return an HTTP response that closes the connection."""
    response = web.Response(status=status, headers={**_SERVER_NAME, **headers}, text=text)
    response.force_close()
    return response
