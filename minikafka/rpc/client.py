"""The client of the control plane: signed msgpack bodies over HTTP, with keep-alive connections.

This module does not import aiohttp's server, because commands such as `minikafka status` only need a client.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

import aiohttp

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import BrokerId
from minikafka.base.ports import Clock, Rng
from minikafka.rpc.encoding import BODY_MAX_BYTES, pack, unpack
from minikafka.rpc.signatures import Signer

IDLE_CLIENT_SECONDS: Final = 15
"""Idle time after which the client closes a connection; shorter than the server's limit."""


class ControlPlaneClient:
    """A client that sends signed calls to brokers.

    `cluster_id`: must be equal at the caller and the called broker (`""` while both do not know the id).
    `sender_id`: id of the calling broker, -1 for a tool.
    """

    def __init__(
        self, secret: bytes, cluster_id: str, sender_id: int, clock: Clock, rng: Rng
    ) -> None:
        self._clock = clock
        self._signer = Signer(secret, cluster_id, sender_id, rng.bytes(8))
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self,
        host: str,
        port: int,
        method: str,
        body: dict[str, Any],
        *,
        target_id: BrokerId,
        timeout_ms: int,
    ) -> dict[str, Any]:
        """Send one call to the broker `target_id` and return the response.

        Raises OSError (TimeoutError included) if no response arrives, and KafkaError if the call is refused. A
        broker with another id refuses the call.
        """
        path = f"/{method}"
        data = pack(body)
        headers = self._signer.headers(target_id, "POST", path, data, self._clock.wall_ms())
        url = f"http://[{host}]:{port}{path}" if ":" in host else f"http://{host}:{port}{path}"
        try:
            async with self._http_client().post(
                url,
                data=BytesIO(data),  # aiohttp logs a warning for large bytes
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout_ms / 1000),
            ) as response:
                return _outcome(response.status, await _limited(response))
        except aiohttp.ClientError as error:
            # Some errors of aiohttp are OSErrors without a number, whose text begins with "[Errno None]".
            reason = getattr(error, "strerror", None) or error
            raise ConnectionError(f"{host}:{port}: {reason}") from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _http_client(self) -> aiohttp.ClientSession:
        """Return the HTTP client, created at the first call because aiohttp needs a running event loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CLIENT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,
            )
        return self._session


def _outcome(status: int, data: bytes) -> dict[str, Any]:
    """Decode the response of a call. Raises KafkaError for an error, ConnectionError for an unreadable response."""
    if status == 401:
        raise KafkaError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "the cluster secret or the clock differs, or another broker has this address",
        )
    if status not in (200, 409):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"HTTP status {status}")
    try:
        body = unpack(data)
    except ValueError as error:
        raise ConnectionError("the response is not from a control plane") from error
    if status == 200:
        return body
    try:
        code = ErrorCode(body["error"])
    except (KeyError, ValueError):
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    raise KafkaError(code, str(body.get("detail", "")))


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
