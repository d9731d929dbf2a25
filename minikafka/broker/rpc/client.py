"""The client of the control plane: signed msgpack bodies over HTTP, with keep-alive connections.

This module does not import aiohttp's server, because commands such as `minikafka status` only need a client.
Invariant: an answer is used only if the called broker has signed it. Every other answer is an error.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from io import BytesIO
from typing import Any, Final, NamedTuple, Protocol

import aiohttp

from minikafka.base.encryption import ListenerTls
from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import BrokerId
from minikafka.base.ports import Clock, Rng
from minikafka.base.protocol_versions import UNVERSIONED, VERSIONS, Versions
from minikafka.broker.rpc.encoding import BODY_MAX_BYTES, pack, unpack
from minikafka.broker.rpc.envelope import with_version
from minikafka.broker.rpc.liveness import PRESENT
from minikafka.broker.rpc.messages import CHALLENGE, decode_challenge
from minikafka.broker.rpc.signatures import CHALLENGE_MS, NONCE, SIGNATURE, Signer

IDLE_CLIENT_SECONDS: Final = 15
"""Idle time after which the client closes a connection; shorter than the server's limit."""
REUSE_MS: Final = CHALLENGE_MS * 3 // 4
"""Time for which the client uses a challenge. The rest of `CHALLENGE_MS` is for the transport of the last call."""
_UNAUTHORIZED: Final = 401
_NOT_A_CONTROL_PLANE: Final = "the response is not from a control plane"


class Encryption(ListenerTls, Protocol):
    """The TLS context for new connections, which another one may replace at any time."""

    context: ssl.SSLContext


class _Peer(NamedTuple):
    """A broker and the address at which it is called. `is_fresh`: open a new connection for each request."""

    endpoint: Endpoint
    id: BrokerId
    is_fresh: bool = False

    @property
    def address(self) -> str:
        """The address as host:port."""
        host, port = self.endpoint.host, self.endpoint.port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def url(self, path: str) -> str:
        scheme = "https" if self.endpoint.security.is_encrypted else "http"
        return f"{scheme}://{self.address}{path}"


class _Answer(NamedTuple):
    """The answer to one HTTP request. `is_signed`: the called broker has signed it."""

    status: int
    body: bytes
    is_signed: bool


