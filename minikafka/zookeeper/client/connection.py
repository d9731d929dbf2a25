"""One connection to a ZooKeeper server: sends requests, and matches responses to requests by their order.

The connection's owner manages the session. Invariants: each request ends exactly once: with a response, with an
error, or with OutcomeUnknown if the connection is lost or the response is overdue. When the connection is lost,
the owner is called before the pending requests fail. The connection has no task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from minikafka.base.errors import NotConnected, OutcomeUnknown
from minikafka.base.ports import Buffer, Link, StreamHandler
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.client.calls import Attached, ZooKeeperCall
from minikafka.zookeeper.messages import codes

logger = logging.getLogger(__name__)

FRAME_MAX: Final = 128 * 1024 * 1024
"""Maximum size of a response; a longer one is not from ZooKeeper. (The names of 200,000 children take 5 MB.)"""
_BUFFER_BYTES: Final = 64 * 1024
_XID_MAX: Final = 0x7FFFFFFF


class Owner(Protocol):
    """The owner of a connection, which receives the connection's events. The methods must not raise."""

    def on_answer(self, sent: int) -> None:
        """Called when the server has answered a request or ping. `sent`: when it was sent (monotonic ms)."""

    def on_released(self, size: int) -> None:
        """Called when a request of `size` bytes has been answered."""

    def on_event(self, change: int, path: str) -> None:
        """Called when a watch has fired."""

    def on_lost(self, connection: ZooKeeperConnection) -> None:
        """Called when the connection was lost, before the connection's pending requests fail."""


class _Sent(NamedTuple):
    xid: int
    call: ZooKeeperCall[Any]
    answer: asyncio.Future[Any]
    size: int
    at: int


class ZooKeeperConnection:
    """One connection to a server: a `StreamHandler`. When it is open, `handshake` attaches it to a session."""

    def __init__(self, owner: Owner, now: Callable[[], int]) -> None:
        self.last_received = self.last_sent = now()
        self.last_zxid = 0
        self.is_lost = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = owner
        self._now = now
        self._link: Link | None = None
        self._handshake: asyncio.Future[Attached] | None = None
        self._sent: deque[_Sent] = deque()
        self._pings: deque[int] = deque()
        self._xid = 0
        self._out: list[bytes] = []
        self._in = bytearray()
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._error: Exception | None = None
        """Why the transport has ended the connection, for example an alert of TLS."""

    # ---- sending

    async def handshake(
        self, session_id: int, password: bytes, timeout_ms: int, last_zxid: int
    ) -> Attached:
        """Request a session; return the server's response. Raises OSError if the connection is lost first."""
        if self.is_lost:
            raise ConnectionError("the server closed the connection")
        self.last_zxid = last_zxid
        self._handshake = asyncio.get_running_loop().create_future()
        self._write(calls.connect(session_id, password, timeout_ms, last_zxid))
        return await self._handshake

    def submit(self, call: ZooKeeperCall[Any], answer: asyncio.Future[Any]) -> None:
        """Send a request. The response or an error completes the future `answer`. Raises NotConnected."""
        if self.is_lost:
            raise NotConnected("no connection to ZooKeeper")
        self._xid = 1 if self._xid == _XID_MAX else self._xid + 1
        body = calls.LENGTH.pack(self._xid) + call.body
        self._sent.append(_Sent(self._xid, call, answer, len(call.body), self._now()))
        self._write(body)

    def ping(self) -> None:
        """Send a ping, which keeps the session alive and tests whether the server answers."""
        self._pings.append(self._now())
        self._write(calls.PING)

    def oldest_request(self) -> int | None:
        """Return when the oldest unanswered request or ping was sent (monotonic ms); None if all are answered."""
        waiting = [self._sent[0].at] if self._sent else []
        waiting += [self._pings[0]] if self._pings else []
        return min(waiting, default=None)

    def fail_requests_until(self, too_old: int) -> None:
        """Fail requests sent at `too_old` or before with OutcomeUnknown. Late responses are ignored."""
        for request in self._sent:
            if request.at > too_old:
                break
            if not request.answer.done():
                request.answer.set_exception(
                    OutcomeUnknown(
                        f"no response for {request.call.path} within the session timeout"
                    )
                )

    def _write(self, body: bytes) -> None:
        self.last_sent = self._now()
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out += (calls.LENGTH.pack(len(body)), body)

    def _flush(self) -> None:
        """Write all frames that were queued in this iteration of the event loop."""
        if self._link is not None and not self.is_lost:
            self._link.send((b"".join(self._out),))
        self._out.clear()

    # ---- receiving; called by the transport

    def connected(self, link: Link) -> None:
        """Keep the link of the new connection (StreamHandler)."""
        self._link = link
        if self.is_lost:
            link.abort()

    def get_buffer(self, hint: int) -> Buffer:
        """Return the buffer for the next bytes (StreamHandler)."""
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        """Process all frames that have been received completely (StreamHandler)."""
        if self.is_lost:
            return
        self.last_received = self._now()
        self._in += self._buffer[:count]
        try:
            self._process_frames()
        except ValueError as error:
            logger.warning("ZooKeeper connection dropped: %s", error)
            self.abort()

    def disconnected(self, error: Exception | None) -> None:
        """Call `Owner.on_lost` and fail the pending requests (StreamHandler)."""
        self._error = error
        self.abort()

    def drained(self) -> None:
        """Do nothing (StreamHandler): the limits on unanswered requests bound the queued bytes."""

    def abort(self) -> None:
        """Drop the connection: call the owner, then fail every pending request."""
        if self.is_lost:
            return
        self.is_lost = True
        if self._link is not None:
            self._link.abort()
        self._owner.on_lost(self)
        if self._handshake is not None and not self._handshake.done():
            reason = f": {self._error}" if self._error is not None else ""
            self._handshake.set_exception(
                ConnectionError(f"the server closed the connection{reason}")
            )
        sent, self._sent = self._sent, deque()
        for request in sent:
            if not request.answer.done():
                request.answer.set_exception(
                    OutcomeUnknown(
                        f"the connection was lost before the response for {request.call.path}"
                    )
                )
        self.lost.set_result(None)

    def _process_frames(self) -> None:
        start = 0
        while len(self._in) - start >= calls.LENGTH.size:
            (length,) = calls.LENGTH.unpack_from(self._in, start)
            if not 0 <= length <= FRAME_MAX:
                raise ValueError(f"not a ZooKeeper server: it sent a frame of {length} bytes")
            end = start + calls.LENGTH.size + length
            if len(self._in) < end:
                break
            frame = bytes(memoryview(self._in)[start + calls.LENGTH.size : end])
            start = end
            self._process(frame)
            if self.is_lost:
                return
        del self._in[:start]

    def _process(self, frame: bytes) -> None:
        if self._handshake is not None:
            handshake, self._handshake = self._handshake, None
            attached = calls.decode_connect(frame)
            if not handshake.done():
                handshake.set_result(attached)
            return
        if len(frame) < calls.REPLY.size:
            raise ValueError("a response is shorter than its header")
        xid, zxid, code = calls.REPLY.unpack_from(frame)
        payload = frame[calls.REPLY.size :]
        if xid == codes.EVENT_XID:
            self._owner.on_event(*calls.decode_event(payload))
            return
        self.last_zxid = max(self.last_zxid, zxid)
        if xid == codes.PING_XID:
            if self._pings:
                self._owner.on_answer(self._pings.popleft())
            return
        if not self._sent or self._sent[0].xid != xid:
            raise ValueError(f"unexpected response to request {xid}: another response is due first")
        self._complete(self._sent.popleft(), code, payload)

    def _complete(self, request: _Sent, code: int, payload: bytes) -> None:
        error: Exception | None = calls.error_of(code, request.call.path) if code else None
        result = None
        if error is None:
            try:
                result = request.call.decode(payload)
            except ValueError:
                self._sent.appendleft(request)
                raise
            except Exception as verdict:  # noqa: BLE001 - a multi's errors are in its payload
                error = verdict
        self._owner.on_answer(request.at)
        self._owner.on_released(request.size)
        with suppress(asyncio.InvalidStateError):  # raised if the caller was cancelled
            if error is None:
                request.answer.set_result(result)
            else:
                request.answer.set_exception(error)


def _conforms(connection: ZooKeeperConnection) -> StreamHandler:
    return connection