class ControlPlaneClient:
    """A client that sends signed calls to brokers.

    `cluster_id`: must be equal at the caller and the called broker (`""` while both do not know the id).
    `sender_id`: id of the calling broker, -1 for a tool. `tls`: for brokers whose control listener is encrypted.
    `versions`: the versions of the protocol that the caller uses. `source`: the address from which it connects; None:
    the system chooses.
    """

    def __init__(
        self,
        secret: bytes,
        cluster_id: str,
        sender_id: int,
        clock: Clock,
        rng: Rng,
        tls: Encryption | None = None,
        versions: Versions = VERSIONS,
        source: str | None = None,
    ) -> None:
        self.versions = versions
        self._source = None if source is None else (source, 0)
        self._clock = clock
        self._tls = tls
        self._signer = Signer(secret, cluster_id, sender_id, rng.bytes(8))
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        """The HTTP clients: False -> with keep-alive connections, True -> with a new connection for each request."""
        self._is_closed = False
        self._challenges: dict[_Peer, tuple[str, int]] = {}
        """Broker -> its latest challenge, and the monotonic time before the broker was asked for it."""

    async def call(
        self,
        endpoint: Endpoint,
        method: str,
        body: dict[str, Any],
        *,
        target_id: BrokerId,
        timeout_ms: int,
        version: str = UNVERSIONED,
    ) -> dict[str, Any]:
        """Send one call to the broker `target_id` in this version of the protocol, and return the response.

        Raises OSError if no response arrives: ConnectionRefusedError if every address of the host refused the
        connection, another ConnectionError if the connection ended, TimeoutError if the broker was silent. Raises
        KafkaError if the call is refused. A broker with another id refuses the call.
        """
        peer = _Peer(endpoint, target_id, method == PRESENT)
        data = pack(with_version(body, version))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await self._connect_and_call(peer, f"/{method}", data)
        except BaseException as error:
            # A restarted broker refuses the challenge before it reads the body. A client that still writes the body
            # may then see a broken connection instead of the refusal.
            self._challenges.pop(peer, None)
            if isinstance(error, aiohttp.ClientError):
                raise _connection_error(peer, error) from error
            raise
        return _outcome(answer)

    async def clock_offset(
        self, endpoint: Endpoint, *, target_id: BrokerId, timeout_ms: int
    ) -> int:
        """Return by how many milliseconds the wall clock of the broker `target_id` is ahead of this process's.

        The result is exact to half the time that the answer took. Raises OSError and KafkaError like `call`.
        """
        peer = _Peer(endpoint, target_id)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                sent = self._clock.now()
                _, wall_ms = await self._ask(peer)
                took = self._clock.now() - sent
                return wall_ms - (self._clock.wall_ms() - took // 2)
        except aiohttp.ClientError as error:
            raise _connection_error(peer, error) from error

    async def _connect_and_call(self, peer: _Peer, path: str, data: bytes) -> _Answer:
        """Send a call. Raises ConnectionRefusedError if every address of the peer refuses a connection."""
        try:
            return await self._call(peer, path, data)
        except aiohttp.ClientConnectorError as error:
            # aiohttp reports only the failure at the last of several addresses.
            if isinstance(error.os_error, ConnectionRefusedError) and await _refuses(peer):
                reason = f"{peer.address}: {error.strerror}"
                raise ConnectionRefusedError(reason) from error
            raise

    async def _call(self, peer: _Peer, path: str, data: bytes) -> _Answer:
        """Send a call. If the broker refuses an earlier challenge, ask for a new one and repeat the call."""
        challenge, asked = self._challenges.get(peer, ("", 0))
        if challenge and self._clock.now() - asked <= REUSE_MS:
            answer = await self._post(peer, path, data, challenge)
            if answer.status != _UNAUTHORIZED:
                return answer
        challenge, _ = await self._ask(peer)
        return await self._post(peer, path, data, challenge)

    async def _ask(self, peer: _Peer) -> tuple[str, int]:
        """Ask a broker for a challenge; return the challenge, and the broker's wall time in Unix milliseconds."""
        asked, path = self._clock.now(), f"/{CHALLENGE}"
        answer = await self._request("GET", peer, path, None, {NONCE: self._signer.nonce()})
        try:
            challenge, wall_ms = decode_challenge(unpack(answer.body))
        except (ValueError, KafkaError) as error:
            raise ConnectionError(_NOT_A_CONTROL_PLANE) from error
        if not answer.is_signed:
            raise _unauthorized()
        self._challenges[peer] = challenge, asked
        return challenge, wall_ms

    async def _post(self, peer: _Peer, path: str, data: bytes, challenge: str) -> _Answer:
        headers = self._signer.headers(peer.id, "POST", path, data, challenge)
        # aiohttp logs a warning if a large body is passed as bytes
        return await self._request("POST", peer, path, BytesIO(data), headers)

    async def _request(
        self, method: str, peer: _Peer, path: str, data: BytesIO | None, headers: dict[str, str]
    ) -> _Answer:
        request = self._http_client(peer.is_fresh).request(
            method,
            peer.url(path),
            data=data,
            headers=headers,
            allow_redirects=False,
            ssl=True if self._tls is None else self._tls.context,
        )
        async with request as response:
            body, status = await _limited(response), response.status
        signature = response.headers.get(SIGNATURE, "")
        is_signed = self._signer.is_answer(peer.id, path, headers[NONCE], status, body, signature)
        return _Answer(status, body, is_signed)

    async def close(self) -> None:
        """Close all connections. Later calls raise ConnectionError."""
        self._is_closed = True
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.close()

    def _http_client(self, is_fresh: bool) -> aiohttp.ClientSession:
        """Return an HTTP client, created at the first call because aiohttp needs a running event loop.

        `is_fresh`: open a new connection for each request. Raises ConnectionError after `close`.
        """
        if self._is_closed:
            raise ConnectionError("this control plane is closed")
        session = self._sessions.get(is_fresh)
        if session is None:
            keep = None if is_fresh else IDLE_CLIENT_SECONDS
            session = self._sessions[is_fresh] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,
                    force_close=is_fresh,
                    keepalive_timeout=keep,
                    local_addr=self._source,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(),  # none: `call` and `clock_offset` have their own
            )
        return session


def _outcome(answer: _Answer) -> dict[str, Any]:
    """Decode the answer to a call.

    Raises KafkaError if the broker refused the call, ConnectionError if the answer is not from the broker.
    """
    if answer.status == _UNAUTHORIZED:
        raise _unauthorized()
    if not answer.is_signed:
        raise ConnectionError(_NOT_A_CONTROL_PLANE)
    if answer.status not in (200, 409):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"HTTP status {answer.status}")
    try:
        body = unpack(answer.body)
    except ValueError as error:
        raise ConnectionError(f"the response is not valid: {error}") from error
    if answer.status == 200:
        return body
    try:
        code = ErrorCode(body["error"])
    except (KeyError, ValueError):
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    raise KafkaError(code, str(body.get("detail", "")))


async def _refuses(peer: _Peer) -> bool:
    """True if every address of the peer refuses a connection, False if another error occurs or one accepts."""
    loop = asyncio.get_running_loop()
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        peer.endpoint.host, peer.endpoint.port, type=socket.SOCK_STREAM
    ):
        with socket.socket(family, kind, protocol) as trial:
            trial.setblocking(False)
            try:
                await loop.sock_connect(trial, address)
            except ConnectionRefusedError:
                continue
            except OSError:
                pass
            return False
    return True


def _unauthorized() -> KafkaError:
    return KafkaError(
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        "the cluster secret differs, or another broker has this address",
    )


def _connection_error(peer: _Peer, error: aiohttp.ClientError) -> ConnectionError:
    # asyncio names the address instead of the reason. Some errors of aiohttp are OSErrors without a number.
    number = getattr(error, "errno", None)
    if type(number) is int and number > 0 and not isinstance(error, ssl.SSLError):
        return ConnectionError(f"{peer.address}: {os.strerror(number)}")
    reason = getattr(error, "strerror", None) or error
    return ConnectionError(f"{peer.address}: {reason}")


async def _limited(response: aiohttp.ClientResponse) -> bytes:
    """Read the body of a response. Raises ConnectionError if it exceeds `BODY_MAX_BYTES`."""
    pieces = []
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > BODY_MAX_BYTES:
            raise ConnectionError("the response is too large")
        pieces.append(piece)
    return b"".join(pieces)
